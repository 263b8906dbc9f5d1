"""Operators that work point by point."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ..torch import Capture, Draw, Known, operator
from .norms import multiply_draw
from .whole import compared, input_of, is_whole, real, truth

# ---- one operand, nothing else to say

PLAIN = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish", "mish": "Mish", "exp": "Exp",
         "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "neg": "Neg", "reciprocal": "Reciprocal", "selu": "Selu",
         "silu": "Swish"}


def plain(op: str) -> Any:
    return lambda c, n, self: c.emit(op, [self])


for _aten, _onnx in PLAIN.items():
    operator(_aten)(plain(_onnx))


@operator("relu6")
def relu6(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("Clip", [self, 0.0, 6.0])


@operator("hardtanh")
def hardtanh(c: Capture, n: torch.fx.Node, self: Any, min_val: float, max_val: float) -> Any:
    return c.emit("Clip", [self, float(min_val), float(max_val)])


@operator("hardsigmoid")
def hardsigmoid(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("HardSigmoid", [self], alpha=1 / 6, beta=0.5)


@operator("clamp", "clip")
def clamp(c: Capture, n: torch.fx.Node, self: Any, min: Any = None, max: Any = None) -> Any:
    """Between numbers no gradient passes at the bounds; between tensors half of it does, as maximum has it."""
    if not isinstance(min, (Known, str)) and not isinstance(max, (Known, str)):
        return c.emit("Clip", [self, *(None if b is None else float(b) for b in (min, max))])
    for op, bound in (("Max", min), ("Min", max)):
        self = self if bound is None else c.emit(op, [self, bound])
    return self


@operator("clamp_min")
def clamp_min(c: Capture, n: torch.fx.Node, self: Any, min: Any) -> Any:
    return clamp(c, n, self, min)


@operator("clamp_max")
def clamp_max(c: Capture, n: torch.fx.Node, self: Any, max: Any) -> Any:
    return clamp(c, n, self, None, max)


@operator("leaky_relu")
def leaky_relu(c: Capture, n: torch.fx.Node, self: Any, negative_slope: float) -> Any:
    return c.emit("LeakyRelu", [self], alpha=float(negative_slope))


@operator("elu")
def elu(c: Capture, n: torch.fx.Node, self: Any, alpha: float, scale: float, input_scale: float) -> Any:
    if scale != 1 or input_scale != 1:
        raise c.refuse("scales other than 1 are not supported")
    return c.emit("Elu", [self], alpha=float(alpha))


@operator("celu")
def celu(c: Capture, n: torch.fx.Node, self: Any, alpha: float) -> Any:
    return c.emit("Celu", [self], alpha=float(alpha))


@operator("gelu")
def gelu(c: Capture, n: torch.fx.Node, self: Any, approximate: str) -> Any:
    return c.emit("Gelu", [self], approximate=approximate)


ALIKE = 20.0  # above it softplus(x) and x differ by less than 3e-9, which is PyTorch's own default


@operator("softplus")
def softplus(c: Capture, n: torch.fx.Node, self: Any, beta: float, threshold: float) -> Any:
    wide = self if beta == 1 else c.emit("Mul", [self, float(beta)])
    y = c.emit("Softplus", [wide])
    y = y if beta == 1 else c.emit("Mul", [y, 1 / float(beta)])
    if threshold >= ALIKE:
        return y
    return c.emit("Where", [c.emit("Greater", [wide, float(threshold)]), self, y])


@operator("log_sigmoid")
def log_sigmoid(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("Neg", [c.emit("Softplus", [c.emit("Neg", [self])])])


@operator("glu")
def glu(c: Capture, n: torch.fx.Node, self: Any, dim: int) -> Any:
    half = c.shape(n)[dim]
    a, b = c.emit("Split", [self, c.net.whole(half, half)], outputs=2, axis=dim)
    return c.emit("Mul", [a, c.emit("Sigmoid", [b])])


@operator("rsqrt")
def rsqrt(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("Reciprocal", [c.emit("Sqrt", [self])])


@operator("square")
def square(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("Mul", [self, self])


@operator("softmax", "_softmax")
def softmax(c: Capture, n: torch.fx.Node, self: Any, dim: int, **_: Any) -> Any:
    return c.emit("Softmax", [self], axis=dim)


@operator("log_softmax", "_log_softmax")
def log_softmax(c: Capture, n: torch.fx.Node, self: Any, dim: int, **_: Any) -> Any:
    return c.emit("LogSoftmax", [self], axis=dim)


@operator("logsigmoid")
def logsigmoid(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return log_sigmoid(c, n, self)


# ---- two operands

def lined_up(c: Capture, n: torch.fx.Node, a: Any, b: Any) -> Any:
    """Data of fewer axes has them at the end: axes of extent 1 are written out, so that the batch stays first."""
    sources = [*n.args, None, None][:2]
    a, b = (real(c, x, v) for x, v in zip(sources, (a, b)))
    ranks = [len(c.shape(x)) if isinstance(x, torch.fx.Node) and isinstance(v, str) else None
             for x, v in zip(sources, (a, b))]
    if None in ranks or ranks[0] == ranks[1]:
        return a, b
    out = [a, b]
    for i in range(2):
        source = n.args[i]
        if ranks[i] < max(ranks) and out[i] not in c.net.weights:
            shape = c.shape(source)
            if shape and shape[0] == c.batch:
                raise c.refuse(f"data of {len(shape)} and {max(ranks)} axes: the first axis, the batch, would not be the "
                               "same one; write the axes of extent 1 out (unsqueeze)")
    return tuple(out)


def binary(op: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, self: Any, other: Any) -> Any:
        a, b = lined_up(c, n, self, other)
        return c.emit(op, [a, b])
    return f


for _aten, _onnx in {"maximum": "Max", "minimum": "Min"}.items():
    operator(_aten)(binary(_onnx))


def with_alpha(op: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, self: Any, other: Any, alpha: Any = 1) -> Any:
        if alpha != 1:
            other = other * float(alpha) if isinstance(other, (int, float)) else c.emit("Mul", [other, float(alpha)])
        a, b = lined_up(c, n, self, other)
        return c.emit(op, [a, b])
    return f


operator("add")(with_alpha("Add"))
operator("sub", "subtract")(with_alpha("Sub"))


@operator("rsub")
def rsub(c: Capture, n: torch.fx.Node, self: Any, other: Any, alpha: Any = 1) -> Any:
    self = real(c, n.args[0], self)
    if alpha != 1:
        self = c.emit("Mul", [self, float(alpha)])
    return c.emit("Sub", [other, self])


@operator("mul", "multiply")
def mul(c: Capture, n: torch.fx.Node, self: Any, other: Any) -> Any:
    if isinstance(other, Draw) or isinstance(self, Draw):
        data, mask = (other, self) if isinstance(self, Draw) else (self, other)
        if isinstance(data, (int, float)):
            return Draw(mask.shape, mask.rate, mask.value * float(data))
        if isinstance(data, Draw):
            raise c.refuse("a product of two random masks is not supported")
        return multiply_draw(c, n, data, mask, c.shape(n))
    a, b = lined_up(c, n, self, other)
    return c.emit("Mul", [a, b])


@operator("div", "true_divide", "divide")
def div(c: Capture, n: torch.fx.Node, self: Any, other: Any, rounding_mode: Optional[str] = None) -> Any:
    if rounding_mode is not None:
        raise c.refuse("rounding has no gradient")
    if isinstance(self, Draw) and isinstance(other, (int, float)):
        return Draw(self.shape, self.rate, self.value / float(other))
    a, b = lined_up(c, n, self, other)
    return c.emit("Div", [a, b])


@operator("pow")
def power(c: Capture, n: torch.fx.Node, self: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return c.emit("Mul", [self, self])
    return c.emit("Pow", [self, exponent])


# ---- masks

RELATIONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"}


def relation(aten: str, onnx: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, self: Any, other: Any) -> Any:
        if is_whole(n.args[0]) and isinstance(self, str) and isinstance(other, (int, float)) and input_of(c, n.args[0]) is not None:
            return compared(c, n.args[0], aten, other)
        a, b = lined_up(c, n, self, other)
        return c.emit(onnx, [a, b])
    return f


for _aten, _onnx in RELATIONS.items():
    operator(_aten)(relation(_aten, _onnx))


@operator("ne")
def ne(c: Capture, n: torch.fx.Node, self: Any, other: Any) -> Any:
    return c.emit("Not", [relation("eq", "Equal")(c, n, self, other)])


@operator("logical_not", "bitwise_not")
def invert(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    return c.emit("Not", [bits(c, n, n.args[0], self)])


def bits(c: Capture, n: torch.fx.Node, x: Any, value: Any) -> Any:
    """An operand as a mask; numbers have bits, which are not those of masks."""
    if "bitwise" in str(n.target) and n.meta["val"].dtype != torch.bool:
        raise c.refuse("it computes with bits of whole numbers: compare them first, (a != 0) & (b != 0)")
    return truth(c, x, value)


def both(op: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, self: Any, other: Any) -> Any:
        a, b = (bits(c, n, x, v) for x, v in zip(n.args, (self, other)))
        return c.emit(op, list(lined_up(c, n, a, b)))
    return f


operator("logical_and", "bitwise_and")(both("And"))
operator("logical_or", "bitwise_or")(both("Or"))


@operator("where")
def where(c: Capture, n: torch.fx.Node, condition: Any, self: Any, other: Any) -> Any:
    return c.emit("Where", [condition, self, other])


@operator("masked_fill")
def masked_fill(c: Capture, n: torch.fx.Node, self: Any, mask: Any, value: Any) -> Any:
    if isinstance(value, Known):
        value = float(value.tensor)
    return c.emit("Where", [mask, float(value) if isinstance(value, (int, float)) else value, self])
