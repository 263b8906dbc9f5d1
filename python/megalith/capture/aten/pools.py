"""Pools, resizes, padding: windows without weights."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from ..torch import Capture, operator
from .layers import numbers


@operator("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(c: Capture, n: torch.fx.Node, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
             ceil_mode: bool) -> Any:
    count = len(c.shape(n.args[0])) - 2
    kernel = numbers(kernel_size, count)
    return c.emit("MaxPool", [self], kernel_shape=kernel, strides=numbers(stride, count) if stride else kernel,
                  pads=2 * numbers(padding, count), dilations=numbers(dilation, count), ceil_mode=int(ceil_mode))


@operator("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool_indices(c: Capture, n: torch.fx.Node, **arguments: Any) -> Any:
    if any(u.args[1] == 1 and u.users for u in n.users):
        raise c.refuse("the places of maxima (return_indices=True) are not supported: use a transposed convolution or "
                       "Upsample to go back")
    return [max_pool(c, n, **arguments), None]


@operator("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(c: Capture, n: torch.fx.Node, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
             count_include_pad: bool, divisor_override: Optional[int] = None) -> Any:
    count = len(c.shape(n.args[0])) - 2
    kernel = numbers(kernel_size, count)
    if divisor_override is not None:
        raise c.refuse("divisor_override is not supported: multiply by a number behind the pool")
    return c.emit("AveragePool", [self], kernel_shape=kernel, strides=numbers(stride, count) if stride else kernel,
                  pads=2 * numbers(padding, count), ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))


@operator("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_avg_pool(c: Capture, n: torch.fx.Node, self: Any, output_size: Any) -> Any:
    have, want = c.shape(n.args[0])[2:], c.shape(n)[2:]
    if all(w == 1 for w in want):
        return c.emit("GlobalAveragePool", [self])
    if all(h % w == 0 for h, w in zip(have, want)):
        kernel = [h // w for h, w in zip(have, want)]
        return c.emit("AveragePool", [self], kernel_shape=kernel, strides=kernel)
    words = "size=" + "x".join(str(w) for w in want)
    return c.emit("AveragePool", [self], kernel_shape=list(have), notes={"megalith.op": "adaptive_avgpool",
                                                                        "megalith.words": words})


@operator("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c: Capture, n: torch.fx.Node, self: Any, output_size: Any) -> Any:
    have, want = c.shape(n.args[0])[2:], [int(d) for d in n.meta["val"][0].shape[2:]]
    if any(h % w for h, w in zip(have, want)):
        raise c.refuse(f"a pool of {list(have)} into {want}: only whole windows are supported")
    kernel = [h // w for h, w in zip(have, want)]
    return [c.emit("MaxPool", [self], kernel_shape=kernel, strides=kernel), None]


# ---- resizes

def resize(c: Capture, n: torch.fx.Node, x: Any, mode: str, coords: str, rounding: Optional[str] = None) -> Any:
    sizes = c.shape(n)
    return c.emit("Resize", [x, None, None, c.net.whole(*sizes)], mode=mode, coordinate_transformation_mode=coords,
                  nearest_mode=rounding)


def whole_pixels(c: Capture, n: torch.fx.Node, scales: Any) -> None:
    """Where a factor does not give whole pixels, PyTorch counts by the factor, else by the sizes."""
    have, want = c.shape(n.args[0])[2:], c.shape(n)[2:]
    if scales and any(f is not None and h * f != w for h, f, w in zip(have, scales, want)):
        raise c.refuse("a scale factor that does not give whole pixels: use size=, or recompute_scale_factor=True")


def factors(scale_factors: Any, each: Dict[str, Any]) -> Any:
    """A list, or one by one (scales_h, scales_w), by the operator's overload."""
    return scale_factors if scale_factors else [each[k] for k in sorted(each) if k.startswith("scales")]


@operator("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(c: Capture, n: torch.fx.Node, input: Any = None, self: Any = None, scale_factors: Any = None, **each: Any) -> Any:
    whole_pixels(c, n, factors(scale_factors, each))
    return resize(c, n, self if input is None else input, "nearest", "asymmetric", "floor")


def between(mode: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, align_corners: bool, input: Any = None, self: Any = None, scale_factors: Any = None,
          **each: Any) -> Any:
        if not align_corners:
            whole_pixels(c, n, factors(scale_factors, each))
        coords = "align_corners" if align_corners else "half_pixel"
        return resize(c, n, self if input is None else input, mode, coords)
    return f


operator("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")(between("linear"))
operator("upsample_bicubic2d")(between("cubic"))


# ---- padding

PADS = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@operator("pad", "constant_pad_nd")
def pads(c: Capture, n: torch.fx.Node, self: Any, pad: List[int], mode: str = "constant",
         value: Optional[float] = None) -> Any:
    rank = len(c.shape(n.args[0]))
    if mode not in PADS:
        raise c.refuse(f"mode={mode!r} is not supported: use constant, reflect, replicate or circular")
    if not any(pad):
        return self
    before, behind = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], behind[rank - 1 - i] = int(pad[2 * i]), int(pad[2 * i + 1])
    return c.emit("Pad", [self, c.net.whole(*before, *behind), float(value or 0)], mode=PADS[mode])
