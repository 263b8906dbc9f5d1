"""Operators that move numbers about, and those that leave them where they are."""
from __future__ import annotations

from typing import Any, List, Optional

import torch

from ..torch import STOPPED, Capture, Draw, Known, operator
from .whole import is_whole, real, truth


def reshape_to(c: Capture, n: torch.fx.Node, x: Any) -> Any:
    """To the extents that the node has: they are all known."""
    return c.emit("Reshape", [x, c.net.whole(*c.shape(n))])


@operator("view", "reshape", "_unsafe_view", "view_as", "reshape_as", "unflatten", "flatten")
def reshape(c: Capture, n: torch.fx.Node, self: Any, **_: Any) -> Any:
    if isinstance(self, Draw):
        return Draw(c.shape(n), self.rate, self.value)
    if c.shape(n) == c.shape(n.args[0]):
        return self
    return reshape_to(c, n, self)


@operator("unsqueeze")
def unsqueeze(c: Capture, n: torch.fx.Node, self: Any, dim: int) -> Any:
    if isinstance(self, Draw):
        return Draw(c.shape(n), self.rate, self.value)
    return c.emit("Unsqueeze", [self, c.net.whole(dim % len(c.shape(n)))])


@operator("squeeze")
def squeeze(c: Capture, n: torch.fx.Node, self: Any, dim: Any = None) -> Any:
    have = c.shape(n.args[0])
    asked = range(len(have)) if dim is None else [d % len(have) for d in ([dim] if isinstance(dim, int) else dim)]
    gone = [d for d in asked if have[d] == 1]
    return c.emit("Squeeze", [self, c.net.whole(*gone)]) if gone else self


def permuted(c: Capture, x: Any, order: List[int]) -> Any:
    return x if order == sorted(order) else c.emit("Transpose", [x], perm=order)


@operator("transpose", "swapaxes", "swapdims")
def transpose(c: Capture, n: torch.fx.Node, self: Any, **axes: int) -> Any:
    rank = len(c.shape(n))
    a, b = [d % rank for d in axes.values()]
    order = list(range(rank))
    order[a], order[b] = b, a
    return permuted(c, self, order)


