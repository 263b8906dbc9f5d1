"""How the numbers of a Keras variable lie in the file: reshaped, turned, reshaped again.

    conv kernel       (h, w, in, out)        turned to (out, in, h, w)
    attention         (in, heads, size)      as a matrix (in, heads size)
    dense behind a    (h w c, units)         seen as (h, w, c, units), turned to (c, h, w, units), a matrix again:
    flatten                                  Keras flattens with channels last, the C library with channels first

Every step has an inverse, so what was trained goes back to the number.

    >>> import numpy as np
    >>> kernel = np.arange(24.).reshape(12, 2)
    >>> of = Layout((12, 2), (2, 2, 3, 2), (2, 0, 1, 3), (12, 2))
    >>> of.to_file(kernel)[:4, 0].tolist()                   # one channel, all pixels
    [0.0, 6.0, 12.0, 18.0]
    >>> bool((of.to_framework(of.to_file(kernel)) == kernel).all())
    True
"""
from __future__ import annotations

import dataclasses
from typing import Sequence, Tuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Layout:
    keras: Tuple[int, ...]        # the variable's shape
    seen: Tuple[int, ...]         # the same numbers, with axes that can be turned
    permutation: Tuple[int, ...]  # of `seen`
    file: Tuple[int, ...]         # the shape in the file

    def to_file(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.seen).transpose(self.permutation).reshape(self.file)

    def to_framework(self, array: np.ndarray) -> np.ndarray:
        turned = tuple(self.seen[i] for i in self.permutation)
        return array.reshape(turned).transpose(np.argsort(self.permutation)).reshape(self.keras)


def plain(shape: Sequence[int]) -> Layout:
    """As Keras has it."""
    shape = tuple(shape)
    return Layout(shape, shape, tuple(range(len(shape))), shape)


def turned(shape: Sequence[int], permutation: Sequence[int]) -> Layout:
    shape, permutation = tuple(shape), tuple(permutation)
    return Layout(shape, shape, permutation, tuple(shape[i] for i in permutation))


def reshaped(shape: Sequence[int], file: Sequence[int]) -> Layout:
    shape = tuple(shape)
    return Layout(shape, shape, tuple(range(len(shape))), tuple(file))
