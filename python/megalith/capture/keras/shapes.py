"""Layers and operations that move numbers about: flatten, reshape, permute, concatenate, slices; means and sums."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .context import Context, layer, operation
from .value import FIRST, FLAT, KERAS, Value


@layer("Flatten")
def _flatten(c: Context, op: Any, x: Value) -> Value:
    """With channels first, where they are so already: whoever comes next turns its weights, or asks for Keras' order."""
    shape = (None, math.prod(x.shape[1:]))
    if x.rank == 2:
        return x
    if op.data_format == "channels_first":  # Keras turns such data to channels last before it flattens
        last = c.emit("Transpose", [x.keras()], perm=[0, *range(2, x.rank), 1])
        return c.made(c.emit("Flatten", [last]), KERAS, shape, x.dtype)
    if x.order != FIRST:
        return c.made(c.emit("Flatten", [x.keras()]), KERAS, shape, x.dtype)
    one = x.shape[-1] == 1 or math.prod(x.shape[1:-1]) == 1  # both orders are the same
    y = c.made(c.emit("Flatten", [x.first()]), KERAS if one else FLAT, shape, x.dtype)
    y.pixels = tuple(x.shape[1:])
    return y


def reshape(c: Context, x: Value, shape: Sequence[Optional[int]]) -> Value:
    """Where the last axis stays what it is, channels stay in front."""
    shape = tuple(shape)
    if shape == x.shape:
        return x
    if shape[0] is not None and shape[0] != -1:
        c.refuse(f"a new shape {shape} that names the batch", "write -1 for the batch")
    rest = _resolve(c, x.shape[1:], shape[1:])
    if rest[-1:] == x.shape[-1:] and x.order == FIRST and len(rest) > 1:
        name = c.emit("Reshape", [x.first(), c.net.whole(0, rest[-1], *rest[:-1])])
        return c.made(name, FIRST, (None, *rest), x.dtype)
    name = c.emit("Reshape", [x.keras(), c.net.whole(0, *rest)])
    return c.made(name, KERAS, (None, *rest), x.dtype)