@operator("t", "numpy_T", "mT", "adjoint")
def matrix_transpose(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    order = list(range(len(c.shape(n))))
    if len(order) > 1:
        order[-2:] = order[:-3:-1]
    return permuted(c, self, order)


@operator("permute")
def permute(c: Capture, n: torch.fx.Node, self: Any, dims: List[int]) -> Any:
    return permuted(c, self, [d % len(dims) for d in dims])


@operator("movedim", "moveaxis")
def movedim(c: Capture, n: torch.fx.Node, self: Any, source: Any, destination: Any) -> Any:
    rank = len(c.shape(n))
    start, end = [[d % rank for d in ([v] if isinstance(v, int) else v)] for v in (source, destination)]
    order: List[Optional[int]] = [None] * rank
    for s, d in zip(start, end):
        order[d] = s
    rest = iter(d for d in range(rank) if d not in start)
    return permuted(c, self, [next(rest) if d is None else d for d in order])


@operator("expand", "expand_as", "broadcast_to")
def expand(c: Capture, n: torch.fx.Node, self: Any, **_: Any) -> Any:
    have, want = tuple(c.shape(n.args[0])), tuple(c.shape(n))
    if have == want:
        return self
    if len(have) < len(want):  # what a weight is spread over, the batch, is an axis of its own first
        self = c.emit("Reshape", [self, c.net.whole(*(1,) * (len(want) - len(have)), *have)])
    return c.emit("Expand", [self, c.net.whole(*want)])


@operator("repeat", "tile")
def repeat(c: Capture, n: torch.fx.Node, self: Any, repeats: Any = None, dims: Any = None) -> Any:
    """Copies side by side, along one axis after the other. Of an axis of extent 1 that is Expand."""
    times = [int(t) for t in (repeats if dims is None else dims)]
    have = c.shape(n.args[0])
    have = (1,) * (len(times) - len(have)) + tuple(have)
    times = [1] * (len(have) - len(times)) + times
    if len(have) > len(c.shape(n.args[0])):
        self = c.emit("Reshape", [self, c.net.whole(*have)])
    if all(t == 1 or h == 1 for t, h in zip(times, have)):
        return expand(c, n, self) if any(t > 1 for t in times) else self
    for axis, t in enumerate(times):
        if t > 1:
            self = c.emit("Concat", [self] * t, axis=axis)
    return self


@operator("repeat_interleave")
def repeat_interleave(c: Capture, n: torch.fx.Node, repeats: Any, self: Any = None, dim: Any = None, **_: Any) -> Any:
    """Each part of an axis so many times, one behind the other: copies side by side on an axis of their own."""
    if self is None or dim is None or not isinstance(repeats, int):
        raise c.refuse("repeat_interleave is supported with one number of times, and dim=")
    have = list(c.shape(n.args[0]))
    at = dim % len(have) + 1
    apart = c.emit("Reshape", [self, c.net.whole(*have[:at], 1, *have[at:])])
    return c.emit("Reshape", [c.emit("Concat", [apart] * repeats, axis=at), c.net.whole(*c.shape(n))])


# ---- joining, cutting

@operator("cat", "concat", "concatenate")
def cat(c: Capture, n: torch.fx.Node, tensors: List[Any], dim: int) -> Any:
    nodes = n.args[0]
    kept = [v for v, x in zip(tensors, nodes) if 0 not in c.shape(x)]
    return kept[0] if len(kept) == 1 else c.emit("Concat", kept, axis=dim % len(c.shape(n)))


@operator("stack")
def stack(c: Capture, n: torch.fx.Node, tensors: List[Any], dim: int) -> Any:
    axis = dim % len(c.shape(n))
    return c.emit("Concat", [c.emit("Unsqueeze", [t, c.net.whole(axis)]) for t in tensors], axis=axis)


def cut(c: Capture, n: torch.fx.Node, x: Any, dim: int) -> Any:
    """Into the parts that the node has."""
    dim = dim % len(c.shape(n.args[0]))
    sizes = [int(v.shape[dim]) for v in n.meta["val"]]
    if len(sizes) == 1:
        return [x]
    return c.emit("Split", [x, c.net.whole(*sizes)], outputs=len(sizes), axis=dim)


@operator("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(c: Capture, n: torch.fx.Node, self: Any, dim: int, **_: Any) -> Any:
    return cut(c, n, self, dim)


@operator("unbind")
def unbind(c: Capture, n: torch.fx.Node, self: Any, dim: int) -> Any:
    dim = dim % len(c.shape(n.args[0]))
    return [c.emit("Gather", [self, Known(torch.tensor(i))], axis=dim) for i in range(len(n.meta["val"]))]


@operator("select")
def select(c: Capture, n: torch.fx.Node, self: Any, dim: int, index: int) -> Any:
    have = c.shape(n.args[0])
    return c.emit("Gather", [self, Known(torch.tensor(int(index) % have[dim]))], axis=dim % len(have))


@operator("slice", "narrow")
def cut_out(c: Capture, n: torch.fx.Node, self: Any, dim: int, start: Any, end: Any = None, step: int = 1,
            length: Any = None) -> Any:
    have, out = c.shape(n.args[0]), c.shape(n)
    if have == out and step == 1:
        return self
    axis = dim % len(have)
    begin = int(start or 0)
    begin = max(begin + have[axis], 0) if begin < 0 else begin
    stop = begin + (out[axis] - 1) * step + 1
    return c.emit("Slice", [self, *[c.net.whole(v) for v in (begin, stop, axis, step)]])


@operator("index_select")
def index_select(c: Capture, n: torch.fx.Node, self: Any, dim: int, index: Any) -> Any:
    if not isinstance(index, Known):
        raise c.refuse("entries that data names are not supported here: use torch.nn.Embedding for rows of a table")
    return c.emit("Gather", [self, index], axis=dim % len(c.shape(n.args[0])))


@operator("index")
def index(c: Capture, n: torch.fx.Node, self: Any, indices: List[Any]) -> Any:
    used = [(i, v) for i, v in enumerate(indices) if v is not None]
    if len(used) != 1 or not isinstance(used[0][1], Known):
        raise c.refuse("indexing by several tensors, or by data, is not supported: use slices, index_select with a constant, "
                       "or torch.nn.Embedding")
    axis, value = used[0]
    t = value.tensor
    if t.dtype == torch.bool:
        t = t.nonzero().flatten()
    return c.emit("Gather", [self, Known(t.long())], axis=axis)


@operator("flip")
def flip(c: Capture, n: torch.fx.Node, self: Any, dims: List[int]) -> Any:
    have = c.shape(n)
    for d in (d % len(have) for d in dims):
        self = c.emit("Gather", [self, Known(torch.arange(have[d] - 1, -1, -1))], axis=d)
    return self


@operator("roll")
def roll(c: Capture, n: torch.fx.Node, self: Any, shifts: Any, dims: Any) -> Any:
    """The end goes to the front: two slices, joined."""
    have = c.shape(n)
    if not dims:
        raise c.refuse("without dims= all axes are rolled as one, the batch too: name the axes")
    for s, d in zip([shifts] if isinstance(shifts, int) else shifts, [dims] if isinstance(dims, int) else dims):
        axis, extent = d % len(have), have[d]
        at = -int(s) % extent
        if at == 0:
            continue
        ends = [(at, extent), (0, at)]
        self = c.emit("Concat", [c.emit("Slice", [self, *[c.net.whole(v) for v in (a, b, axis, 1)]]) for a, b in ends],
                      axis=axis)
    return self


@operator("pixel_shuffle")
def pixel_shuffle(c: Capture, n: torch.fx.Node, self: Any, upscale_factor: int) -> Any:
    return c.emit("DepthToSpace", [self], blocksize=upscale_factor, mode="CRD")


@operator("pixel_unshuffle")
def pixel_unshuffle(c: Capture, n: torch.fx.Node, self: Any, downscale_factor: int) -> Any:
    b, channels, h, w = c.shape(n.args[0])
    r = downscale_factor
    apart = c.emit("Reshape", [self, c.net.whole(b, channels, h // r, r, w // r, r)])
    return reshape_to(c, n, c.emit("Transpose", [apart], perm=[0, 1, 3, 5, 2, 4]))


@operator("channel_shuffle")
def channel_shuffle(c: Capture, n: torch.fx.Node, self: Any, groups: int) -> Any:
    have = c.shape(n)
    apart = c.emit("Reshape", [self, c.net.whole(have[0], groups, have[1] // groups, *have[2:])])
    order = [0, 2, 1, *range(3, len(have) + 1)]
    return c.emit("Reshape", [c.emit("Transpose", [apart], perm=order), c.net.whole(*have)])


# ---- the same numbers

@operator("contiguous", "clone", "alias", "lift_fresh_copy", "view_as_real_copy", "positive")
def same(c: Capture, n: torch.fx.Node, self: Any, **_: Any) -> Any:
    return self


@operator("detach")
def detach(c: Capture, n: torch.fx.Node, self: Any) -> Any:
    if c.trains(self):
        raise c.refuse(STOPPED)
    return self


@operator("to", "_to_copy", "type_as", "float", "double", "half")
def cast(c: Capture, n: torch.fx.Node, self: Any, **_: Any) -> Any:
    """All real numbers are the device's; whole ones stay what they are, until a real one is wanted."""
    before, after = n.args[0].meta["val"].dtype, n.meta["val"].dtype
    if is_whole(n.args[0]) and after == torch.bool:
        return truth(c, n.args[0], self)
    if is_whole(n.args[0]) and after.is_floating_point:
        return real(c, n.args[0], self)
    if before == after or (before.is_floating_point and after.is_floating_point):
        return self
    if not before.is_floating_point and not after.is_floating_point and torch.bool not in (before, after):
        return self
    kinds = {torch.float32: 1, torch.float64: 11, torch.int64: 7, torch.int32: 6, torch.bool: 9}
    if after not in kinds:
        raise c.refuse(f"a cast from {before} to {after} is not supported")
    return c.emit("Cast", [self], to=kinds[after])


@operator("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
          "zeros", "ones", "full", "empty")
def filled(c: Capture, n: torch.fx.Node, fill_value: Any = 0, **_: Any) -> Any:
    """Of data only its shape is asked for."""
    name = str(n.target).split(".")[1]
    value = 1 if "ones" in name else 0 if "zeros" in name or "empty" in name else fill_value
    shape = c.shape(n)
    return Known(torch.full(shape, value, dtype=n.meta["val"].dtype), batch=c.batch in shape)


