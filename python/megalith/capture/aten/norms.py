"""Normalisations, and what is dropped at random."""
from __future__ import annotations

import math
from typing import Any, List

import torch

from ..torch import Capture, Draw, Known, operator

UNBIASED = {"megalith.running_var": "unbiased"}  # what PyTorch averages; ONNX has the population's


def affine(c: Capture, weight: Any, bias: Any, count: int) -> List[Any]:
    """Ones and zeros, which nothing trains, where the layer has none."""
    if weight is None:
        weight = Known(torch.ones(count))
    if bias is None:
        bias = Known(torch.zeros(count))
    return [weight, bias]


@operator("batch_norm")
def batch_norm(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
               training: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    channels = c.shape(n.args[0])[1]
    if running_mean is None:
        raise c.refuse("without running statistics (track_running_stats=False) there is nothing to evaluate with: use "
                       "track_running_stats=True")
    if not training:
        return frozen(c, n, input, weight, bias, running_mean, running_var, eps)
    scale, offset = affine(c, weight, bias, channels)
    y, _, _ = c.emit("BatchNormalization", [input, scale, offset, running_mean, running_var], outputs=3, epsilon=eps,
                     momentum=1 - momentum, training_mode=1, notes=UNBIASED)
    return y


def frozen(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    """Of a layer that the user keeps in eval(): its statistics stay as they are, scale and offset may be trained. The statistics are
    weights, so that they are loaded and saved; what is computed of weights alone would be a constant of the file, so the variance is
    added to zeros that data has."""
    rank = len(c.shape(n.args[0]))
    shape = (-1, *[1] * (rank - 2))

    def wide(v: Any) -> Any:
        return c.emit("Reshape", [v, c.net.whole(*shape)])
    zeros = c.emit("Greater", [input, math.inf])  # no gradient goes through it
    deviation = c.emit("Sqrt", [c.emit("Add", [c.emit("Add", [zeros, wide(var)]), float(eps)])])
    y = c.emit("Div", [c.emit("Sub", [input, wide(mean)]), deviation])
    if weight is not None:
        y = c.emit("Mul", [y, wide(weight)])
    return y if bias is None else c.emit("Add", [y, wide(bias)])


@operator("layer_norm")
def layer_norm(c: Capture, n: torch.fx.Node, input: Any, normalized_shape: List[int], weight: Any, bias: Any, eps: float,
               cudnn_enable: bool) -> Any:
    if weight is None:
        weight = Known(torch.ones(*normalized_shape))
    return c.emit("LayerNormalization", [input, weight, bias], axis=-len(normalized_shape), epsilon=eps)


@operator("rms_norm")
def rms_norm(c: Capture, n: torch.fx.Node, input: Any, normalized_shape: List[int], weight: Any, eps: Any) -> Any:
    axes = list(range(-len(normalized_shape), 0))
    if eps is None:
        eps = torch.finfo(n.args[0].meta["val"].dtype).eps
    mean = c.emit("ReduceMean", [c.emit("Mul", [input, input]), c.net.whole(*axes)], keepdims=1)
    y = c.emit("Div", [input, c.emit("Sqrt", [c.emit("Add", [mean, float(eps)])])])
    return y if weight is None else c.emit("Mul", [y, weight])


@operator("group_norm")
def group_norm(c: Capture, n: torch.fx.Node, input: Any, num_groups: int, weight: Any, bias: Any, eps: float,
               cudnn_enabled: bool) -> Any:
    scale, offset = affine(c, weight, bias, c.shape(n.args[0])[1])
    return c.emit("GroupNormalization", [input, scale, offset], num_groups=num_groups, epsilon=eps)


@operator("instance_norm")
def instance_norm(c: Capture, n: torch.fx.Node, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                  use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    if running_mean is not None:
        raise c.refuse("running statistics of an instance normalisation are not supported: use "
                       "track_running_stats=False, its default")
    scale, offset = affine(c, weight, bias, c.shape(n.args[0])[1])
    return c.emit("InstanceNormalization", [input, scale, offset], epsilon=eps)


# ---- drops

def drop(c: Capture, input: Any, rate: float, per: str = "element") -> Any:
    """Zeroes a share of the input, and makes up for it by a factor; `per` says what is drawn for at once."""
    if rate == 0:
        return input
    own = {} if per == "element" else {"megalith.op": "dropout", "megalith.words": f"rate={rate:.17g} per={per}"}
    return c.emit("Dropout", [input, float(rate), Known(torch.tensor(True))], notes=own)


@operator("dropout")
def dropout(c: Capture, n: torch.fx.Node, input: Any, p: float, train: bool, self: Any = None) -> Any:
    return drop(c, input, p) if train else input


@operator("dropout_")
def dropout_in_place(c: Capture, n: torch.fx.Node, self: Any, p: float, train: bool) -> Any:
    return drop(c, self, p) if train else self


@operator("feature_dropout")
def feature_dropout(c: Capture, n: torch.fx.Node, input: Any, p: float, train: bool) -> Any:
    return drop(c, input, p, "channel") if train else input


@operator("feature_dropout_")
def feature_dropout_in_place(c: Capture, n: torch.fx.Node, self: Any, p: float, train: bool) -> Any:
    return drop(c, self, p, "channel") if train else self


@operator("bernoulli_", "bernoulli")
def bernoulli(c: Capture, n: torch.fx.Node, self: Any, p: Any = None, generator: Any = None) -> Any:
    if isinstance(p, (Known, str)) or (p is None and not isinstance(self, Known)):
        raise c.refuse("random numbers whose probabilities are computed are not supported")
    if p is None:
        value = self.tensor.flatten()
        if not bool((value == value[0]).all()):
            raise c.refuse("random numbers of different probabilities are not supported")
        p = float(value[0])
    return Draw(c.shape(n), 1 - float(p))


def multiply_draw(c: Capture, n: torch.fx.Node, data: Any, mask: Draw, shape: Any) -> Any:
    """Data times a random mask: what is drawn for at once is told by the mask's extents."""
    rank = len(shape)
    full = (1,) * (rank - len(mask.shape)) + tuple(mask.shape)
    ones = [full[i] == 1 for i in range(rank)]
    if all(ones):
        per = "batch"
    elif full[0] == c.batch and all(ones[1:]):
        per = "sample"
    elif tuple(full[:2]) == tuple(shape[:2]) and all(ones[2:]):
        per = "channel" if rank > 2 else "element"
    elif tuple(full) == tuple(shape):
        per = "element"
    else:
        raise c.refuse(f"a random mask of {full} for data of {tuple(shape)} is not supported: per element, channel, sample "
                       "or batch is")
    if mask.rate >= 1:
        raise c.refuse("everything is dropped")
    y = drop(c, data, mask.rate, per)
    factor = mask.value * (1 - mask.rate)  # dropout itself multiplies by 1 / (1 - rate)
    return y if abs(factor - 1) < 1e-12 else c.emit("Mul", [y, factor])
