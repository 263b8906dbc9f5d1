"""Products with matrices: dense layers, embeddings, attention."""
from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import keras
import numpy as np

from .context import Context, layer
from .layout import Layout, reshaped
from .norms import dropout
from .points import activate
from .value import FIRST, FLAT, KERAS, Value


def _plain_weights(c: Context, op: Any) -> None:
    if getattr(op, "lora_enabled", False) or getattr(op, "quantization_mode", None):
        c.refuse("LoRA or quantised weights", "merge them into the kernel first")


def _flat_layout(shape: Sequence[int], pixels: Sequence[int]) -> Layout:
    """(h w c, units) -> (c h w, units)"""
    *space, channels = pixels
    n = len(space)
    return Layout(tuple(shape), (*pixels, shape[1]), (n, *range(n), n + 1), tuple(shape))


def _rows(c: Context, op: Any, x: Value) -> Tuple[str, str]:
    """The input, and the kernel that fits its order. A kernel that is shared keeps the order that it got first."""
    kernel = op._kernel
    flat = _flat_layout(kernel.shape, x.pixels) if x.order == FLAT and x.pixels else None
    known = c.names.get(id(kernel))
    if flat is None or known is not None and c.bindings[known].layout != flat:
        return x.keras(), c.weight(kernel)
    return x.at(FLAT), c.weight(kernel, flat)


@layer("Dense")
def _dense(c: Context, op: Any, x: Value) -> Value:
    _plain_weights(c, op)
    bias = [c.weight(op.bias)] if op.use_bias else []
    if x.rank == 2:
        name = c.emit("Gemm", [*_rows(c, op, x), *bias])
    else:
        name = c.emit("MatMul", [x.keras(), c.weight(op._kernel)])
        name = c.emit("Add", [name, *bias]) if bias else name
    return activate(c, c.made(name, KERAS, (*x.shape[:-1], op.units), x.dtype), op.activation)


@layer("Embedding")
def _embedding(c: Context, op: Any, x: Value) -> Value:
    _plain_weights(c, op)
    if x.number is not None:
        return _all_rows(c, op, x.number)
    c.rows[id(x)] = op.input_dim
    name = c.emit("Gather", [c.weight(op._embeddings), x.keras()], axis=0)
    return c.made(name, KERAS, (*x.shape, op.output_dim))


def _all_rows(c: Context, op: Any, ids: np.ndarray) -> Value:
    """Learned positions: the table itself."""
    if not np.array_equal(ids.ravel(), np.arange(op.input_dim)):
        c.refuse(f"{ids.size} constant ids of a table of {op.input_dim} rows", "use all of them, in their order: input_dim = tokens")
    y = c.made(c.weight(op._embeddings), KERAS, (op.input_dim, op.output_dim))
    y.is_weight = True
    return y


# ---- products with kernels of more axes

def _projection(c: Context, equation: str, rank: int) -> Tuple[int, int]:
    """How many of the last axes are summed over, and how many the kernel adds: of "abc,cde->abde" 1 and 2."""
    left, out = equation.replace(" ", "").split("->")
    x, kernel = left.split(",")
    dots = "..." in x
    x, out = x.replace("...", ""), out.replace("...", "")
    summed = [k for k in kernel if k in x]
    made = [k for k in kernel if k not in x]
    free = [k for k in x if k not in summed]
    regular = list(x) == free + summed and list(kernel) == summed + made and list(out) == free + made
    if not regular or not summed or not made or (not dots and len(x) != rank) or (free[:1] == [] and not dots):
        c.refuse(f"the equation '{equation}'", "sum over the last axes of the input and the first ones of the kernel, as in 'abc,cd->abd'")
    return len(summed), len(made)


def project(c: Context, op: Any, x: Value) -> Value:
    """An EinsumDense that is a product with a matrix, once axes are joined. Its result has one axis of features in
    the net; `shape` of the value is Keras'."""
    summed, made = _projection(c, op.equation, x.rank)
    kernel = tuple(op._kernel.shape)
    rows, columns = math.prod(kernel[:summed]), math.prod(kernel[summed:])
    name = x.keras()
    if summed > 1:
        name = c.emit("Reshape", [name, c.net.whole(0, *x.shape[1:-summed], rows)])
    name = c.emit("MatMul", [name, c.weight(op._kernel, reshaped(kernel, (rows, columns)))])
    if op.bias is not None:
        if math.prod(op.bias.shape) != columns:
            c.refuse(f"bias_axes={op.bias_axes!r}", "name the axes that the kernel adds")
        name = c.emit("Add", [name, c.weight(op.bias, reshaped(op.bias.shape, (columns,)))])
    y = c.made(name, KERAS, (*x.shape[:-summed], columns), x.dtype)
    return y if made == 1 else _split_last(c, y, kernel[summed:])


def _split_last(c: Context, x: Value, into: Sequence[int]) -> Value:
    y = c.emit("Reshape", [x.keras(), c.net.whole(0, *x.shape[1:-1], *into)])
    return c.made(y, KERAS, (*x.shape[:-1], *into), x.dtype)


@layer("EinsumDense")
def _einsum_dense(c: Context, op: Any, x: Value) -> Value:
    _plain_weights(c, op)
    return activate(c, project(c, op, x), op.activation)


# ---- attention

class Seen(NamedTuple):
    """What becomes of the products of queries and keys."""

    scale: float
    masks: List[str]
    causal: bool
    rate: float  # of dropout


