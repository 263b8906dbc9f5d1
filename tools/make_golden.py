"""Makes tests/golden/ops.safetensors: what PyTorch computes, in double, for small operator cases.

    python3 tools/make_golden.py            # needs torch, numpy, safetensors

tests/t140-golden.c runs the plain kernels on the file, so that every build is compared with
PyTorch without having it. Tensors of case K: K.x0.. data inputs, K.w0.. weights, K.dy, and the
results K.y, K.eval (evaluation mode), K.dx0.., K.dw0.., K.after0.. (weights after the state pass).
The metadata has one word, "cases": "name|operator|shapes|attributes" of each, separated by ";".
"""
import os

import numpy
import torch
from safetensors.numpy import save_file

import torch_ops

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "golden",
                    "ops.safetensors")
LIMIT = 200_000  # bytes: the file lives in the repository

# name: operator, shapes of the data inputs, attributes, shapes of the weights
NORM = ("batchnorm", "3x4x3x5")
CASES = {
    "conv.plain": ("conv", "2x3x6x5", "filters=4 kernel=3", ["4x3x3x3", "4"]),
    "conv.pad": ("conv", "2x3x5x4", "filters=3 kernel=3 pad=1 bias=0", ["3x3x3x3"]),
    "conv.stride": ("conv", "1x2x9x8", "filters=3 kernel=5x3 stride=3x2 pad=2x1",
                    ["3x2x5x3", "3"]),
    "conv.dilation": ("conv", "1x2x9x7", "filters=2 kernel=3 dilation=2 pad=2", ["2x2x3x3", "2"]),
    "conv.uneven": ("conv", "1x2x6x5", "filters=2 kernel=4x2 pad=1:2x0:1", ["2x2x4x2", "2"]),
    "conv.groups": ("conv", "2x4x5x5", "filters=6 kernel=3 pad=1 groups=2", ["6x2x3x3", "6"]),
    "conv.depthwise": ("conv", "1x4x6x5", "filters=4 kernel=3 stride=2 pad=1 groups=4 bias=0",
                       ["4x1x3x3"]),
    "conv.one": ("conv", "2x5x4x3", "filters=3 kernel=1", ["3x5x1x1", "3"]),
    "conv.1d": ("conv", "2x3x11", "filters=2 kernel=3 stride=2 pad=1", ["2x3x3", "2"]),
    "conv.3d": ("conv", "1x2x4x5x3", "filters=2 kernel=3x2x3 pad=1x0x1", ["2x2x3x2x3", "2"]),
    "transpose.two": ("conv_transpose", "1x3x3x4", "filters=2 kernel=2 stride=2", ["3x2x2x2", "2"]),
    "transpose.uneven": ("conv_transpose", "1x2x4x3",
                         "filters=2 kernel=3x4 stride=2x3 pad=1:0x0:1 output_pad=1x2 bias=0",
                         ["2x2x3x4"]),
    "transpose.groups": ("conv_transpose", "1x4x3x3", "filters=6 kernel=3 dilation=2 groups=2",
                         ["4x3x3x3", "6"]),
    "transpose.3d": ("conv_transpose", "1x2x2x3x2", "filters=2 kernel=2x3x2 stride=2x1x2",
                     ["2x2x2x3x2", "2"]),
    "resize.nearest": ("resize", "1x2x3x4", "scale=1.5x2", []),
    "resize.exact": ("resize", "1x2x5x4", "size=3x7 coords=half_pixel round=up", []),
    "resize.linear": ("resize", "1x2x3x4", "mode=linear scale=2", []),
    "resize.corners": ("resize", "1x2x3x4", "mode=linear size=5x3 coords=align_corners", []),
    "resize.cubic": ("resize", "1x2x3x4", "mode=cubic scale=2", []),
    "resize.curve": ("resize", "1x2x5x3", "mode=cubic size=3x5 coords=align_corners", []),
    "resize.3d": ("resize", "1x1x2x3x2", "mode=linear scale=2", []),
    "bins.uneven": ("adaptive_avgpool", "1x2x7x5", "size=3x4", []),
    "groupnorm.relu": ("groupnorm", "2x6x3x2", "groups=3 relu=1", ["6", "6"]),
    "instancenorm.plain": ("instancenorm", "2x3x3x4", "epsilon=1e-3", []),
    "layernorm.c": ("layernorm", "2x5x6", "", ["5", "5"]),
    "layernorm.all": ("layernorm", "2x2x3x2", "axes=all", ["2x3x2", "2x3x2"]),
    "dense.bias": ("dense", "3x7", "units=5", ["5x7", "5"]),
    "dense.image": ("dense", "2x3x2x4", "units=4 bias=0", ["4x24"]),
    "maxpool.two": ("maxpool", "2x2x6x5", "kernel=2", []),
    "maxpool.pad": ("maxpool", "2x2x7x7", "kernel=3 stride=2 pad=1", []),
    "maxpool.ceil": ("maxpool", "1x2x7x6", "kernel=3 stride=2 ceil=1", []),
    "maxpool.3d": ("maxpool", "1x2x4x4x5", "kernel=2x2x3 stride=2", []),
    "avgpool.two": ("avgpool", "2x2x6x5", "kernel=2", []),
    "avgpool.pad": ("avgpool", "1x2x7x7", "kernel=3 stride=2 pad=1", []),
    "avgpool.inside": ("avgpool", "1x2x7x7", "kernel=3 stride=2 pad=1 count_pad=0", []),
    "avgpool.ceil": ("avgpool", "1x2x7x6", "kernel=3 stride=2 pad=1 ceil=1", []),
    "gap.2d": ("gap", "2x5x4x3", "", []),
    "batchnorm.plain": (*NORM, "", ["4"] * 4),
    "batchnorm.relu": (*NORM, "relu=1 momentum=0.3", ["4"] * 4),
    "batchnorm.keras": (*NORM, "epsilon=1e-3 momentum=0.01 variance=population", ["4"] * 4),
    "batchnorm.groups": (*NORM, "norm=2", ["4"] * 4),
    "batchnorm.rows": ("batchnorm", "6x3", "", ["3"] * 4),
    "add.relu": ("add", "2x3x4x2 2x3x4x2", "relu=1", []),
    "add.three": ("add", "2x3x2 2x3x2 2x3x2", "", []),
    "concat.two": ("concat", "2x3x2x3 2x2x2x3", "", []),
    "roll.two": ("roll", "2x2x4x3", "axes=2x3 shift=-3x1", []),
    "take.twice": ("take", "2x3x4", "axis=2 count=6", ["6"]),
    "lift.table": ("lift", "1x2x6", "dims=4x3", []),
    "pad.wrap": ("pad", "1x2x3x4", "pad=2:1x0:3 mode=wrap", []),
    "lstm.plain": ("lstm", "2x12x4", "units=3", ["12x3", "12"]),
    "lstm.back": ("lstm", "2x12x3", "units=2 reverse=1 bias=0 states=1", ["8x2"]),
    "gru.plain": ("gru", "2x9x4", "units=3", ["9x3", "9"]),
    "gru.back": ("gru", "2x8x3", "units=2 reverse=1 states=1", ["6x2", "6"]),
    "weightnorm.conv": ("weightnorm", "2x3x2x4", "shape=3x2x3x3", ["3x2x3x3", "3"]),
    "spectralnorm.dense": ("spectralnorm", "3x4", "shape=4x5", ["4x5", "4", "5"]),
    "spectralnorm.conv": ("spectralnorm", "2x3x2x4", "shape=3x2x3x3 iterations=3 epsilon=1e-4", ["3x2x3x3", "3", "18"]),
    "spectralnorm.transposed": ("spectralnorm", "1x4x3x2", "shape=3x4x2x2 dim=1", ["3x4x2x2", "4", "12"]),
    "relu.2d": ("relu", "2x3x4x5", "", []),
    "flatten.2d": ("flatten", "2x3x2x4", "", []),
    "softmax_xent.rows": ("softmax_xent", "5x7 5@7 1", "", []),
    "softmax_xent.pixels": ("softmax_xent", "2x4x3x2 2x3x2@4 1", "", []),
    "softmax_xent.ignored": ("softmax_xent", "5x7 5@7 1", "", []),
}

