"""Operators of src/ops on numbers one by one, on pairs of tensors, and reductions, in PyTorch: see
tools/torch_ops.py."""
import torch
from torch.nn import functional as F

from torch_words import flag, number


def spread(x):
    """The second of two, its axes placed as files of rank 1 (n), 2 (n c) and more have them."""
    missing = x[0].dim() - x[1].dim()
    return x[1].reshape(*x[1].shape[:2], *[1] * missing, *x[1].shape[2:])


def relu(a, x, w, training):
    return x[0].relu()


def leaky_relu(a, x, w, training):
    return F.leaky_relu(x[0], float(a.get("slope", "0.01")))


def prelu(a, x, w, training):
    return F.prelu(x[0], w[0])


def sigmoid(a, x, w, training):
    return x[0].sigmoid()


def tanh(a, x, w, training):
    return x[0].tanh()


def gelu(a, x, w, training):
    return F.gelu(x[0], approximate=a.get("approximate", "none"))


def clip(a, x, w, training):
    return x[0].clamp(float(a.get("lo", "-inf")), float(a.get("hi", "inf")))


def softmax(a, x, w, training):
    return x[0].log_softmax(1) if flag(a, "log") else x[0].softmax(1)


def hard_sigmoid(a, x, w, training):
    """PyTorch's own has one slope, and 1/6 as a float in the gradient, even in double."""
    return (number(a, "alpha", 1 / 6) * x[0] + number(a, "beta", 0.5)).clamp(0, 1)


def selu(a, x, w, training):
    """PyTorch's own has one pair of numbers."""
    if not a:
        return F.selu(x[0])
    gamma = number(a, "gamma", 1.0507009873554805)
    return gamma * F.elu(x[0], number(a, "alpha", 1.6732632423543772))


POINTS = {
    "abs": lambda a, x, w, training: x[0].abs(),
    "celu": lambda a, x, w, training: F.celu(x[0], number(a, "alpha", 1)),
    "elu": lambda a, x, w, training: F.elu(x[0], number(a, "alpha", 1)),
    "exp": lambda a, x, w, training: x[0].exp(),
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda a, x, w, training: F.hardswish(x[0]),
    "log": lambda a, x, w, training: x[0].log(),
    "mish": lambda a, x, w, training: F.mish(x[0]),
    "neg": lambda a, x, w, training: -x[0],
    "pow": lambda a, x, w, training: x[0].pow(number(a, "exponent", 2)),
    "reciprocal": lambda a, x, w, training: x[0].reciprocal(),
    "selu": selu,
    "softplus": lambda a, x, w, training: F.softplus(x[0]),
    "sqrt": lambda a, x, w, training: x[0].sqrt(),
}


RELATIONS = {"less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
             "greater_equal": torch.ge, "equal": torch.eq, "not_equal": torch.ne}


def compare(a, x, w, training):
    """Masks of 0 and 1."""
    other = spread(x) if len(x) > 1 else torch.tensor(number(a, "value", 0), dtype=x[0].dtype)
    return RELATIONS[a.get("relation", "greater")](x[0], other).to(x[0].dtype)


def where(a, x, w, training):
    """masked_fill, or a third value where the mask holds (is above 0)."""
    mask = spread(x) > 0
    if flag(a, "invert"):
        mask = ~mask
    if len(x) < 3:
        return x[0].masked_fill(mask, number(a, "value", 0))
    return torch.where(mask, spread((x[0], x[2])), x[0])


def add(a, x, w, training):
    y = sum((spread((x[0], b)) for b in x[1:]), x[0])
    return y.relu() if flag(a, "relu") else y


def larger(a, x, w, training):
    return torch.maximum(x[0], spread(x))


def smaller(a, x, w, training):
    return torch.minimum(x[0], spread(x))


def mul(a, x, w, training):
    return x[0] * spread(x)


def sub(a, x, w, training):
    return x[0] - spread(x)


def div(a, x, w, training):
    return x[0] / spread(x)


def reduced(a):
    return [int(axis) for axis in a["axes"].split("x")]


def total(a, x, w, training):
    return (torch.mean if flag(a, "mean") else torch.sum)(x[0], reduced(a), keepdim=True)


def peak(a, x, w, training):
    return x[0].detach().amax(reduced(a), keepdim=True)


OPS = {f.__name__: f for f in (add, clip, compare, div, gelu, leaky_relu, mul, peak, prelu,
                               relu, sigmoid, softmax, sub, tanh, where)}
OPS.update(POINTS, sum=total, max=larger, min=smaller)
