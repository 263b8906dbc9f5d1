"""Layers with windows: convolutions, pools; and those that pad, crop or resize.

Keras' "same" padding depends on the size of the input, and an odd pixel goes to the end: pads are computed here, and
the file has them as numbers.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import keras

from .context import Context, layer, space_of
from .layout import Layout, turned
from .points import activate
from .value import Value


def same_pads(size: int, kernel: int, stride: int, dilation: int = 1) -> Tuple[int, int]:
    """Zeros before and after an axis.

    >>> same_pads(224, 7, 2), same_pads(5, 2, 1), same_pads(4, 1, 2)
    ((2, 3), (0, 1), (0, 0))
    """
    outputs, reach = -(-size // stride), (kernel - 1) * dilation + 1
    total = max((outputs - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _pads(c: Context, op: Any, space: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
          dilations: Sequence[int]) -> List[int]:
    """As ONNX has them: all beginnings, then all ends."""
    if op.padding == "valid":
        return [0] * (2 * len(space))
    if op.padding == "causal":
        return [(k - 1) * d for k, d in zip(kernel, dilations)] + [0] * len(space)
    if op.padding != "same":
        c.refuse(f"padding={op.padding!r}", "use 'valid' or 'same'")
    both = [same_pads(*of) for of in zip(space, kernel, strides, dilations)]
    return [low for low, _ in both] + [high for _, high in both]


# ---- convolutions

def _kernel_layout(shape: Sequence[int]) -> Layout:
    """(h, w, in, out) -> (out, in, h, w)"""
    n = len(shape) - 2
    return turned(shape, (n + 1, n, *range(n)))


def _depthwise_layout(shape: Sequence[int]) -> Layout:
    """(h, w, in, times) -> (in times, 1, h, w)"""
    n = len(shape) - 2
    shape = tuple(shape)
    return Layout(shape, shape, (n, n + 1, *range(n)), (shape[n] * shape[n + 1], 1, *shape[:n]))


def _conv(c: Context, op: Any, x: Value, kernel: str, bias: Optional[Any], groups: int) -> Value:
    taps, strides, dilations = (list(v) for v in (op.kernel_size, op.strides, op.dilation_rate))
    pads = _pads(c, op, space_of(x, op.data_format), taps, strides, dilations)
    inputs = [c.channels(x, op.data_format), kernel] + ([c.weight(bias)] if bias is not None else [])
    y = c.emit("Conv", inputs, kernel_shape=taps, strides=strides, dilations=dilations, group=groups, pads=pads)
    return c.of_channels(y, c.output_shape(x.shape), op.data_format)


@layer("Conv1D", "Conv2D", "Conv3D")
def _plain_conv(c: Context, op: Any, x: Value) -> Value:
    if getattr(op, "lora_enabled", False) or getattr(op, "quantization_mode", None):
        c.refuse("LoRA or quantised weights", "merge them into the kernel first")
    kernel = c.weight(op.kernel, _kernel_layout(op.kernel.shape))
    return activate(c, _conv(c, op, x, kernel, op.bias if op.use_bias else None, op.groups), op.activation)


def _channels_of(x: Value, data_format: str) -> int:
    return x.shape[-1 if data_format == "channels_last" else 1]


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def _depthwise(c: Context, op: Any, x: Value) -> Value:
    kernel = c.weight(op.kernel, _depthwise_layout(op.kernel.shape))
    groups = _channels_of(x, op.data_format)
    return activate(c, _conv(c, op, x, kernel, op.bias if op.use_bias else None, groups), op.activation)


@layer("SeparableConv1D", "SeparableConv2D")
def _separable(c: Context, op: Any, x: Value) -> Value:
    kernel, last = op.depthwise_kernel, op.data_format == "channels_last"
    groups = _channels_of(x, op.data_format)
    deep = _conv(c, op, x, c.weight(kernel, _depthwise_layout(kernel.shape)), None, groups)
    point = c.weight(op.pointwise_kernel, _kernel_layout(op.pointwise_kernel.shape))
    inputs = [deep.first() if last else deep.keras(), point] + ([c.weight(op.bias)] if op.use_bias else [])
    y = c.of_channels(c.emit("Conv", inputs), c.output_shape(x.shape), op.data_format)
    return activate(c, y, op.activation)


def transpose_crops(kernel: int, stride: int, dilation: int, padding: str, output_padding: Optional[int]) -> Tuple[int, int]:
    """Outputs of the full transposed convolution, (inputs - 1) stride + reach, that are cut off before and after; a
    negative number: that many zeros are added. Keras' rule: "same" makes stride outputs of each input, and cuts the
    smaller half in front.

    >>> transpose_crops(3, 2, 1, "same", None), transpose_crops(2, 2, 1, "valid", None), transpose_crops(1, 2, 1, "valid", None)
    ((0, 1), (0, 0), (0, -1))
    """
    reach = (kernel - 1) * dilation + 1
    if padding == "valid":
        extra = max(reach, stride) - reach if output_padding is None else output_padding
        return 0, -extra
    total = stride + reach - 2 if output_padding is None else reach + reach % 2 - 2 + output_padding
    low = min(total // 2 + total % 2, reach - 1)
    return reach - 1 - low, reach - 1 - (total - low)


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def _conv_transpose(c: Context, op: Any, x: Value) -> Value:
    n = len(op.kernel_size)
    extra = op.output_padding if op.output_padding is not None else (None,) * n
    extra = (extra,) * n if isinstance(extra, int) else extra
    crops = [transpose_crops(k, s, d, op.padding, e)
             for k, s, d, e in zip(op.kernel_size, op.strides, op.dilation_rate, extra)]
    kernel = c.weight(op.kernel, turned(op.kernel.shape, (n + 1, n, *range(n))))
    inputs = [c.channels(x, op.data_format), kernel] + ([c.weight(op.bias)] if op.use_bias else [])
    y = c.emit("ConvTranspose", inputs, kernel_shape=list(op.kernel_size), strides=list(op.strides),
               dilations=list(op.dilation_rate), group=getattr(op, "groups", 1) or 1,
               pads=[low for low, _ in crops] + [max(high, 0) for _, high in crops],
               output_padding=[max(-high, 0) for _, high in crops])
    return activate(c, c.of_channels(y, c.output_shape(x.shape), op.data_format), op.activation)


# ---- pools

def _pool(c: Context, op: Any, x: Value, kind: str) -> Value:
    size, strides = list(op.pool_size), list(op.strides)
    pads = _pads(c, op, space_of(x, op.data_format), size, strides, [1] * len(size))
    name, rest = c.channels(x, op.data_format), {}
    uneven = pads[:len(size)] != pads[len(size):]
    if kind == "AveragePool" and uneven and keras.backend.backend() == "torch":
        # Keras repeats the border there, and takes the mean of what it repeated; other back ends leave it out.
        name = c.emit("Pad", [name, c.net.whole(0, 0, *pads[:len(size)], 0, 0, *pads[len(size):])], mode="edge")
        pads = [0] * len(pads)
    if kind == "AveragePool":
        rest = {"count_include_pad": 0}
    y = c.emit(kind, [name], kernel_shape=size, strides=strides, pads=pads, **rest)
    return c.of_channels(y, c.output_shape(x.shape), op.data_format)


@layer("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
def _max_pool(c: Context, op: Any, x: Value) -> Value:
    return _pool(c, op, x, "MaxPool")


@layer("AveragePooling1D", "AveragePooling2D", "AveragePooling3D")
def _average_pool(c: Context, op: Any, x: Value) -> Value:
    return _pool(c, op, x, "AveragePool")


def _global(c: Context, op: Any, x: Value, kind: str) -> Value:
    if c.masks.get(id(x)) is not None:
        c.refuse("a pool over tokens of which some are masked", "use mask_zero=False, or pool without a mask")
    y, shape = c.emit(kind, [c.channels(x, op.data_format)]), c.output_shape(x.shape)
    if op.keepdims:
        return c.of_channels(y, shape, op.data_format)
    return c.made(c.emit("Flatten", [y]), "keras", shape)


@layer("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D")
def _global_average(c: Context, op: Any, x: Value) -> Value:
    return _global(c, op, x, "GlobalAveragePool")


@layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D")
def _global_max(c: Context, op: Any, x: Value) -> Value:
    return _global(c, op, x, "GlobalMaxPool")


# ---- pads, crops, sizes

def _edges(of: Any, count: int) -> List[Tuple[int, int]]:
    """((1, 2), (0, 0)), or (1, 2) of one axis.

    >>> _edges((1, 2), 1), _edges(((1, 2), (0, 3)), 2)
    ([(1, 2)], [(1, 2), (0, 3)])
    """
    return [tuple(of)] if count == 1 and isinstance(of[0], int) else [tuple(p) for p in of]


@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def _zero_padding(c: Context, op: Any, x: Value) -> Value:
    edges = _edges(op.padding, x.rank - 2)
    pads = c.net.whole(0, 0, *(low for low, _ in edges), 0, 0, *(high for _, high in edges))
    y = c.emit("Pad", [c.channels(x, op.data_format), pads])
    return c.of_channels(y, c.output_shape(x.shape), op.data_format)


@layer("Cropping1D", "Cropping2D", "Cropping3D")
def _cropping(c: Context, op: Any, x: Value) -> Value:
    data_format = getattr(op, "data_format", "channels_last")
    edges, space = _edges(op.cropping, x.rank - 2), space_of(x, data_format)
    begin, end = [low for low, _ in edges], [size - high for size, (_, high) in zip(space, edges)]
    axes = [2 + i for i in range(len(space))]
    y = c.emit("Slice", [c.channels(x, data_format), c.net.whole(*begin), c.net.whole(*end), c.net.whole(*axes)])
    return c.of_channels(y, c.output_shape(x.shape), data_format)


def resize(c: Context, name: str, size: Sequence[int], method: str) -> str:
    """To so many pixels, as Keras does it: half pixels, and the nearest one rounded down."""
    if method == "nearest":
        rest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif method == "bilinear":
        rest = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    else:
        c.refuse(f"interpolation={method!r}", "use 'nearest' or 'bilinear'")
    axes = list(range(2, 2 + len(size)))
    return c.emit("Resize", [name, "", "", c.net.whole(*size)], axes=axes, **rest)


@layer("UpSampling1D", "UpSampling2D", "UpSampling3D")
def _upsampling(c: Context, op: Any, x: Value) -> Value:
    data_format, size = getattr(op, "data_format", "channels_last"), op.size
    times = [size] * (x.rank - 2) if isinstance(size, int) else list(size)
    to = [n * t for n, t in zip(space_of(x, data_format), times)]
    y = resize(c, c.channels(x, data_format), to, getattr(op, "interpolation", "nearest"))
    return c.of_channels(y, c.output_shape(x.shape), data_format)


@layer("Resizing")
def _resizing(c: Context, op: Any, x: Value) -> Value:
    if op.antialias or op.crop_to_aspect_ratio or op.pad_to_aspect_ratio:
        c.refuse("antialias, crop_to_aspect_ratio or pad_to_aspect_ratio", "resize images before training")
    y = resize(c, c.channels(x, op.data_format), [op.height, op.width], op.interpolation)
    return c.of_channels(y, c.output_shape(x.shape), op.data_format)