NEVER = -0.7 * float(np.finfo(np.float32).max)  # Keras' own: any product that it is added to becomes it


def _head(c: Context, x: Value, turned: bool = False) -> str:
    """(n, t, heads, size) -> (n, heads, t, size), or (n, heads, size, t)"""
    return c.emit("Transpose", [x.keras()], perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def _causal(queries: int, keys: int) -> np.ndarray:
    return np.tril(np.ones((queries, keys), bool))


def _attention_masks(c: Context, masks: Sequence[Optional[Value]]) -> List[str]:
    """Of queries, values, keys, and of pairs: true where a query sees a key, as (n, 1, queries, keys) with extents of 1."""
    found: List[str] = []
    for mask, axes in zip(masks, ((1, 3), (1, 2), (1, 2), (1,))):
        if mask is None:
            continue
        name = mask.keras() if mask.dtype == "bool" else c.emit("Cast", [mask.keras()], to=9)
        found.append(c.emit("Unsqueeze", [name, c.net.whole(*axes)]) if mask.rank < 4 else name)
    return found


def _fused(c: Context, q: Value, k: Value, v: Value, words: str) -> str:
    """The operator of the C library, (n, heads x size, tokens) in and out; it never has a matrix of tokens times tokens."""
    flat = [c.made(c.emit("Reshape", [x.keras(), c.net.whole(0, x.shape[1], x.shape[2] * x.shape[3])]), KERAS,
                   (None, x.shape[1], x.shape[2] * x.shape[3])) for x in (q, k, v)]
    notes = {"megalith.op": "attention", "megalith.words": words}
    return c.emit("Attention", [x.first() for x in flat], notes=notes)


def _hidden(c: Context, x: str, masks: Sequence[str], number: float) -> str:
    """x where all masks are true, else the number."""
    for mask in masks:
        x = c.emit("Where", [mask, x, c.net.constant(number)])
    return x


def _shares(c: Context, scores: str, masks: Sequence[str], rate: float) -> str:
    """Of each key in what a query gets. Keras has three ways, which differ for queries that see no key at all:

        with dropout            they get nothing
        PyTorch                 the mean of all values; a number is added to hidden scores, through which gradients flow
        TensorFlow, JAX         the mean of all values; hidden scores are replaced, no gradient flows
    """
    if masks and rate > 0:
        return _hidden(c, c.emit("Softmax", [_hidden(c, scores, masks, NEVER)], axis=-1), masks, 0.0)
    if masks and keras.backend.backend() == "torch":
        nothing = c.emit("Mul", [scores, c.net.constant(0.0)])
        return c.emit("Softmax", [c.emit("Add", [scores, _hidden(c, nothing, masks, NEVER)])], axis=-1)
    return c.emit("Softmax", [_hidden(c, scores, masks, NEVER)], axis=-1)


def attend(c: Context, q: Value, k: Value, v: Value, seen: Seen) -> Value:
    """softmax(scale q k') v of each head; values are (n, tokens, heads, size)."""
    heads, size, tokens = q.shape[2], v.shape[3], q.shape[1]
    drops = c.training and seen.rate > 0
    if not seen.masks and not drops and size == q.shape[3]:
        usual = 0 if math.isclose(seen.scale, 1 / math.sqrt(q.shape[3]), rel_tol=1e-12) else seen.scale
        y = _fused(c, q, k, v, f"heads={heads} causal={int(seen.causal)} scale={usual:.17g}")
        return c.made(y, FIRST, (None, tokens, heads * size))
    scores = c.emit("MatMul", [_head(c, q), _head(c, k, True)])
    scores = c.emit("Mul", [scores, c.net.constant(float(seen.scale))])
    earlier = [c.net.constant(_causal(tokens, k.shape[1])[None, None])] if seen.causal else []
    shares = _shares(c, scores, [*earlier, *seen.masks], seen.rate)
    shares = dropout(c, c.made(shares, KERAS, (None, heads, tokens, k.shape[1])), seen.rate)
    y = c.emit("Transpose", [c.emit("MatMul", [shares.keras(), _head(c, v)])], perm=[0, 2, 1, 3])
    y = c.emit("Reshape", [y, c.net.whole(0, tokens, heads * size)])
    return c.made(y, KERAS, (None, tokens, heads * size))


@layer("MultiHeadAttention")
def _multi_head(c: Context, op: Any, query: Value, value: Value, key: Optional[Value] = None, query_mask: Any = None,
                value_mask: Any = None, key_mask: Any = None, attention_mask: Any = None,
                return_attention_scores: bool = False, use_causal_mask: bool = False) -> Value:
    if return_attention_scores or query.rank != 3 or getattr(op, "_use_gate", False) or getattr(op, "_sliding_window", None):
        c.refuse("return_attention_scores, gates, sliding windows, or other inputs than (batch, tokens, features)",
                 "call it without them")
    own = [query_mask, value_mask, key_mask, attention_mask]
    masks = [m if m is not None else c.masks.get(id(x)) for m, x in zip(own, (query, value, key, None))]
    q, k, v = (project(c, dense, x) for dense, x in ((op.query_dense, query), (op.key_dense, key or value), (op.value_dense, value)))
    y = attend(c, q, k, v, Seen(1 / math.sqrt(op.key_dim), _attention_masks(c, masks), use_causal_mask, op.dropout))
    y = _split_last(c, y, (q.shape[2], v.shape[3]))
    return project(c, op.output_dense, y)