STATES = {"batchnorm": (2, 3), "spectralnorm": (1, 2)}  # weights that training changes, without a gradient


def dims(shape):
    return [int(extent) for extent in shape.split("@")[0].split("x")]


def draw(rng, op, index, shape):
    """Data input `index`: labels below their classes, a count of samples, or normal numbers."""
    extents = dims(shape)
    if "@" in shape:
        return torch.tensor(rng.integers(int(shape.split("@")[1]), size=extents, dtype=numpy.int32))
    if op == "softmax_xent" and index == 2:
        return torch.full(extents, 3.0, dtype=torch.float64)
    return exact(rng.standard_normal(extents))


def exact(values):
    """Numbers that float holds too, as double."""
    return torch.tensor(values.astype(numpy.float32)).double()


def draw_weights(rng, op, shapes):
    w = [exact(rng.standard_normal(dims(s))) for s in shapes]
    if op == "take":
        w[0] = exact(rng.integers(4, size=dims(shapes[0])))
    if op == "spectralnorm":
        w[1:] = [exact((t / t.norm()).numpy()) for t in w[1:]]
    if op == "batchnorm":
        w[3] = exact(rng.uniform(0.5, 1.5, dims(shapes[3])))
    return w


def make(name, case):
    """All tensors of one case."""
    op, shapes, attrs, weights = case
    rng = numpy.random.default_rng([ord(letter) for letter in name])
    x = [draw(rng, op, i, s) for i, s in enumerate(shapes.split())]
    if name.endswith("ignored"):
        x[1][::2] = -1
    w = draw_weights(rng, op, weights)
    out = {f"x{i}": t.clone() for i, t in enumerate(x)}
    out.update({f"w{i}": t.clone() for i, t in enumerate(w)})
    if op in STATES:
        out["eval"] = torch_ops.run(op, attrs, x, w, training=False)
    learned = w[:STATES[op][0]] if op in STATES else w
    leaves = [t.requires_grad_() for t in [x[0], *learned]]
    leaves += [t.requires_grad_() for t in x[1:] if op in ("add", "concat")]
    y = torch_ops.run(op, attrs, x, w)
    dy = exact(rng.standard_normal(list(y.shape)))
    y.backward(dy)
    out.update(y=y, dy=dy)
    out.update({f"dx{i}": t.grad for i, t in enumerate(x) if t.grad is not None})
    out.update({f"dw{i}": t.grad for i, t in enumerate(w) if t.grad is not None})
    out.update({f"after{i}": w[i] for i in STATES.get(op, ())})
    return out


def stored(key, tensor):
    """Inputs are exact in float; results stay double."""
    array = numpy.ascontiguousarray(tensor.detach().numpy())
    given = key[:1] in ("x", "w") or key == "dy"
    return array.astype(numpy.float32) if given and array.dtype == numpy.float64 else array


def main():
    torch.set_num_threads(1)
    tensors = {}
    for name, case in CASES.items():
        for key, tensor in make(name, case).items():
            tensors[f"{name}.{key}"] = stored(key, tensor)
    os.makedirs(os.path.dirname(PATH), exist_ok=True)
    cases = ";".join("|".join((name, *case[:3])) for name, case in CASES.items())
    save_file(tensors, PATH, metadata={"cases": cases})
    size = os.path.getsize(PATH)
    print(f"{len(CASES)} cases, {len(tensors)} tensors, {size} bytes")
    if size > LIMIT:
        raise SystemExit(f"more than {LIMIT} bytes: make the cases smaller")


if __name__ == "__main__":
    main()
