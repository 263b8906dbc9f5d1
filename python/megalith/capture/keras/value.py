"""A tensor of the captured network, in the orders in which it is at hand.

Keras has channels last, the operators of the C library have them first. A value knows its shape as Keras has it, and
up to three names of the net, made when first asked for:

    keras    (n, h, w, c)    Reshape, MatMul, LayerNormalization, ...
    first    (n, c, h, w)    Conv, pools, BatchNormalization, ...
    flat     (n, c h w)      what Flatten leaves: a Dense behind it turns its kernel instead of the data

The C library reads a Transpose of the last axis to the front as a remark, so going to and fro costs nothing there.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np

from ...net import Net

KERAS, FIRST, FLAT = "keras", "first", "flat"


def to_first(rank: int) -> Tuple[int, ...]:
    """
    >>> to_first(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> Tuple[int, ...]:
    """
    >>> to_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


class Value:
    def __init__(self, net: Net, shape: Sequence[Optional[int]], dtype: str = "float32", **names: str):
        self.net, self.shape, self.dtype = net, tuple(shape), dtype
        self.names: Dict[str, str] = dict(names)
        self.number: Optional[np.ndarray] = None          # of a constant
        self.pixels: Optional[Tuple[int, ...]] = None     # of a flat one: what was flattened, (h, w, c)
        self.is_weight = False                            # a variable that stands among data

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_data(self) -> bool:
        return self.number is None and not self.is_weight

    @property
    def order(self) -> str:
        """The one that is at hand."""
        return next((k for k in (KERAS, FIRST, FLAT) if k in self.names), KERAS)

    def _turn(self, name: str, permutation: Sequence[int]) -> str:
        return self.net.emit("Transpose", [name], perm=list(permutation))

    def _unflatten(self) -> str:
        assert self.pixels is not None
        *space, channels = self.pixels
        x = self.net.emit("Reshape", [self.names[FLAT], self.net.whole(0, channels, *space)])
        return self.net.emit("Flatten", [self._turn(x, to_last(len(self.pixels) + 1))])

    def keras(self) -> str:
        if KERAS in self.names:
            return self.names[KERAS]
        if self.number is not None:
            name = self.net.constant(self.number)
        elif FIRST in self.names:
            name = self._turn(self.names[FIRST], to_last(self.rank))
        else:
            name = self._unflatten()
        self.names[KERAS] = name
        return name

    def first(self) -> str:
        """With channels at place 1. Of two axes the last is there already."""
        if self.rank < 3:
            return self.keras()
        if FIRST not in self.names:
            self.names[FIRST] = self._turn(self.keras(), to_first(self.rank))
        return self.names[FIRST]

    def at(self, order: str) -> str:
        if order == FLAT:
            return self.names[FLAT]
        return self.first() if order == FIRST else self.keras()

    def like(self, name: str, order: str, shape: Optional[Sequence[Optional[int]]] = None) -> "Value":
        """Another value, in this order; of the same shape, unless one is given."""
        y = Value(self.net, self.shape if shape is None else shape, self.dtype, **{order: name})
        y.pixels = self.pixels if order == FLAT else None
        return y

    def map(self, function: Callable[[str], str]) -> "Value":
        """Of a function of single numbers: whichever order is at hand."""
        return self.like(function(self.at(self.order)), self.order)


def constant(net: Net, array: Any) -> Value:
    """Numbers that no training changes; they get a name when somebody asks for one."""
    array = np.asarray(array)
    v = Value(net, array.shape, str(array.dtype))
    v.number = array
    return v
