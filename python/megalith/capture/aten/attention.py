"""Attention. It is written as MatMul, a number, a mask, Softmax, MatMul; the C library makes one operator of it that
never has the matrix of tokens times tokens (src/import/onnx/operators/attention.c)."""
from __future__ import annotations

import math
from typing import Any, Optional

import torch

from ..torch import Capture, Known, operator
from .norms import drop


def causal_mask(c: Capture, queries: int, keys: int) -> Any:
    """Minus infinity where the key comes after the query, made when the file is read: it is large."""
    fill = c.emit("Expand", [Known(torch.tensor(-math.inf)), c.net.whole(queries, keys)])
    return c.emit("Trilu", [fill, Known(torch.tensor(1))], upper=1)


@operator("scaled_dot_product_attention")
def attention(c: Capture, n: torch.fx.Node, query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float,
              is_causal: bool, scale: Optional[float], enable_gqa: bool = False) -> Any:
    q, k = c.shape(n.args[0]), c.shape(n.args[1])
    if enable_gqa:
        raise c.refuse("enable_gqa is not supported: repeat keys and values")
    order = [*range(len(k) - 2), len(k) - 1, len(k) - 2]
    scores = c.emit("MatMul", [query, c.emit("Transpose", [key], perm=order)])
    scores = c.emit("Mul", [scores, 1 / math.sqrt(q[-1]) if scale is None else float(scale)])
    if is_causal:
        scores = c.emit("Add", [scores, causal_mask(c, q[-2], k[-2])])
    if isinstance(attn_mask, Known) and attn_mask.tensor.dtype == torch.bool:
        hidden = torch.zeros(attn_mask.tensor.shape).masked_fill_(~attn_mask.tensor, -math.inf)
        attn_mask = Known(hidden, batch=attn_mask.batch)
    elif attn_mask is not None and not isinstance(attn_mask, Known) and boolean(n):
        return with_mask(c, scores, attn_mask, value, dropout_p)
    if attn_mask is not None:
        scores = c.emit("Add", [scores, attn_mask])
    return c.emit("MatMul", [drop(c, c.emit("Softmax", [scores], axis=-1), dropout_p), value])


def boolean(n: torch.fx.Node) -> bool:
    mask = n.args[3] if len(n.args) > 3 else n.kwargs.get("attn_mask")
    return isinstance(mask, torch.fx.Node) and mask.meta["val"].dtype == torch.bool


def with_mask(c: Capture, scores: Any, mask: Any, value: Any, dropout_p: float) -> Any:
    """A mask that is data: true where a key may be seen."""
    scores = c.emit("Where", [mask, scores, -math.inf])
    return c.emit("MatMul", [drop(c, c.emit("Softmax", [scores], axis=-1), dropout_p), value])
