"""Weights that are normalised anew in each step: torch.nn.utils.weight_norm in both forms, parametrizations.spectral_norm.

    weight norm     w(k, ..) = g(k) v(k, ..) / |v(k, ..)|     the output's channel k times g(k) / |v(k, ..)|; of a transposed
                                                              convolution, whose rows are the input's channels, the input's
    spectral norm   w = weight / sigma                        the output divided by sigma

Layers are linear in their weights, so the layer takes v, without a bias, and an operator of ours (src/ops/norm) beside it
does the rest; the bias is added behind it.
"""
from __future__ import annotations

from typing import Any, Callable, Tuple

import torch

from ..torch import Capture, Normalised, operator

Layer = Callable[[Any, Any, Any], Any]  # of input, weight, bias


def _extents(c: Capture, x: torch.fx.Node) -> str:
    return "shape=" + "x".join(map(str, c.shape(x)))


@operator("_weight_norm")
def weight_norm(c: Capture, n: torch.fx.Node, v: Any, g: Any, dim: int) -> Any:
    if not isinstance(v, str) or not isinstance(g, str):
        raise c.refuse("weights that are known are not normalised here: remove the normalisation from what is not trained")
    if dim != 0 or len(c.shape(n.args[0])) < 2:
        raise c.refuse(f"weight_norm(dim={None if dim == -1 else dim}) is not supported: use dim=0, its default")
    return Normalised(v, "weightnorm", (v, g), _extents(c, n.args[0]))


@operator("megalith.spectral_norm")
def spectral_norm(c: Capture, n: torch.fx.Node, weight: Any, u: Any, v: Any, dim: int, iterations: int, epsilon: float) -> Any:
    if iterations < 1:
        raise c.refuse("a spectral normalisation in eval() is not supported: put it in train()")
    if dim not in (0, 1) or not isinstance(weight, str):
        raise c.refuse(f"spectral_norm(dim={dim}) is not supported: 0 and 1 are, of a weight")
    words = f"{_extents(c, n.args[0])} dim={dim} iterations={iterations} epsilon={epsilon:.17g}"
    return Normalised(weight, "spectralnorm", (weight, c.name(u), c.name(v)), words)


def _beside(c: Capture, w: Normalised, x: Any, rank: int) -> Any:
    """The operator, on x with features on axis 1."""
    return c.emit(w.op, [x, *w.inputs], domain="megalith", words=w.words)


def _features_front(c: Capture, w: Normalised, x: Any, rank: int) -> Any:
    """On x with features last."""
    if rank == 2:
        return _beside(c, w, x, rank)
    there = [0, rank - 1, *range(1, rank - 1)]
    y = _beside(c, w, c.emit("Transpose", [x], perm=there), rank)
    return c.emit("Transpose", [y], perm=[0, *range(2, rank), 1])


def with_weight(c: Capture, n: torch.fx.Node, operands: Tuple[Any, Any, Any], layer: Layer, turned: bool = False) -> Any:
    """A layer whose weight may be `Normalised`; `turned`: its rows are channels of the input."""
    x, weight, bias = operands
    if not isinstance(weight, Normalised):
        return layer(x, weight, bias)
    rank, dense = len(c.shape(n)), "linear" in str(n.target)
    beside = _features_front if dense else _beside
    if turned and weight.op == "weightnorm":
        return layer(beside(c, weight, x, rank), weight.weight, bias)
    y = beside(c, weight, layer(x, weight.weight, None), rank)
    if bias is None:
        return y
    wide = bias if dense else c.emit("Reshape", [bias, c.net.whole(c.shape(n)[1], *[1] * (rank - 2))])
    return c.emit("Add", [y, wide])
