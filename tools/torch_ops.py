"""The operators of src/ops in PyTorch: one function each, from attributes and tensors to output.

    run(op, attrs, x, w, training=True) -> y

`x` are the data inputs and `w` the weights, in the operator's order; attributes are those of the
C descriptors, with their defaults. Running statistics in `w` are updated in place when training.
Gradients are autograd's. Here are layers, normalisations and what moves numbers; tools/torch_points.py and
tools/torch_losses.py have the others.
"""
import torch
from torch.nn import functional as F

import torch_losses
import torch_points
from torch_words import axes, flag, numbers, over_channels, padded, pads, words


def conv(a, x, w, training):
    space = x[0].dim() - 2
    convolve = (F.conv1d, F.conv2d, F.conv3d)[space - 1]
    image = padded(x[0], pads(a.get("pad", "0"), space), 0.0)
    return convolve(image, w[0], w[1] if len(w) > 1 else None, axes(a.get("stride", "1"), space), 0,
                    axes(a.get("dilation", "1"), space), int(a.get("groups", "1")))


def conv_transpose(a, x, w, training):
    """PyTorch's padding is symmetric: ours is cut off here."""
    space = x[0].dim() - 2
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[space - 1]
    stride, dilation = (axes(a.get(word, "1"), space) for word in ("stride", "dilation"))
    y = convolve(x[0], w[0], w[1] if len(w) > 1 else None, stride, 0,
                 axes(a.get("output_pad", "0"), space), int(a.get("groups", "1")), dilation)
    for axis, (before, after) in enumerate(pads(a.get("pad", "0"), space), 2):
        y = y.narrow(axis, before, y.shape[axis] - before - after)
    return y


def dense(a, x, w, training):
    return F.linear(x[0].flatten(1), w[0].flatten(1), w[1] if len(w) > 1 else None)


def pool_words(a, space):
    kernel = axes(a["kernel"], space)
    stride = axes(a["stride"], space) if a.get("stride") else kernel
    return kernel, stride, pads(a.get("pad") or "0", space), flag(a, "ceil")


def symmetric(pairs, kernel):
    """Can PyTorch's own padding say it?"""
    return all(p == q and 2 * p <= k for (p, q), k in zip(pairs, kernel))