def _resolve(c: Context, old: Sequence[int], new: Sequence[int]) -> tuple:
    if not new:
        c.refuse("a new shape without an axis behind the batch", "keep one")
    known = math.prod(d for d in new if d not in (-1, None))
    return tuple(math.prod(old) // known if d in (-1, None) else d for d in new)


@layer("Reshape")
def _reshape(c: Context, op: Any, x: Value) -> Value:
    return reshape(c, x, c.output_shape(x.shape))


@operation("Reshape")
def _reshape_op(c: Context, op: Any, x: Value) -> Value:
    new = tuple(op.newshape)
    if new and isinstance(new[0], int) and new[0] > 0:
        c.refuse(f"keras.ops.reshape to {new}", "write -1 for the batch")
    return reshape(c, x, (None, *new[1:]))


def transpose(c: Context, x: Value, axes: Sequence[int]) -> Value:
    axes = [a % x.rank for a in axes]
    if axes[0] != 0:
        c.refuse(f"axes={tuple(axes)} move the batch", "keep it the first axis")
    shape = tuple(x.shape[a] for a in axes)
    return c.made(c.emit("Transpose", [x.keras()], perm=axes), KERAS, shape, x.dtype)


@layer("Permute")
def _permute(c: Context, op: Any, x: Value) -> Value:
    return transpose(c, x, (0, *op.dims))


@operation("Transpose")
def _transpose(c: Context, op: Any, x: Value) -> Value:
    return transpose(c, x, op.axes or range(x.rank)[::-1])


def concatenate(c: Context, xs: Sequence[Value], axis: int) -> Value:
    axis = axis % xs[0].rank
    if axis == 0:
        c.refuse("axis=0 joins batches", "use another axis")
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    front = axis == xs[0].rank - 1 and xs[0].rank > 2 and any(x.order == FIRST for x in xs)
    name = c.emit("Concat", [x.first() if front else x.keras() for x in xs], axis=1 if front else axis)
    return c.made(name, FIRST if front else KERAS, shape, xs[0].dtype)


@layer("Concatenate")
def _concatenate(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return concatenate(c, xs, op.axis)


@operation("Concatenate")
def _concatenate_op(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return concatenate(c, xs, op.axis)


@layer("RepeatVector")
def _repeat(c: Context, op: Any, x: Value) -> Value:
    one = c.emit("Unsqueeze", [x.keras(), c.net.whole(1)])
    name = c.emit("Expand", [one, c.net.whole(1, op.n, 1)])
    return c.made(name, KERAS, (None, op.n, x.shape[1]), x.dtype)


@operation("ExpandDims")
def _expand_dims(c: Context, op: Any, x: Value) -> Value:
    axes = op.axis if isinstance(op.axis, (list, tuple)) else [op.axis]
    axes = sorted(a % (x.rank + len(axes)) for a in axes)
    shape: List[Optional[int]] = list(x.shape)
    for a in axes:
        shape.insert(a, 1)
    return c.made(c.emit("Unsqueeze", [x.keras(), c.net.whole(*axes)]), KERAS, shape, x.dtype)


@operation("Squeeze")
def _squeeze(c: Context, op: Any, x: Value) -> Value:
    axes = op.axis if isinstance(op.axis, (list, tuple)) else [op.axis]
    if op.axis is None:
        axes = [i for i, d in enumerate(x.shape) if i and d == 1]
    return reshape(c, x, [d for i, d in enumerate(x.shape) if i not in [a % x.rank for a in axes]])


@operation("GetItem")
def _get_item(c: Context, op: Any, x: Value, key: Any) -> Value:
    """x[:, 0], x[..., 1:3]; not of the batch."""
    key = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in key:
        at = key.index(Ellipsis)
        key[at:at + 1] = [slice(None)] * (x.rank - len(key) + 1)
    key += [slice(None)] * (x.rank - len(key))
    if key[0] != slice(None) or not all(isinstance(k, (int, slice)) for k in key):
        c.refuse(f"[{key}] takes a part of the batch, or is no slice", "slice other axes, by numbers")
    cuts = {i: k.indices(x.shape[i]) if isinstance(k, slice) else (k % x.shape[i], k % x.shape[i] + 1, 1)
            for i, k in enumerate(key) if k != slice(None)}
    name, shape = x.keras(), list(x.shape)
    if cuts:
        lists = [[cut[j] for cut in cuts.values()] for j in range(3)]
        if min(lists[2]) < 1:
            c.refuse("a slice that runs backwards", "use a step above 0")
        name = c.emit("Slice", [name, *(c.net.whole(*v) for v in (lists[0], lists[1], list(cuts), lists[2]))])
        for i, (begin, end, step) in cuts.items():
            shape[i] = len(range(begin, end, step))
    y = c.made(name, KERAS, shape, x.dtype)
    kept = [d for d, k in zip(shape, key) if isinstance(k, slice)]
    return reshape(c, y, kept) if len(kept) < x.rank else y


# ---- sums over axes

def _reduce(kind: str) -> Any:
    def run(c: Context, op: Any, x: Value) -> Value:
        axes = op.axis if isinstance(op.axis, (list, tuple)) else [op.axis]
        if op.axis is None or any(a % x.rank == 0 for a in axes):
            c.refuse("a sum or mean over the batch", "name other axes")
        axes = sorted(a % x.rank for a in axes)
        shape: Dict[int, Optional[int]] = {i: 1 if i in axes else d for i, d in enumerate(x.shape) if op.keepdims or i not in axes}
        name, order = x.keras(), KERAS
        if x.order == FIRST and axes == list(range(1, x.rank - 1)):  # all pixels
            name, axes, order = x.first(), list(range(2, x.rank)), FIRST if op.keepdims else KERAS
        y = c.emit(kind, [name, c.net.whole(*axes)], keepdims=int(bool(op.keepdims)))
        return c.made(y, order, shape.values(), x.dtype)
    return run


for _name, _kind in (("Mean", "ReduceMean"), ("Sum", "ReduceSum"), ("Max", "ReduceMax"), ("Min", "ReduceMin")):
    operation(_name)(_reduce(_kind))


# ---- masks

def _compare(kind: str) -> Any:
    def run(c: Context, op: Any, x1: Any, x2: Any) -> Value:
        both = [v if isinstance(v, Value) else c.constant(np.asarray(v)) for v in (x1, x2)]
        shape = max((v.shape for v in both), key=len)
        y = c.made(c.emit(kind, [v.keras() for v in both]), KERAS, shape, "bool")
        return y
    return run


for _name, _kind in (("Equal", "Equal"), ("Less", "Less"), ("LessEqual", "LessOrEqual"), ("Greater", "Greater"),
                     ("GreaterEqual", "GreaterOrEqual")):
    operation(_name)(_compare(_kind))


@operation("NotEqual")
def _not_equal(c: Context, op: Any, x1: Any, x2: Any) -> Value:
    if isinstance(x1, Value) and id(x1) in c.rows and not isinstance(x2, Value):
        return _other_ids(c, x1, x2)
    equal = _compare("Equal")(c, op, x1, x2)
    return c.made(c.emit("Not", [equal.keras()]), KERAS, equal.shape, "bool")


def _other_ids(c: Context, x: Value, number: Any) -> Value:
    """The mask of Embedding(mask_zero=True). Whole numbers are no data here but ids: a table has the answer for each."""
    rows = c.rows[id(x)]
    if number not in range(rows):
        c.refuse(f"whole numbers are compared with {number}, but those are 0 to {rows - 1} here",
                 "shift them so that none is negative, or hand in the mask as an input")
    table = np.ones((rows, 1), np.float32)
    table[int(number)] = 0
    found = c.emit("Gather", [c.net.constant(table), x.keras()], axis=0)
    return c.made(c.emit("Squeeze", [found, c.net.whole(x.rank)]), KERAS, x.shape, "float32")
