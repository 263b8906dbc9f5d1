"""Whole numbers that are data. The library knows them as ids, which name rows of a table, and so a table has whatever is
computed of them: attention masks of 0 and 1, `ids != 0`."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ..export import short_name
from ..torch import OPERATORS, Capture, Known

MOVES = ("unsqueeze", "squeeze", "view", "reshape", "expand", "transpose", "permute", "slice", "select", "contiguous", "alias",
         "clone", "to", "_to_copy")
BOOL = 9  # of ONNX
ROWS = 4096  # of tables for numbers that are nobody's ids: masks, segments, steps of time. Data beyond them is refused (ids.py)
LARGEST = 1 << 20
RELATIONS = ("lt", "le", "gt", "ge", "eq", "ne")


def is_whole(x: Any) -> bool:
    """Is it a node whose value has whole numbers? (Truth values are not: masks are real numbers here.)"""
    val = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    return isinstance(val, torch.Tensor) and not val.is_floating_point() and val.dtype != torch.bool


def _outside(c: Capture, x: torch.fx.Node) -> torch.fx.Node:
    """What a placeholder of a graph within the graph (no_grad) stands for."""
    while x in c.given:
        x = c.given[x]
    return x


def input_of(c: Capture, x: torch.fx.Node) -> Optional[torch.fx.Node]:
    """The network's input that was only moved about to make x; None: it was computed, and is a real number by now."""
    x = _outside(c, x)
    while x.op == "call_function" and short_name(x.target) in MOVES and is_whole(x.args[0]):
        x = _outside(c, x.args[0])
    return x if x.op == "placeholder" and c.is_input(x) else None


def _rows(c: Capture, x: torch.fx.Node) -> int:
    """Of the table that the input's numbers are ids of; without one, more than any number that they are compared with."""
    calls = [n for n in c.calls if n.args and isinstance(n.args[0], torch.fx.Node)]
    tables = [n for n in calls if short_name(n.target) == "embedding" and input_of(c, n.args[1]) is x]
    if tables:
        return int(min(n.args[0].meta["val"].shape[0] for n in tables))
    numbers = [n for n in calls if short_name(n.target) in RELATIONS and isinstance(n.args[1], (int, float)) and is_whole(n.args[0])]
    return int(max([ROWS, *(n.args[1] + 2 for n in numbers if n.args[1] < LARGEST and input_of(c, n.args[0]) is x)]))


def _looked_up(c: Capture, x: torch.fx.Node, table: torch.Tensor) -> Any:
    """Of each whole number that node x has its entry of the table, as x was made of the network's input."""
    inner, x = x, _outside(c, x)
    if x.op == "placeholder":
        found = c.emit("Gather", [Known(table.to(torch.float32)[:, None]), c.env[x]], axis=0)
        return c.emit("Squeeze", [found, c.net.whole(len(c.shape(inner)))])
    before = _looked_up(c, x.args[0], table)
    if short_name(x.target) in ("to", "_to_copy", "clone", "contiguous", "alias"):
        return before
    return OPERATORS[short_name(x.target)](c, x, **{**c._arguments(x), "self": before})


def real(c: Capture, x: Any, value: Any) -> Any:
    """The value of node x as real numbers; others than whole ones of an input are already."""
    source = input_of(c, x) if is_whole(x) and isinstance(value, str) and value == c.env[x] else None
    return value if source is None else _looked_up(c, x, torch.arange(_rows(c, source)))


def truth(c: Capture, x: Any, value: Any) -> Any:
    """Is it not zero? As a mask, which comparisons and masks are already."""
    if not isinstance(x, torch.fx.Node) or not isinstance(value, str) or x.meta["val"].dtype == torch.bool:
        return value
    source = input_of(c, x) if is_whole(x) else None
    return c.emit("Cast", [value], to=BOOL) if source is None else _looked_up(c, x, torch.arange(_rows(c, source)) != 0)


def compared(c: Capture, x: torch.fx.Node, relation: str, number: Any) -> Any:
    """A comparison of an input's whole numbers with one number. One that has the same answer for all that there can be was written for
    others: `ids != -1`."""
    source = input_of(c, x)
    assert source is not None
    rows = _rows(c, source)
    answers = getattr(torch.arange(rows), relation)(number)
    if bool((answers == answers[0]).all()):
        raise c.refuse(f"it compares whole numbers of the input '{source.name}' with {number}, but those are 0 to {rows - 1} here: "
                       "shift them so that none is negative, or hand in the mask as an input")
    return _looked_up(c, x, answers)
