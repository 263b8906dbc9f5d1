"""Layers with weights: convolutions, dense layers, products, tables of rows."""
from __future__ import annotations

from typing import Any, List, Sequence

import torch

from ..torch import Capture, operator
from .weights import with_weight


def numbers(value: Any, count: int) -> List[int]:
    """One number for all axes, or one for each."""
    given = [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
    return given * count if len(given) == 1 else given


def pads_of(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> List[int]:
    """ONNX's pads: all that lie before, then all that lie behind. "same" puts an odd one behind."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    if padding == "same":
        all_of = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [a // 2 for a in all_of] + [a - a // 2 for a in all_of]
    return 2 * numbers(padding, len(kernel))


@operator("conv1d", "conv2d", "conv3d")
def convolution(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
                dilation: Any, groups: int) -> Any:
    kernel = list(c.shape(n.args[1])[2:])
    dilations = numbers(dilation, len(kernel))
    if len(c.shape(n.args[0])) != len(kernel) + 2:
        raise c.refuse("its input has no batch axis")

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return c.emit("Conv", [x, weight, bias], kernel_shape=kernel, strides=numbers(stride, len(kernel)),
                      pads=pads_of(padding, kernel, dilations), dilations=dilations, group=groups)
    return with_weight(c, n, (input, weight, bias), layer)


@operator("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
               output_padding: Any, groups: int, dilation: Any) -> Any:
    kernel = list(c.shape(n.args[1])[2:])
    count = len(kernel)

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return c.emit("ConvTranspose", [x, weight, bias], kernel_shape=kernel, strides=numbers(stride, count),
                      pads=2 * numbers(padding, count), output_padding=numbers(output_padding, count),
                      dilations=numbers(dilation, count), group=groups)
    return with_weight(c, n, (input, weight, bias), layer, turned=True)


@operator("linear")
def linear(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any) -> Any:
    def layer(x: Any, weight: Any, bias: Any) -> Any:
        if len(c.shape(n)) == 2:
            return c.emit("Gemm", [x, weight, bias], transB=1)
        y = c.emit("MatMul", [x, c.emit("Transpose", [weight], perm=[1, 0])])
        return y if bias is None else c.emit("Add", [y, bias])
    return with_weight(c, n, (input, weight, bias), layer)


@operator("addmm")
def addmm(c: Capture, n: torch.fx.Node, self: Any, mat1: Any, mat2: Any, beta: float, alpha: float) -> Any:
    return c.emit("Gemm", [mat1, mat2, self], alpha=float(alpha), beta=float(beta))


@operator("matmul", "mm", "bmm")
def matmul(c: Capture, n: torch.fx.Node, self: Any, other: Any = None, mat2: Any = None) -> Any:
    return c.emit("MatMul", [self, mat2 if other is None else other])


@operator("einsum")
def einsum(c: Capture, n: torch.fx.Node, equation: str, tensors: Any, path: Any = None) -> Any:
    return c.emit("Einsum", tensors, equation=equation.replace(" ", ""))


@operator("baddbmm")
def baddbmm(c: Capture, n: torch.fx.Node, self: Any, batch1: Any, batch2: Any, beta: float, alpha: float) -> Any:
    y = c.emit("MatMul", [batch1, batch2])
    if alpha != 1:
        y = c.emit("Mul", [y, float(alpha)])
    if beta == 0:
        return y
    return c.emit("Add", [y, self if beta == 1 else c.emit("Mul", [self, float(beta)])])


@operator("embedding")
def embedding(c: Capture, n: torch.fx.Node, weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool,
              sparse: bool) -> Any:
    if padding_idx >= 0:
        raise c.refuse(f"padding_idx={padding_idx} keeps one row from being trained: leave it out and hide the padding "
                       "by the loss (ignore_index) or a mask")
    if scale_grad_by_freq:
        raise c.refuse("scale_grad_by_freq is not supported: leave it out")
    return c.emit("Gather", [weight, indices], axis=0)


@operator("prelu")
def prelu(c: Capture, n: torch.fx.Node, self: Any, weight: Any) -> Any:
    rank, slopes = len(c.shape(n.args[0])), c.shape(n.args[1])
    if rank > 2 and slopes[0] > 1:
        weight = c.emit("Reshape", [weight, c.net.whole(slopes[0], *[1] * (rank - 2))])
    return c.emit("PRelu", [self, weight])


@operator("bilinear")
def bilinear(c: Capture, n: torch.fx.Node, **_: Any) -> Any:
    raise c.refuse("write it as two linear layers and a product")
