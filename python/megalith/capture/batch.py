"""A network is one for every size of the batch: the exported program is translated for two of them, and what differs is refused.

Extents are all that may depend on the batch: those that Reshape, Expand and Resize are given, in which it occurs once. Any other
number that is not the same twice, 1 / x.shape[0] or the sum of torch.ones(x.shape[0]), would be that of one size for good.
"""
from __future__ import annotations

import math
from typing import Any, List, Tuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..net import CONSTANT, CaptureError, Net, Node
from .export import PRIMES

BATCH = ("it computes with the batch size, which a plan cuts as it likes: do that in the loss, or use a number that is fixed")
ITEM = "a number is taken out of a tensor (.item()), so that there is no one network: compute with the tensor itself"
EXTENTS = {"Reshape": 1, "Expand": 1, "Resize": 3}  # which input has them


def batch_of(size: Any, batch: int) -> Any:
    """The number that a formula of PyTorch has for this batch; without a hint it is one that data says."""
    if not size.node.has_hint():
        raise CaptureError(ITEM)
    value = size.node.expr.subs({symbol: batch for symbol in size.node.expr.free_symbols})
    return int(value) if isinstance(size, torch.SymInt) else float(value)


def all_nodes(program: torch.export.ExportedProgram) -> List[torch.fx.Node]:
    """Those of graphs within the graph, too."""
    return [n for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes]


def two_batches(program: torch.export.ExportedProgram) -> Tuple[int, int]:
    """Two numbers that no extent of the program has."""
    values = [n.meta.get("val") for n in all_nodes(program)]
    seen = {d for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor) for d in v.shape if isinstance(d, int)}
    first, second = [p for p in PRIMES if p not in seen][:2]
    return first, second


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _same_extents(a: np.ndarray, b: np.ndarray, one: int, other: int) -> bool:
    """The same, or with the batch in one of them, once."""
    if a.shape != b.shape:
        return False
    pairs = [(int(x), int(y)) for x, y in zip(a.ravel(), b.ravel())]
    each = all(x == y or x * other == y * one for x, y in pairs)
    return each and math.prod(x for x, _ in pairs) * other == math.prod(y for _, y in pairs) * one


def _same_input(nets: Tuple[Net, Net], op: str, i: int, name: str) -> bool:
    a, b = (net.weights.get(name) for net in nets)
    if a is None or b is None or a.kind != CONSTANT or a.array is None or b.array is None:
        return a is b or (a is not None and b is not None and a.kind == b.kind)
    return _alike(a.array, b.array) or (EXTENTS.get(op) == i and _same_extents(a.array, b.array, nets[0].batch, nets[1].batch))


def _same_node(nets: Tuple[Net, Net], a: Node, b: Node) -> bool:
    return a == b and all(_same_input(nets, a.op, i, name) for i, name in enumerate(a.inputs))


def check_same(one: Net, other: Net) -> None:
    """Raises where two translations differ in more than extents."""
    different = [a for a, b in zip(one.nodes, other.nodes) if not _same_node((one, other), a, b)]
    if different or len(one.nodes) != len(other.nodes):
        where = (different[0].scope if different else "") or "forward"
        raise CaptureError(f"{one.name} cannot be captured:\n  {where}: {BATCH}")
