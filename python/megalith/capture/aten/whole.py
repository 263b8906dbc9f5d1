"""Whole numbers that are data. The library knows them as ids, which name rows of a table, and so a table has whatever is
computed of them: attention masks of 0 and 1, `ids != 0`."""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from ..export import short_name
from ..torch import OPERATORS, Capture, Known

MOVES = ("unsqueeze", "squeeze", "view", "reshape", "expand", "transpose", "permute", "slice", "select", "contiguous", "alias",
         "clone", "to", "_to_copy")
MASK = 2  # rows of a table for numbers that are nobody's ids: 0 and 1. Larger ones become NaN, which the loss will show


def is_whole(x: Any) -> bool:
    """Is it a node whose value has whole numbers? (Truth values are not: masks are real numbers here.)"""
    val = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    return isinstance(val, torch.Tensor) and not val.is_floating_point() and val.dtype != torch.bool


def _input_of(x: torch.fx.Node) -> Optional[torch.fx.Node]:
    """The network's input that was only moved about to make x; None: it was computed, and is a real number by now."""
    while x.op == "call_function" and short_name(x.target) in MOVES and is_whole(x.args[0]):
        x = x.args[0]
    return x if x.op == "placeholder" else None


def _rows(x: torch.fx.Node) -> int:
    """Of the table that the input's numbers are ids of."""
    tables = [n for n in x.graph.nodes if n.op == "call_function" and short_name(n.target) == "embedding"]
    found = [n.args[0].meta["val"].shape[0] for n in tables if _input_of(n.args[1]) is x]
    return int(min(found)) if found else MASK


def answers(c: Capture, x: torch.fx.Node, value: Any, f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """f of the whole numbers that node x has, as real numbers."""
    source = _input_of(x)
    if source is None or not isinstance(value, str):
        return value
    if x is source:
        table = f(torch.arange(_rows(x))).to(torch.float32)[:, None]
        found = c.emit("Gather", [Known(table), value], axis=0)
        return c.emit("Squeeze", [found, c.net.whole(len(c.shape(x)))])
    before = answers(c, x.args[0], c.env[x.args[0]], f)
    if short_name(x.target) in ("to", "_to_copy", "clone", "contiguous", "alias"):
        return before
    arguments = c._arguments(x)
    return OPERATORS[short_name(x.target)](c, x, **{**arguments, "self": before})


def real(c: Capture, x: Any, value: Any) -> Any:
    """The value of node x as real numbers; others than whole ones of an input are already."""
    return answers(c, x, value, lambda ids: ids) if is_whole(x) and isinstance(value, str) else value