def overhang(x, spans, stride, pairs, ceil):
    """What the last windows need beyond the padding, by PyTorch's rule for ceil mode: they start
    inside the input or the padding before it."""
    beyond = []
    for length, span, step, (before, after) in zip(x.shape[2:], spans, stride, pairs):
        room = length + before + after - span
        last = (-(-room // step) if ceil else room // step) * step
        if last >= length + before:
            last -= step
        beyond.append((0, max(0, last - room)))
    return beyond


def maxpool(a, x, w, training):
    space = x[0].dim() - 2
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[space - 1]
    kernel, stride, pairs, ceil = pool_words(a, space)
    dilation = axes(a.get("dilation") or "1", space)
    indices = flag(a, "indices")
    if symmetric(pairs, kernel):
        before = tuple(p for p, _ in pairs)
        return pool(x[0], kernel, stride, before, dilation, ceil, indices)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    beyond = overhang(x[0], spans, stride, pairs, ceil)
    image = padded(padded(x[0], pairs, float("-inf")), beyond, float("-inf"))
    y = pool(image, kernel, stride, 0, dilation, False, indices)
    return (y[0], unpadded(y[1], image.shape[2:], pairs, x[0].shape[2:])) if indices else y


def unpadded(indices, padded_shape, pairs, shape):
    """Flat indices into a padded plane as those into the plane itself."""
    places = [p - before for p, (before, _) in
              zip(torch.unravel_index(indices, padded_shape), pairs)]
    flat = torch.zeros_like(indices)
    for place, length in zip(places, shape):
        flat = flat * length + place
    return flat


def max_unpool(a, x, w, training):
    space = x[0].dim() - 2
    indices = x[1].long().reshape(x[0].shape)
    if a.get("size"):
        size = axes(a["size"], space)
        y = torch.zeros(*x[0].shape[:2], int(torch.tensor(size).prod()), dtype=x[0].dtype)
        return y.scatter(2, indices.flatten(2), x[0].flatten(2)).reshape(*x[0].shape[:2], *size)
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[space - 1]
    kernel, stride, pairs, _ = pool_words(a, space)
    return unpool(x[0], indices, kernel, stride, tuple(p for p, _ in pairs))


def window_sums(x, kernel, stride, dilation):
    """Of each channel."""
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
    taps = torch.ones(x.shape[1], 1, *kernel, dtype=x.dtype)
    return convolve(x, taps, None, stride, 0, dilation, x.shape[1])


def avgpool(a, x, w, training):
    """PyTorch's own knows neither dilation nor two paddings: sums over numbers of pixels there."""
    space = x[0].dim() - 2
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[space - 1]
    kernel, stride, pairs, ceil = pool_words(a, space)
    dilation = axes(a.get("dilation") or "1", space)
    count_pad = flag(a, "count_pad", True)
    if symmetric(pairs, kernel) and max(dilation) == 1:
        before = tuple(p for p, _ in pairs)
        return pool(x[0], kernel, stride, before, ceil, count_pad)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    beyond = overhang(x[0], spans, stride, pairs, ceil)
    ones = padded(torch.ones_like(x[0]), pairs, 1.0 if count_pad else 0.0)
    sums, counts = (window_sums(padded(t, beyond, 0.0), kernel, stride, dilation)
                    for t in (padded(x[0], pairs, 0.0), ones))
    return sums / counts


def adaptive_avgpool(a, x, w, training):
    space = x[0].dim() - 2
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[space - 1]
    return pool(x[0], axes(a["size"], space))


def corner_weights(a, length, out, scale):
    """Matrix (out, in) of one axis of resize, for what F.interpolate has no name."""
    p = torch.arange(out, dtype=torch.float64)
    linear = a.get("mode", "nearest") == "linear"
    coords = a.get("coords", "half_pixel" if linear else "asymmetric")
    at = {"half_pixel": (p + 0.5) / scale - 0.5, "asymmetric": p / scale,
          "align_corners": p * (length - 1) / max(out - 1, 1)}[coords]
    if linear:
        at = at.clamp(0, length - 1)
        return (1 - (at[:, None] - torch.arange(length)).abs()).clamp(min=0)
    rounded = {"floor": at.floor(), "ceil": at.ceil(), "down": (at - 0.5).ceil(),
               "up": (at + 0.5).floor()}[a.get("round", "floor")]
    return F.one_hot(rounded.clamp(0, length - 1).long(), length).double()


def resize(a, x, w, training):
    space = x[0].dim() - 2
    mode, coords = a.get("mode", "nearest"), a.get("coords", "mode")
    linear = ("linear", "bilinear", "trilinear")[space - 1]
    size = list(axes(a["size"], space)) if a.get("size") else None
    scale = [float(s) for s in a["scale"].split("x")] if a.get("scale") else None
    scale = scale * space if scale and len(scale) == 1 else scale
    key = (mode, coords, a.get("round", "floor"))
    known = {("nearest", "mode", "floor"): ("nearest", None),
             ("nearest", "half_pixel", "up"): ("nearest-exact", None),
             ("linear", "mode", "floor"): (linear, False),
             ("cubic", "mode", "floor"): ("bicubic", False),
             ("cubic", "align_corners", "floor"): ("bicubic", True),
             ("linear", "align_corners", "floor"): (linear, True)}
    if mode == "cubic" and space == 1:  # PyTorch has it of two axes
        flat = {**a, "scale": f"1x{a['scale']}"} if a.get("scale") else {**a, "size": f"1x{a['size']}"}
        return resize(flat, [x[0].unsqueeze(2)], w, training).squeeze(2)
    if key in known:
        return F.interpolate(x[0], size, scale, known[key][0], known[key][1])
    y = x[0]
    for axis in range(space):
        length = y.shape[2 + axis]
        out = size[axis] if size else int(length * scale[axis])
        matrix = corner_weights(a, length, out, scale[axis] if scale else out / length)
        y = torch.tensordot(y, matrix, ([2 + axis], [1])).movedim(-1, 2 + axis)
    return y


def gap(a, x, w, training):
    """Global average; the shape is the caller's to judge."""
    return x[0].flatten(2).mean(2)


def groups(a, x):
    size = int(a.get("norm", "0"))
    return x.split(size) if size else (x,)


def batchnorm(a, x, w, training):
    weight, bias, mean, var = w
    epsilon, momentum = float(a.get("epsilon", "1e-5")), float(a.get("momentum", "0.1"))
    parts = []
    for part in groups(a, x[0]) if training else (x[0],):
        new = [mean.clone(), var.clone()]  # autograd keeps what it is given
        parts.append(F.batch_norm(part, *new, weight, bias, training, momentum, epsilon))
        if training and a.get("variance") == "population":
            space = [0, *range(2, part.dim())]
            batch = part.detach().var(space, unbiased=False)
            new[1] = (1 - momentum) * var + momentum * batch
        mean.copy_(new[0])
        var.copy_(new[1])
    y = torch.cat(parts)
    return y.relu() if flag(a, "relu") else y


def groupnorm(a, x, w, training):
    epsilon = float(a.get("epsilon", "1e-5"))
    y = F.group_norm(x[0], int(a["groups"]), *(w or (None, None)), epsilon)
    return y.relu() if flag(a, "relu") else y


def instancenorm(a, x, w, training):
    epsilon = float(a.get("epsilon", "1e-5"))
    y = F.instance_norm(x[0], None, None, *(w or (None, None)), eps=epsilon)
    return y.relu() if flag(a, "relu") else y


def layernorm(a, x, w, training):
    """PyTorch normalises over the last axes: channels go there and back."""
    image = x[0] if a.get("axes") == "all" else x[0].movedim(1, -1)
    shape = image.shape[1:] if a.get("axes") == "all" else image.shape[-1:]
    weight, bias = (*w, None, None)[:2]
    y = F.layer_norm(image, shape, weight, bias, float(a.get("epsilon", "1e-5")))
    return y if a.get("axes") == "all" else y.movedim(-1, 1)


def cells(a, x):
    """Extents of the boxes that have one mean each: samples, channels, pixels."""
    pixels = [1 if flag(a, "pixels") else extent for extent in x.shape[2:]]
    return [int(a.get("norm", "0")) or x.shape[0], int(a.get("channels", "1")) or x.shape[1], *pixels]


def per_element(a, moments, x):
    """Moments of cells, once per element; what has no pixels gets them."""
    moments = moments.reshape(*moments.shape, *[1] * (x.dim() - moments.dim()))
    for axis, size in enumerate(cells(a, x)):
        moments = moments.repeat_interleave(size, axis).narrow(axis, 0, x.shape[axis])
    return moments


def cell_sums(a, x):
    for axis, size in enumerate(cells(a, x)):
        x = torch.stack([part.sum(axis) for part in x.split(size, axis)], axis)
    return x


def mean(a, x, w, training):
    y = cell_sums(a, x[0]) / cell_sums(a, torch.ones_like(x[0]))
    return y if flag(a, "pixels") else y.flatten(1)


def var(a, x, w, training):
    square = (x[0] - per_element(a, x[1], x[0])) ** 2
    return mean(a, [square], w, training)


def norm_sets(a, x, w, training):
    one = {"norm": "1", **a}
    center, width = (per_element(one, m, x[0]) for m in x[1:])
    y = (x[0] - center) / (width + float(a["epsilon"])).sqrt()
    if w:
        weight, *bias = (t if flag(a, "elements") else over_channels(t[None], x[0]) for t in w)
        y = y * weight + sum(bias)
    return y.relu() if flag(a, "relu") else y


def per_sample(a, moments, x):
    """Moments of groups (g, c), once per sample."""
    size = int(a.get("norm", "0")) or x.shape[0]
    rows = moments.flatten(1).repeat_interleave(size, 0)[:x.shape[0]]
    return over_channels(rows, x)


def norm(a, x, w, training):
    image, epsilon = x[0], float(a.get("epsilon", "1e-5"))
    momentum = float(a.get("momentum", "0.1"))
    moments = (x[1], x[2]) if training else (w[2][None], w[3][None])
    b = a if training else {**a, "norm": "0"}
    center, spread = (per_sample(b, m, image) for m in moments)
    y = (image - center) / (spread + epsilon).sqrt()
    y = y * over_channels(w[0][None], image) + over_channels(w[1][None], image)
    if training:
        for i, part in enumerate(groups(a, image)):
            count = part.numel() / part.shape[1]
            unbiased = a.get("variance") != "population" and count > 1
            scale = count / (count - 1) if unbiased else 1
            for running, m, s in ((w[2], x[1], 1), (w[3], x[2], scale)):
                batch = m.detach().flatten(1)[i] * s
                running.copy_((1 - momentum) * running + momentum * batch)
    return y.relu() if flag(a, "relu") else y


def concat(a, x, w, training):
    return torch.cat(x, 1)


def flatten(a, x, w, training):
    return x[0].flatten(1)


def sliced(a, x, w, training):
    """Slice."""
    y, named = x[0], numbers(a, "axes")
    lists = [numbers(a, word, initial) for word, initial in (("begin", "0"), ("end", ""),
                                                             ("step", "1"))]
    count = len(named) or max(len(entries) for entries in lists)
    named = named or range(y.dim() - count, y.dim())
    for i, axis in enumerate(named):
        begin, end, step = (entries[min(i, len(entries) - 1)] if entries else None
                            for entries in lists)
        index = [slice(None)] * y.dim()
        index[axis] = slice(begin, end, step)
        y = y[tuple(index)]
    return y


def pad(a, x, w, training):
    mode = {"edge": "replicate", "wrap": "circular"}.get(a.get("mode"), a.get("mode", "constant"))
    pairs = pads(a["pad"], max(x[0].dim() - 2, 1))
    sides = [side for pair in reversed(pairs) for side in pair]
    if mode == "constant":
        return F.pad(x[0], sides, value=float(a.get("value", "0")))
    return F.pad(x[0], sides, mode=mode)


def roll(a, x, w, training):
    return x[0].roll(numbers(a, "shift"), numbers(a, "axes"))


def take(a, x, w, training):
    return x[0].index_select(int(a.get("axis", "-1")), w[0].round().long())


def lift(a, x, w, training):
    return x[0].reshape(1, *numbers(a, "dims"))


def transpose(a, x, w, training):
    return x[0].permute(numbers(a, "axes"))


def reshape(a, x, w, training):
    dims = [x[0].shape[i] if d == 0 else d for i, d in enumerate(numbers(a, "dims"))]
    return x[0].reshape(dims)


def gather(a, x, w, training):
    axis = int(a.get("axis", "-1")) % x[0].dim()
    shape = [1] * x[0].dim()
    shape[0], shape[axis] = x[1].shape
    full = list(x[0].shape)
    full[axis] = x[1].shape[1]
    return x[0].gather(axis, x[1].long().reshape(shape).expand(full))


def embedding(a, x, w, training):
    return F.embedding(x[0].long(), w[0]).movedim(-1, 1)


def position(a, x, w, training):
    return x[0] + w[0]


def matmul(a, x, w, training):
    return x[0] @ x[1]


def attention(a, x, w, training):
    heads = int(a["heads"])
    q, k, v = (t.unflatten(1, (heads, -1)).transpose(2, 3) for t in x)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=flag(a, "causal"),
                                       scale=float(a.get("scale", "0")) or None)
    return y.transpose(2, 3).flatten(1, 2)


def recurrent(a, x, w, kind, gates):
    """PyTorch's own layer, its input weight the identity: x is what the input adds to the gates."""
    units, rows = int(a["units"]), gates * int(a["units"])
    reverse, bias = flag(a, "reverse"), flag(a, "bias", True)
    steps = x[0].movedim(2, 1).flip(1) if reverse else x[0].movedim(2, 1)
    net = kind(rows, units, bias=bias, batch_first=True).double()
    own = {"weight_ih_l0": torch.eye(rows, dtype=torch.float64), "weight_hh_l0": w[0]}
    if bias:
        own.update(bias_ih_l0=torch.zeros(rows, dtype=torch.float64), bias_hh_l0=w[1])
    first = [t[None].contiguous() for t in steps[:, 0, rows:].split(units, 1)] if flag(a, "states") else None
    if first:
        first = first[0] if len(first) == 1 else tuple(first)
    y = torch.func.functional_call(net, own, (steps[:, :, :rows], first))[0]
    return (y.flip(1) if reverse else y).movedim(1, 2)


def lstm(a, x, w, training):
    return recurrent(a, x, w, torch.nn.LSTM, 4)


def gru(a, x, w, training):
    return recurrent(a, x, w, torch.nn.GRU, 3)


def weightnorm(a, x, w, training):
    return x[0] * (w[1] / w[0].flatten(1).norm(dim=1)).reshape(1, -1, *[1] * (x[0].dim() - 2))


def spectralnorm(a, x, w, training):
    """PyTorch's own parametrization; sigma is read off what it makes of the weight."""
    norm = torch.nn.utils.parametrizations._SpectralNorm(
        w[0].detach(), int(a.get("iterations", "1")), int(a.get("dim", "0")), float(a.get("epsilon", "1e-12")))
    norm._u.copy_(w[1])
    norm._v.copy_(w[2])
    norm.train(training)
    sigma = (w[0] * w[0].detach()).sum() / (norm(w[0]) * w[0].detach()).sum()
    if training:
        w[1].copy_(norm._u)
        w[2].copy_(norm._v)
    return x[0] / sigma


OPS = {f.__name__: f for f in (adaptive_avgpool, attention, avgpool, batchnorm, concat, conv,
                               conv_transpose, dense, embedding, flatten, gap, gather,
                               groupnorm, gru, instancenorm, layernorm, lift, lstm, matmul, max_unpool,
                               maxpool, mean, norm, norm_sets, pad, position, reshape, resize,
                               roll, spectralnorm, take, transpose, var, weightnorm)}
OPS.update(torch_points.OPS, **torch_losses.OPS, slice=sliced)


def run(op, attrs, x, w, training=True):
    return OPS[op](words(attrs), x, w, training)
