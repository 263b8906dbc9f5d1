"""Functions of single numbers: activations, and layers that are nothing else; sums and products of values."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np

from .context import Context, layer, operation
from .value import FIRST, FLAT, KERAS, Value

# ---- activations


def _node(op: str, **attributes: Any) -> Callable[..., Value]:
    return lambda c, x: x.map(lambda name: c.emit(op, [name], **attributes))


def clip(c: Context, x: Value, low: float, high: float) -> Value:
    bounds = ["" if bound is None else c.net.constant(float(bound)) for bound in (low, high)]
    return x.map(lambda name: c.emit("Clip", [name, *bounds]))


def scaled(c: Context, x: Value, by: float) -> Value:
    return x.map(lambda name: c.emit("Mul", [name, c.net.constant(float(by))]))


def shifted(c: Context, x: Value, by: float) -> Value:
    return x.map(lambda name: c.emit("Add", [name, c.net.constant(float(by))]))


def softmax(c: Context, x: Value, op: str = "Softmax", axis: int = -1) -> Value:
    axis = axis % x.rank
    if axis == x.rank - 1:
        return x.like(c.emit(op, [x.keras()], axis=-1), KERAS)
    return x.like(c.emit(op, [x.keras()], axis=axis), KERAS)


def silu(c: Context, x: Value) -> Value:
    return x.map(lambda name: c.emit("Mul", [name, c.emit("Sigmoid", [name])]))


def softsign(c: Context, x: Value) -> Value:
    below = shifted(c, x.map(lambda name: c.emit("Abs", [name])), 1.0)
    return pair(c, "Div", x, below)


def log_sigmoid(c: Context, x: Value) -> Value:
    minus = x.map(lambda name: c.emit("Neg", [name]))
    return _node("Neg")(c, _node("Softplus")(c, minus))


ACTIVATIONS: Dict[str, Callable[..., Value]] = {
    "linear": lambda c, x: x,
    "relu": _node("Relu"),
    "relu6": lambda c, x: clip(c, x, 0.0, 6.0),
    "leaky_relu": _node("LeakyRelu", alpha=0.2),
    "elu": _node("Elu", alpha=1.0),
    "celu": _node("Celu", alpha=1.0),
    "selu": _node("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805),
    "gelu": _node("Gelu"),
    "sigmoid": _node("Sigmoid"),
    "hard_sigmoid": _node("HardSigmoid", alpha=1 / 6, beta=0.5),
    "log_sigmoid": log_sigmoid,
    "tanh": _node("Tanh"),
    "hard_tanh": lambda c, x: clip(c, x, -1.0, 1.0),
    "softplus": _node("Softplus"),
    "softsign": softsign,
    "silu": silu,
    "swish": silu,
    "hard_silu": _node("HardSwish"),
    "hard_swish": _node("HardSwish"),
    "mish": _node("Mish"),
    "exponential": _node("Exp"),
    "softmax": softmax,
    "log_softmax": lambda c, x: softmax(c, x, "LogSoftmax"),
}


def activate(c: Context, x: Value, function: Any) -> Value:
    """An activation that a layer was given: a function of keras.activations."""
    if function is None:
        return x
    name = getattr(function, "__name__", type(function).__name__)
    known = getattr(function, "__module__", "").startswith("keras.")
    if not known or name not in ACTIVATIONS:
        c.refuse(f"the activation '{name}' is not known", "use one of " + ", ".join(sorted(ACTIVATIONS)))
    return ACTIVATIONS[name](c, x)


@layer("Activation")
def _activation(c: Context, op: Any, x: Value) -> Value:
    return activate(c, x, op.activation)


@layer("ReLU")
def _relu(c: Context, op: Any, x: Value) -> Value:
    slope, top, threshold = (float(v or 0) for v in (op.negative_slope, op.max_value, op.threshold))
    if threshold:
        c.refuse(f"threshold={threshold:g}", "use threshold=0")
    if op.max_value is None:
        return _node("LeakyRelu", alpha=slope)(c, x) if slope else _node("Relu")(c, x)
    return clip(c, _node("LeakyRelu", alpha=slope)(c, x), None, top) if slope else clip(c, x, 0.0, top)


@layer("LeakyReLU")
def _leaky(c: Context, op: Any, x: Value) -> Value:
    return _node("LeakyRelu", alpha=float(op.negative_slope))(c, x)


@layer("ELU")
def _elu(c: Context, op: Any, x: Value) -> Value:
    return _node("Elu", alpha=float(op.alpha))(c, x)


@layer("Softmax")
def _softmax(c: Context, op: Any, x: Value) -> Value:
    if c.masks.get(id(x)) is not None or isinstance(op.axis, (list, tuple)):
        c.refuse("a softmax with a mask, or over several axes", "use axis=-1 without a mask")
    return softmax(c, x, axis=op.axis)


@layer("Identity", "ActivityRegularization")
def _identity(c: Context, op: Any, x: Value, **_: Any) -> Value:
    """Regularisers of activity are refused for all layers alike (capture/keras)."""
    return x


# ---- two values

def _numbers(c: Context, x: Value, rank: int, order: str) -> str:
    """A constant beside data of this rank and order: channels of numbers follow those of the data."""
    assert x.number is not None
    array = x.number
    if array.size == 1 and array.ndim == 0:
        return c.net.constant(float(array))
    if order == FIRST and array.ndim:
        array = np.moveaxis(array.reshape((1,) * (rank - array.ndim) + array.shape), -1, 1)
    return c.net.constant(array)


def _common_order(data: Sequence[Value], others: Sequence[Value]) -> str:
    """The order in which an operator takes them: one that is at hand, if no weight or list of numbers forbids it."""
    orders = {v.order for v in data}
    if FLAT in orders:
        alike = len({v.pixels for v in data}) == 1 and all(v.number is not None and v.number.size == 1 for v in others)
        return FLAT if orders == {FLAT} and alike else KERAS
    return FIRST if FIRST in orders and not any(v.is_weight for v in others) else KERAS


def pair(c: Context, op: str, a: Any, b: Any) -> Value:
    """op of two values, or a value and numbers, with NumPy's rule for extents of 1."""
    both = [v if isinstance(v, Value) else c.constant(v) for v in (a, b)]
    shape = _broadcast(c, *both)
    data = [v for v in both if v.is_data]
    if not data:
        c.refuse(f"{op} of weights or numbers alone", "compute with data")
    if any(v.rank != len(shape) for v in data):
        c.refuse(f"{op} of shapes {both[0].shape} and {both[1].shape}", "give both the same rank (keras.ops.expand_dims)")
    order = _common_order(data, [v for v in both if not v.is_data])
    names = [_numbers(c, v, len(shape), order) if v.number is not None else v.at(order) for v in both]
    return data[0].like(c.emit(op, names), order, shape)


