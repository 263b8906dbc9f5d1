"""What is written to a part of a tensor: `y[:, 0] = 0`, `y[:, 1:3].mul_(2)`.

The part's view gets a new value, and this is how it comes back into what it was cut out of: between the pieces before and
behind it. Of a part that is known only a mask is needed, which says where it is.
"""
from __future__ import annotations

from typing import Any, Tuple

import torch

from ..torch import Capture, Known, operator, written_back

Node = torch.fx.Node
Span = Tuple[int, int, int]  # axis, begin, end


# ---- the new value of a part

@operator("zero")
def zero(c: Capture, n: Node, self: Any) -> Any:
    return fill(c, n, self, 0)


@operator("fill")
def fill(c: Capture, n: Node, self: Any, value: Any) -> Any:
    if isinstance(value, Known):
        value = value.tensor.item()
    if not isinstance(value, (bool, int, float)):
        raise c.refuse("it fills a tensor with a number that is computed: write it with torch.where")
    shape = c.shape(n.args[0])
    return Known(torch.full(shape, value, dtype=n.meta["val"].dtype), batch=c.batch in shape)


@operator("copy")
def copy(c: Capture, n: Node, self: Any, src: Any, non_blocking: bool = False) -> Any:
    to, of = n.args[0].meta["val"], n.args[1].meta["val"]
    if isinstance(src, Known):
        return Known(src.tensor.to(to.dtype).expand(c.shape(n.args[0])), batch=src.batch)
    if to.is_floating_point() != of.is_floating_point():
        raise c.refuse(f"numbers that are {of.dtype} become {to.dtype}: convert them first")
    return src if c.shape(n.args[0]) == c.shape(n.args[1]) else c.emit("Expand", [src, c.net.whole(*c.shape(n.args[0]))])


# ---- and where it goes

def _inside(c: Capture, whole: Tuple[int, ...], span: Span) -> torch.Tensor:
    """True in the part; the batch, which no part cuts, has one entry."""
    axis, begin, end = span
    mask = torch.zeros([1 if d == c.batch and i == 0 else d for i, d in enumerate(whole)], dtype=torch.bool)
    mask.narrow(axis, begin, end - begin).fill_(True)
    return mask


def _spread(part: torch.Tensor, mask: torch.Tensor, span: Span) -> torch.Tensor:
    """The part's numbers in their place, zeros elsewhere."""
    out = torch.zeros(mask.shape, dtype=part.dtype)
    axis, begin, end = span
    out.narrow(axis, begin, end - begin).copy_(part)
    return out


def _put_known(c: Capture, at: Node, value: Any, part: Known, span: Span) -> Any:
    shape = c.shape(at.args[0])
    if part.batch and part.tensor.shape[0] == c.batch and not bool((part.tensor == part.tensor[:1]).all()):
        raise c.refuse("it makes numbers that differ from sample to sample of the batch")
    mask, data = _inside(c, shape, span), shape[0] == c.batch
    numbers = _spread(part.tensor[:1] if data else part.tensor, mask, span)
    if data:
        first = part.tensor.flatten()[0]
        fill = float(first) if bool((part.tensor == first).all()) else Known(numbers)
        return c.emit("Where", [Known(mask), fill, value])
    kept = c.emit("Mul", [value, Known((~mask).to(numbers.dtype))])  # of a weight: arithmetic
    return c.emit("Add", [kept, Known(numbers)]) if bool(numbers.any()) else kept


def _put_into_known(c: Capture, at: Node, whole: Known, part: str, span: Span) -> Any:
    shape, (axis, begin, end) = c.shape(at.args[0]), span
    before, behind = [0] * len(shape), [0] * len(shape)
    before[axis], behind[axis] = begin, shape[axis] - end
    y = c.emit("Pad", [part, c.net.whole(*before, *behind), 0.0], mode="constant")
    rest = whole.tensor.masked_fill(_inside(c, shape, span), 0)
    return c.emit("Add", [y, Known(rest, batch=whole.batch)]) if bool(rest.any()) else y


def put(c: Capture, at: Node, part: Any, span: Span) -> Any:
    """The value of what the view `at` is a span of, with the part in its place."""
    shape, value = c.shape(at.args[0]), c.env[at.args[0]]
    axis, begin, end = span
    if (begin, end) == (0, shape[axis]):
        return part
    if axis == 0 and shape[0] == c.batch:
        raise c.refuse("it changes some samples of the batch and not the others: use torch.where")
    if isinstance(part, Known):
        return _put_known(c, at, value, part, span)
    if isinstance(value, Known):
        return _put_into_known(c, at, value, part, span)

    def piece(a: int, b: int) -> Any:
        return c.emit("Slice", [value, *[c.net.whole(v) for v in (a, b, axis, 1)]])
    pieces = ([piece(0, begin)] if begin else []) + [part] + ([piece(end, shape[axis])] if end < shape[axis] else [])
    return c.emit("Concat", pieces, axis=axis)


@written_back("slice")
def put_slice(c: Capture, at: Node, part: Any) -> Any:
    given = c._arguments(at)
    have, out = c.shape(at.args[0]), c.shape(at)
    axis, begin = int(given["dim"]) % len(have), int(given["start"] or 0)
    if have == out:
        return part
    if given["step"] != 1:
        raise c.refuse("it changes every other entry of a tensor: use torch.where")
    begin = max(begin + have[axis], 0) if begin < 0 else begin
    return put(c, at, part, (axis, begin, begin + out[axis]))


@written_back("select")
def put_entry(c: Capture, at: Node, part: Any) -> Any:
    given, have = c._arguments(at), c.shape(at.args[0])
    axis = int(given["dim"]) % len(have)
    index = int(given["index"]) % have[axis]
    wide = Known(part.tensor.unsqueeze(axis), batch=part.batch) if isinstance(part, Known) else \
        c.emit("Unsqueeze", [part, c.net.whole(axis)])
    return put(c, at, wide, (axis, index, index + 1))


@written_back("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as")
def put_shape(c: Capture, at: Node, part: Any) -> Any:
    shape = c.shape(at.args[0])
    if isinstance(part, Known):
        return Known(part.tensor.reshape(shape), batch=part.batch)
    return c.emit("Reshape", [part, c.net.whole(*shape)])
