"""LSTM and GRU: layers, in one direction or both.

    x (n, steps, features) -> MatMul weight_ih, Add bias_ih -> gates (n, gates * units, steps) -> lstm or gru, ours, with
    weight_hh, bias_hh -> h of all steps (n, units, steps)

Two directions are two such, joined on units; the next layer reads both. States that are given lie behind the gates, spread
over all steps: the operator takes those of its first one.
"""
from __future__ import annotations

import dataclasses
from typing import Any, List

import torch

from ..torch import Capture, Known, operator
from .norms import drop


@dataclasses.dataclass
class Cell:
    """The operator, and what all of its layers share."""

    op: str
    gates: int
    steps: int
    units: int
    bias: bool
    states: List[Any]  # (layers * directions, n, units) each; none: zeros


def _weights(params: List[Any], bias: bool) -> List[List[Any]]:
    """weight_ih, weight_hh, bias_ih, bias_hh of one layer and direction after the other."""
    each = 4 if bias else 2
    return [[*params[i:i + each], None, None][:4] for i in range(0, len(params), each)]


def _first_state(c: Capture, cell: Cell, state: Any, at: int) -> Any:
    """(n, units, steps): entry `at` of a state that is given, spread."""
    one = c.emit("Gather", [state, Known(torch.tensor(at))], axis=0)
    wide = c.emit("Unsqueeze", [one, c.net.whole(2)])
    return c.emit("Expand", [wide, c.net.whole(c.batch, cell.units, cell.steps)])


def _direction(c: Capture, cell: Cell, x: Any, weights: List[Any], at: int, reverse: bool) -> Any:
    """One layer in one direction: (n, steps, features) to (n, units, steps)."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    gates = c.emit("MatMul", [x, c.emit("Transpose", [weight_ih], perm=[1, 0])])
    if bias_ih is not None:
        gates = c.emit("Add", [gates, bias_ih])
    gates = c.emit("Transpose", [gates], perm=[0, 2, 1])
    words = f"units={cell.units} reverse={int(reverse)}"
    if bias_hh is None:
        words += " bias=0"
    if cell.states:
        gates = c.emit("Concat", [gates, *[_first_state(c, cell, s, at) for s in cell.states]], axis=1)
        words += " states=1"
    return c.emit(cell.op, [gates, weight_hh, *([] if bias_hh is None else [bias_hh])], domain="megalith", words=words)


def _last_states(c: Capture, found: List[Any], directions: int, steps: int) -> Any:
    """(layers * directions, n, units): h of the step that each took last."""
    def last(y: Any, i: int) -> Any:
        at = Known(torch.tensor([0 if i % directions else steps - 1]))
        return c.emit("Transpose", [c.emit("Gather", [y, at], axis=2)], perm=[0, 2, 1])
    each = [last(y, i) for i, y in enumerate(found)]
    whole = each[0] if len(each) == 1 else c.emit("Concat", each, axis=1)
    return c.emit("Transpose", [whole], perm=[1, 0, 2])


def _run(c: Capture, n: torch.fx.Node, cell: Cell, x: Any, weights: List[List[Any]], dropout: float, directions: int) -> List[Any]:
    """[output, last states], with the batch in front."""
    found: List[Any] = []
    for layer in range(0, len(weights), directions):
        if layer and dropout:
            x = drop(c, x, dropout)
        sides = [_direction(c, cell, x, weights[layer + i], layer + i, bool(i)) for i in range(directions)]
        found += sides
        both = sides[0] if directions == 1 else c.emit("Concat", sides, axis=1)
        x = c.emit("Transpose", [both], perm=[0, 2, 1])
    return [x, _last_states(c, found, directions, cell.steps)]


def _states(hx: List[Any]) -> List[Any]:
    """Those that are not zeros."""
    known = all(isinstance(s, Known) and not bool(s.tensor.any()) for s in hx)
    return [] if known else hx


def recurrent(op: str, gates: int) -> Any:
    def f(c: Capture, n: torch.fx.Node, input: Any, hx: Any, params: List[Any], has_biases: bool, num_layers: int, dropout: float,
          train: bool, bidirectional: bool, batch_first: bool) -> Any:
        directions, shape = 1 + bool(bidirectional), c.shape(n.args[0])
        if len(params) != num_layers * directions * (4 if has_biases else 2):
            raise c.refuse("proj_size is not supported: put a linear layer behind it")
        if op == "lstm" and any(u.args[1] == 2 and u.users for u in n.users):
            raise c.refuse("the state of the cells behind the last step (c_n) is not known here: use the output, or h_n")
        units = c.shape(n.args[2][1])[1]
        cell = Cell(op, gates, shape[1 if batch_first else 0], units, has_biases,
                    _states(hx if isinstance(hx, list) else [hx]))
        x = input if batch_first else c.emit("Transpose", [input], perm=[1, 0, 2])
        y, last = _run(c, n, cell, x, _weights(params, has_biases), dropout if train else 0.0, directions)
        return [y if batch_first else c.emit("Transpose", [y], perm=[1, 0, 2]), last, None]
    return f


operator("lstm")(recurrent("lstm", 4))
operator("gru")(recurrent("gru", 3))
