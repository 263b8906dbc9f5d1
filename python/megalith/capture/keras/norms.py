"""Normalisations, dropout, and fixed scales."""
from __future__ import annotations

from typing import Any

import numpy as np

from .context import Context, layer
from .layout import Layout
from .points import pair
from .value import FIRST, KERAS, Value


def _fixed(c: Context, size: int, number: float) -> str:
    return c.net.constant(np.full(size, number, np.float32))


def _channels_axis(c: Context, axis: Any, rank: int) -> str:
    """The order in which this axis is at place 1."""
    axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    if not isinstance(axis, int) or axis % rank not in (1, rank - 1):
        c.refuse(f"axis={axis}", "use the axis of channels, -1 or 1")
    return FIRST if axis % rank == rank - 1 and rank > 2 else KERAS


@layer("BatchNormalization")
def _batch_norm(c: Context, op: Any, x: Value) -> Value:
    if getattr(op, "renorm", False) or c.masks.get(id(x)) is not None:
        c.refuse("renorm, or a mask", "use BatchNormalization without either")
    order, size = _channels_axis(c, op.axis, x.rank), op.moving_mean.shape[0]
    if not (c.training and op.trainable):
        return _frozen_batch_norm(c, op, x)
    scale = c.weight(op.gamma) if op.scale else _fixed(c, size, 1)
    offset = c.weight(op.beta) if op.center else _fixed(c, size, 0)
    inputs = [x.at(order), scale, offset, c.weight(op.moving_mean), c.weight(op.moving_variance)]
    y, *_ = c.emit("BatchNormalization", inputs, outputs=3, epsilon=op.epsilon, momentum=op.momentum, training_mode=1,
                   notes={"megalith.running_var": "population"})
    return x.like(y, order)


def _along(axis: int, rank: int, array: np.ndarray) -> np.ndarray:
    shape = [1] * (rank - 1)
    shape[axis % rank - 1] = -1
    return array.reshape(shape)


def _frozen_batch_norm(c: Context, op: Any, x: Value) -> Value:
    """With statistics that stay: a scale and an offset for each channel. What is trained of them is a weight of its own."""
    mean, variance = (c.numbers(v).astype(np.float64) for v in (op.moving_mean, op.moving_variance))
    scale = 1 / np.sqrt(variance + op.epsilon)
    offset, trained = -mean * scale, [v for v in (op.gamma, op.beta) if v is not None and v.trainable]
    if trained:
        c.refuse("training=False with a scale or offset that is trained", "set trainable=False for the layer, too")
    if op.gamma is not None:
        scale, offset = scale * c.numbers(op.gamma), offset * c.numbers(op.gamma)
    if op.beta is not None:
        offset = offset + c.numbers(op.beta)
    axis = op.axis[0] if isinstance(op.axis, (list, tuple)) else op.axis
    y = pair(c, "Mul", x, c.constant(_along(axis, x.rank, scale)))
    return pair(c, "Add", y, c.constant(_along(axis, x.rank, offset)))


@layer("LayerNormalization")
def _layer_norm(c: Context, op: Any, x: Value) -> Value:
    axes = sorted(a % x.rank for a in (op.axis if isinstance(op.axis, (list, tuple)) else [op.axis]))
    if axes != list(range(x.rank - len(axes), x.rank)):
        c.refuse(f"axis={op.axis}", "use the last axis, or the last few")
    if getattr(op, "rms_scaling", False):
        c.refuse("rms_scaling", "use RMSNormalization")
    shape = [x.shape[a] for a in axes]
    scale = c.weight(op.gamma) if op.scale else c.net.constant(np.ones(shape, np.float32))
    inputs = [x.keras(), scale] + ([c.weight(op.beta)] if op.center else [])
    y = c.emit("LayerNormalization", inputs, axis=-len(axes), epsilon=op.epsilon)
    return x.like(y, KERAS)