def _broadcast(c: Context, a: Value, b: Value) -> tuple:
    rank = max(a.rank, b.rank)
    long = [(1,) * (rank - v.rank) + v.shape for v in (a, b)]
    out: List[Any] = []
    for p, q in zip(*long):
        if p is None or q is None:
            out.append(None)
        elif p != q and 1 not in (p, q):
            c.refuse(f"shapes {a.shape} and {b.shape} do not fit together")
        else:
            out.append(max(p, q))
    return tuple(out)


def chain(c: Context, op: str, values: Sequence[Value]) -> Value:
    y = values[0]
    for v in values[1:]:
        y = pair(c, op, y, v)
    return y


@layer("Add")
def _add(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return chain(c, "Add", xs)


@layer("Subtract")
def _subtract(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return pair(c, "Sub", *xs)


@layer("Multiply")
def _multiply(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return chain(c, "Mul", xs)


@layer("Average")
def _average(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return scaled(c, chain(c, "Add", xs), 1 / len(xs))


@layer("Maximum")
def _maximum(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return chain(c, "Max", xs)


@layer("Minimum")
def _minimum(c: Context, op: Any, xs: Sequence[Value]) -> Value:
    return chain(c, "Min", xs)


# ---- what keras.ops, and the signs + - * /, make of symbolic tensors

def _binary(keras_name: str, op: str) -> None:
    operation(keras_name)(lambda c, o, x1, x2: pair(c, op, x1, x2))


for _keras, _onnx in (("Add", "Add"), ("Subtract", "Sub"), ("Multiply", "Mul"), ("TrueDivide", "Div"), ("Divide", "Div"),
                      ("Maximum", "Max"), ("Minimum", "Min")):
    _binary(_keras, _onnx)

for _keras, _name in (("Relu", "relu"), ("Relu6", "relu6"), ("Sigmoid", "sigmoid"), ("Tanh", "tanh"), ("Softplus", "softplus"),
                      ("Softsign", "softsign"), ("Silu", "silu"), ("Selu", "selu"), ("HardSigmoid", "hard_sigmoid"),
                      ("HardSilu", "hard_silu"), ("LogSigmoid", "log_sigmoid"), ("Exp", "exponential"), ("HardTanh", "hard_tanh")):
    operation(_keras)(lambda c, o, x, _f=ACTIVATIONS[_name]: _f(c, x))

for _keras, _onnx in (("Negative", "Neg"), ("Abs", "Abs"), ("Absolute", "Abs"), ("Sqrt", "Sqrt"), ("Log", "Log"),
                      ("Reciprocal", "Reciprocal")):
    operation(_keras)(lambda c, o, x, _op=_onnx: _node(_op)(c, x))


@operation("Gelu")
def _gelu(c: Context, op: Any, x: Value) -> Value:
    return _node("Gelu", approximate="tanh" if op.approximate else "none")(c, x)


@operation("LeakyRelu")
def _leaky_op(c: Context, op: Any, x: Value) -> Value:
    return _node("LeakyRelu", alpha=float(op.negative_slope))(c, x)


@operation("Elu")
def _elu_op(c: Context, op: Any, x: Value) -> Value:
    return _node("Elu", alpha=float(op.alpha))(c, x)


@operation("Square")
def _square(c: Context, op: Any, x: Value) -> Value:
    return pair(c, "Mul", x, x)


@operation("Power")
def _power(c: Context, op: Any, x1: Value, x2: Any) -> Value:
    if isinstance(x2, Value) and (x2.number is None or x2.number.size != 1):
        c.refuse("a power that is no number", "use a constant exponent")
    number = float(x2.number if isinstance(x2, Value) else x2)
    return x1.map(lambda name: c.emit("Pow", [name, c.net.constant(number)]))


@operation("Rsqrt")
def _rsqrt(c: Context, op: Any, x: Value) -> Value:
    return _node("Reciprocal")(c, _node("Sqrt")(c, x))


@operation("Softmax")
def _softmax_op(c: Context, op: Any, x: Value) -> Value:
    return softmax(c, x, axis=op.axis)


@operation("LogSoftmax")
def _log_softmax_op(c: Context, op: Any, x: Value) -> Value:
    return softmax(c, x, "LogSoftmax", op.axis)


@operation("Clip")
def _clip_op(c: Context, op: Any, x: Value) -> Value:
    return clip(c, x, op.x_min, op.x_max)


@operation("Cast")
def _cast(c: Context, op: Any, x: Value) -> Value:
    """Between kinds of real numbers there is nothing to do: the network has one kind."""
    if op.dtype.startswith(("float", "bfloat")) and x.dtype.startswith(("float", "bfloat")):
        return x
    y = x.map(lambda name: c.emit("Cast", [name], to={"bool": 9, "int32": 6, "int64": 7}.get(op.dtype, 1)))
    y.dtype = op.dtype
    return y
