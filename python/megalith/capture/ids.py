"""Which whole numbers a network knows of an input: those that its tables have rows for.

Ids of an embedding and masks of whole numbers are looked up in tables (aten/whole.py, keras/tokens.py). For a number without a row the
library has zeros or NaN, which neither the loss nor the output may show.
"""
from __future__ import annotations

from typing import Dict, Mapping

import numpy as np

from .._library import BadData
from ..net import Net

MOVES = ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Identity", "Cast")


def rows(net: Net) -> Dict[str, int]:
    """Of each input of whole numbers that is looked up: how many rows its smallest table has.

    >>> net = Net()
    >>> wide = net.emit("Unsqueeze", [net.add_input("ids", (None, 4), "int64"), net.whole(1)])
    >>> _ = net.emit("Gather", [net.constant(np.zeros((9, 2))), wide], axis=0)
    >>> rows(net)
    {'ids': 9}
    """
    of = {p.name: p.name for p in net.inputs if not p.dtype.startswith("float")}
    found: Dict[str, int] = {}
    for node in net.nodes:
        if node.op in MOVES and node.inputs[0] in of:
            of[node.outputs[0]] = of[node.inputs[0]]
        if node.op == "Gather" and node.inputs[1] in of and node.inputs[0] in net.weights:
            name, count = of[node.inputs[1]], net.weights[node.inputs[0]].shape[0]
            found[name] = min(found.get(name, count), count)
    return found


def check_ids(known: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> None:
    """
    >>> check_ids({"ids": 9}, {"ids": np.array([0, 8])})
    """
    for name, count in known.items():
        a = arrays[name]
        if a.size and not 0 <= a.min() <= a.max() < count:
            bad = a[(a < 0) | (a >= count)]
            raise BadData(f"the input '{name}' has {int(bad[0])}, but the network knows its whole numbers 0 to {count - 1}, the rows of its "
                          "tables: mend the data, or hand in what is computed of other numbers (a mask) in their place")
