"""Sums, means and maxima over axes."""
from __future__ import annotations

from typing import Any, List, Optional

import torch

from ..torch import Capture, operator


def axes_of(c: Capture, n: torch.fx.Node, dim: Any) -> List[int]:
    rank = len(c.shape(n.args[0]))
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    return [d % rank for d in ([dim] if isinstance(dim, int) else dim)]


def reduction(op: str) -> Any:
    def f(c: Capture, n: torch.fx.Node, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        axes = axes_of(c, n, dim)
        if 0 in axes:
            raise c.refuse("it goes over the batch: means and sums over samples belong into the loss")
        return c.emit(op, [self, c.net.whole(*axes)], keepdims=int(keepdim))
    return f


for _aten, _onnx in {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin",
                     "logsumexp": "ReduceLogSumExp"}.items():
    operator(_aten)(reduction(_onnx))


@operator("max", "min")
def extreme(c: Capture, n: torch.fx.Node, self: Any, other: Any = None, dim: Optional[int] = None, keepdim: bool = False) -> Any:
    """Of two tensors; or along an axis, without the places."""
    largest = "max" in str(n.target)
    if other is not None:
        return c.emit("Max" if largest else "Min", [self, other])
    if dim is None:
        raise c.refuse("it goes over the batch")
    if any(u.args[1] == 1 and u.users for u in n.users):
        raise c.refuse("the places of maxima are not supported")
    values = reduction("ReduceMax" if largest else "ReduceMin")(c, n, self, dim, keepdim)
    return [values, None]


@operator("linalg_vector_norm", "norm")
def norm(c: Capture, n: torch.fx.Node, self: Any, ord: Any = None, p: Any = None, dim: Any = None, keepdim: bool = False,
         dtype: Any = None) -> Any:
    order = 2 if ord is None and p is None else float(ord if p is None else p)
    if order not in (1, 2):
        raise c.refuse(f"a norm of order {order} is not supported: 1 and 2 are")
    return reduction("ReduceL1" if order == 1 else "ReduceL2")(c, n, self, dim, keepdim)


@operator("var", "std")
def variance(c: Capture, n: torch.fx.Node, self: Any, dim: Any = None, unbiased: Any = None, correction: Any = None,
             keepdim: bool = False) -> Any:
    axes = axes_of(c, n, dim)
    if 0 in axes:
        raise c.refuse("it goes over the batch: use torch.nn.BatchNorm")
    have = c.shape(n.args[0])
    count = 1
    for d in axes:
        count *= have[d]
    less = 1.0 if unbiased is None and correction is None else float(unbiased if correction is None else correction)
    mean = c.emit("ReduceMean", [self, c.net.whole(*axes)], keepdims=1)
    off = c.emit("Sub", [self, mean])
    y = c.emit("ReduceMean", [c.emit("Mul", [off, off]), c.net.whole(*axes)], keepdims=int(keepdim))
    if less:
        y = c.emit("Mul", [y, count / (count - less)])
    return c.emit("Sqrt", [y]) if "std" in str(n.target) else y