@layer("GroupNormalization")
def _group_norm(c: Context, op: Any, x: Value) -> Value:
    order = _channels_axis(c, op.axis, x.rank)
    size = x.shape[op.axis]
    groups = size if op.groups == -1 else op.groups
    scale = c.weight(op.gamma) if op.scale else _fixed(c, size, 1)
    offset = c.weight(op.beta) if op.center else _fixed(c, size, 0)
    y = c.emit("GroupNormalization", [x.at(order), scale, offset], num_groups=groups, epsilon=op.epsilon)
    return x.like(y, order)


@layer("PReLU")
def _prelu(c: Context, op: Any, x: Value) -> Value:
    """Slopes as Keras has them, one for each number that is not shared: (h, w, c), (1, 1, c)."""


    shape = tuple(op.alpha.shape)
    if all(d == 1 for d in shape[:-1]):
        of = Layout(shape, shape, tuple(range(len(shape))), (shape[-1],) + (1,) * (len(shape) - 1))
        return x.like(c.emit("PRelu", [x.first(), c.weight(op.alpha, of)]), FIRST if x.rank > 2 else KERAS)
    n = len(shape)
    of = Layout(shape, shape, (n - 1, *range(n - 1)), (shape[-1], *shape[:-1]))
    return x.like(c.emit("PRelu", [x.first(), c.weight(op.alpha, of)]), FIRST if x.rank > 2 else KERAS)


# ---- dropout

def dropout(c: Context, x: Value, rate: float) -> Value:
    if not (c.training and rate > 0):
        return x
    return x.map(lambda name: c.emit("Dropout", [name, c.net.constant(float(rate)), c.net.constant(np.bool_(True))]))


def _drop_whole(c: Context, x: Value, rate: float, per: str) -> Value:
    """Whole channels or samples at once; the note says so to the C library, which draws the numbers."""
    if not (c.training and rate > 0):
        return x
    order = FIRST if x.rank > 2 else KERAS
    notes = {"megalith.op": "dropout", "megalith.words": f"rate={rate:.9g} per={per}"}
    return x.like(c.emit("Dropout", [x.at(order)], notes=notes), order)


@layer("Dropout")
def _dropout(c: Context, op: Any, x: Value) -> Value:
    if op.noise_shape is None:
        return dropout(c, x, op.rate)
    kept = [i for i, d in enumerate(op.noise_shape) if i and d != 1]
    if not kept:
        return _drop_whole(c, x, op.rate, "sample")
    if kept == [x.rank - 1]:
        return _drop_whole(c, x, op.rate, "channel")
    c.refuse(f"noise_shape={tuple(op.noise_shape)}", "use 1 for all axes but the batch, or but the batch and the last one")


@layer("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def _spatial_dropout(c: Context, op: Any, x: Value) -> Value:
    if getattr(op, "data_format", "channels_last") != "channels_last":
        c.refuse("data_format='channels_first'", "use channels_last")
    return _drop_whole(c, x, op.rate, "channel")


# ---- fixed scales

def _affine(c: Context, x: Value, scale: Any, offset: Any) -> Value:
    y = x
    if np.any(np.asarray(scale) != 1):
        y = pair(c, "Mul", y, c.constant(np.asarray(scale, np.float64)))
    if np.any(np.asarray(offset) != 0):
        y = pair(c, "Add", y, c.constant(np.asarray(offset, np.float64)))
    return y


@layer("Rescaling")
def _rescaling(c: Context, op: Any, x: Value) -> Value:
    return _affine(c, x, op.scale, op.offset)


@layer("Normalization")
def _normalization(c: Context, op: Any, x: Value) -> Value:
    """Mean and variance were found before training (adapt), and stay."""
    mean, deviation = c.numbers(op.mean).astype(np.float64), np.sqrt(c.numbers(op.variance).astype(np.float64))
    deviation = np.maximum(deviation, 1e-7)
    if op.invert:
        return _affine(c, x, deviation[0], mean[0])
    return _affine(c, x, (1 / deviation)[0], (-mean / deviation)[0])


