"""One training step here and in the framework: loss, every gradient, running statistics.

It is the proof that a capture is right. It also finds what no capture can see: a custom autograd.Function, whose
own gradient torch.export replaces by that of its forward.
"""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import types
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import comparison, data, onnx_file
from .context import Context
from .engine import Graph, Plan, Trainer
from .losses import OUTSIDE, REAL, class_axis
from .net import Net
from .own_loss import of_real_targets, only
from .weights import read_safetensors


Tensors = Tuple[float, Dict[str, np.ndarray]]  # the loss; gradients and statistics by name


@dataclasses.dataclass
class Step:
    """What one step of training computes: the loss, gradients by name, running statistics by name."""

    loss: float
    gradients: Dict[str, np.ndarray]
    running: Dict[str, np.ndarray]


class Mismatch(AssertionError):
    """Megalith and the framework do not compute the same."""


class Degenerate(Mismatch):
    """The framework's step says nothing: all would be equal to it, or nothing."""


class NoJudge(RuntimeError):
    """PyTorch cannot do the step, or not twice the same."""


def compare(ours: Step, judge: Step, floats: Sequence[Step] = (), tolerance: float = comparison.DOUBLE) -> float:
    """The largest error, if all are within what is allowed; else raises Mismatch, with the worst of them."""
    norms = [float(np.linalg.norm(g)) for g in judge.gradients.values()]
    if not np.isfinite(judge.loss) or not norms or not max(norms) > 0:
        raise Degenerate("the framework's own step is degenerate: its loss is not finite, or all gradients are zero")
    errors = comparison.compare_step((ours.loss, {**ours.gradients, **ours.running}),
                                     (judge.loss, judge.gradients, judge.running),
                                     [(f.loss, f.gradients, f.running) for f in floats], tolerance)
    bad = sorted((e for e in errors if not e[0] <= 1), key=lambda e: -e[0])
    if bad:
        raise Mismatch(f"{len(bad)} of {len(errors)} tensors differ: "
                       + "; ".join(f"{text}: {error:.1e}" for _, error, text in bad[:5]))
    return max(e[1] for e in errors)


# ---- PyTorch

@contextlib.contextmanager
def exact_hardsigmoid() -> Iterator[None]:
    """PyTorch's own gradient of hardsigmoid has 1/6 in float, in double, too: off by 3e-8."""
    from torch.nn import functional
    own = functional.hardsigmoid
    functional.hardsigmoid = lambda x, inplace=False: functional.relu6(x + 3) / 6
    try:
        yield
    finally:
        functional.hardsigmoid = own


def copied(module: Any) -> Any:
    """A copy. Weights that hooks compute before forward (weight_norm) keep the graph that they came from, which cannot be copied."""
    from .capture.export import computed_weights
    for m, name in computed_weights(module):
        m.__dict__[name] = getattr(m, name).detach()
    return copy.deepcopy(module)


def statistics(module: Any) -> Iterator[str]:
    """What a step of training moves that is no parameter: running means and variances, the vectors of spectral norms."""
    from torch.nn.utils.parametrizations import _SpectralNorm
    for k, m in module.named_modules():
        own: Sequence[str] = ()
        if getattr(m, "track_running_stats", False):
            own = ("running_mean", "running_var")
        if isinstance(m, _SpectralNorm) and hasattr(m, "_u"):
            own = ("_u", "_v")
        yield from (f"{k}.{what}" if k else what for what in own if m.training)


def outputs_of(y: Any) -> Sequence[Any]:
    """All tensors that a module gives, as a capture counts them."""
    import torch
    from torch.utils import _pytree as pytree
    return [t for t in pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]


def torch_step(module: Any, inputs: Any, target: Any, loss: Any, double: bool = True, whole: bool = False) -> Step:
    """Of a copy of the module, in double or as it is. It trains; a layer that is kept in eval() stays so. `inputs`: in forward's
    order, or by its names. The loss is of the first output, or of the `whole` list of them."""
    m = copied(module)
    if not m.training:
        m.train()
    if double:
        m = m.double()
    ready = (lambda t: t.double() if double and t.is_floating_point() else t)
    with exact_hardsigmoid():
        y = m(**{k: ready(t) for k, t in inputs.items()}) if isinstance(inputs, Mapping) else m(*map(ready, inputs))
    found = outputs_of(y)
    value = loss(found if whole else found[0], target if whole else ready(target))
    value.backward()
    gradients = {k: p.grad.numpy() for k, p in m.named_parameters() if p.grad is not None}
    running = {k: m.state_dict()[k].numpy() for k in statistics(m)}
    idle = {k.rpartition(".")[0] for k, p in m.named_parameters() if p.grad is None and p.requires_grad}
    running = {k: t for k, t in running.items() if k.rpartition(".")[0] not in idle}
    return Step(float(value.detach()), gradients, running)


# ---- Megalith

def command() -> str:
    """The command `megalith`, of the environment, the build tree, or the path."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    built = os.path.join(here, "build", "megalith")
    return os.environ.get("MEGALITH_COMMAND") or (built if os.path.exists(built) else "megalith")


def _by_command(net: Net, inputs: Sequence[np.ndarray], target: np.ndarray, words: Sequence[str], folder: str) -> Tensors:
    """`megalith grads`, which takes one input, on one rank or many."""
    file, x, y, out = (os.path.join(folder, k) for k in ("net.onnx", "x.npy", "y.npy", "out.safetensors"))
    np.save(x, inputs[0])
    np.save(y, target)
    done = subprocess.run([command(), "grads", file, "--input", x, "--labels", y, "--out", out, *words], capture_output=True,
                          text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().replace(file, net.name))
    record = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1]
    return record["loss"], read_safetensors(out)


def _by_library(net: Net, inputs: Sequence[np.ndarray], target: np.ndarray, words: Sequence[str], folder: str) -> Tensors:
    """In this process, with any number of inputs."""
    given = {k.lstrip("-"): v for k, v in zip(words[::2], words[1::2])}
    context = Context(log="warn", **{k: given.pop(k) for k in ("device", "threads")})
    graph = Graph(os.path.join(folder, "net.onnx"), context, **{k: given.pop(k) for k in ("loss", "output") if k in given})
    plan = Plan(graph, None, optimizer="sgd", keep_grads=1, **given)
    trainer = Trainer(plan, None, lr=0.0)
    label = "label" if target.dtype.kind == "i" else "target"
    loss = trainer.step({**{p.name: a for p, a in zip(net.inputs, inputs)}, label: target}).loss
    tensors = {**trainer.get("gradient", dtype="float64"), **trainer.get("statistic", dtype="float64")}
    for held in (trainer, plan, graph, context):
        held.close()
    return loss, tensors


def megalith_step(net: Net, inputs: Sequence[np.ndarray], target: np.ndarray, device: str = "ref64", loss: str = "",
                  words: Sequence[str] = ()) -> Step:
    """The same step by Megalith, in the framework's names and order of axes. `words`: of the plan, as a command line has them."""
    words = ["--device", device, "--threads", "1", "--batch", str(len(target)), *(["--loss", loss] if loss else []),
             *(["--output", net.outputs[0].name] if len(net.outputs) > 1 else []), *words]
    with tempfile.TemporaryDirectory() as folder:
        onnx_file.write(net, os.path.join(folder, "net.onnx"))
        value, tensors = (_by_command if len(inputs) == 1 else _by_library)(net, inputs, target, words, folder)
    tensors = {k: net.weights[k].to_framework(t) if k in net.weights else t for k, t in tensors.items()}
    running = {k for k, w in net.weights.items() if w.kind == "buffer"}
    return Step(value, {k: t for k, t in tensors.items() if k not in running},
                {k: t for k, t in tensors.items() if k in running})


# ---- one call

def silenced(module: Any) -> Any:
    """A copy without randomness: masks of two frameworks are never the same. What the code itself draws (functional.dropout) stays."""
    m = copied(module)
    for layer in m.modules():
        kind = type(layer).__name__
        if "Dropout" in kind or kind == "StochasticDepth":
            layer.p = 0.0
        if hasattr(layer, "dropout") and isinstance(layer.dropout, float):  # MultiheadAttention, LSTM, GRU
            layer.dropout = 0.0
    return m


def dice(y: Any, target: Any) -> Any:
    """The library's (src/ops/loss/dice.h): the mean over samples and classes, where all pixels count."""
    import torch
    from torch.nn import functional
    one = functional.one_hot(target, y.shape[1]).movedim(-1, 1).to(y.dtype)
    p, axes = torch.softmax(y, 1), tuple(range(2, y.ndim))
    return (1 - (2 * (p * one).sum(axes) + 1e-5) / ((p + one).sum(axes) + 1e-5)).mean()


def torch_loss(loss: Any, taken: Any, double: bool) -> Any:
    """The framework's, of an output and a target as the library takes them (`taken`, a losses.Loss); one that runs in Python here, of
    lists of them, in float, as training has it."""
    import torch
    from torch.nn import functional
    if taken is OUTSIDE:
        return lambda y, targets: loss(only([t.float() for t in y]), only(targets))
    names = {"softmax_xent": functional.cross_entropy, "nll": functional.nll_loss, "mse": functional.mse_loss, "dice": dice,
             "bce_logits": functional.binary_cross_entropy_with_logits}
    of_name = "nll" if taken.head == "log_softmax" else taken.text
    function = names[of_name] if isinstance(loss, str) else loss
    if double and isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()  # weights of classes
    return of_real_targets(function) if taken.target == REAL else of_classes(function)


def of_classes(function: Any) -> Any:
    """A loss of PyTorch, whose classes lie at axis 1, where the library finds them."""
    def loss(y: Any, target: Any) -> Any:
        axis = class_axis(y.shape, target.shape, False)
        target = target.squeeze(axis) if target.ndim == y.ndim and target.shape[axis] == 1 else target
        return function(y.movedim(axis, 1), target.long())
    return loss


def judged(module: Any, x: Any, targets: Sequence[Any], loss: Any, taken: Any) -> Sequence[Step]:
    """PyTorch's step in double, and in float; raises NoJudge where it has none."""
    outside = taken is OUTSIDE
    try:
        return [torch_step(module, x, targets if outside else targets[0], torch_loss(loss, taken, double), double, outside)
                for double in (True, False)]
    except Exception as e:  # of the user's own code, too
        raise NoJudge(f"PyTorch cannot do this step: {e}") from e


def check(module: Any, x: Any, y: Any, loss: Any = "cross_entropy", plan: Optional[Mapping[str, Any]] = None) -> float:
    """Compares one step on the batch (x, y) with PyTorch's: loss, every gradient, running statistics. Returns the largest
    error; raises Mismatch, with the worst tensors, where they are not the same, and NoJudge where PyTorch cannot do it, or draws
    random numbers that are no layer's. Dropout is left out. Collective.

    >>> import torch
    >>> check(torch.nn.Linear(4, 3), torch.randn(8, 4), torch.arange(8) % 3) < 1e-4
    True
    """
    from .model import Model
    quiet = silenced(module)
    model = Model(quiet, example=x, plan={"keep_grads": 1, **(plan or {})})
    if any(n.op == "Dropout" for n in model.net.nodes):
        raise NoJudge("the model draws random numbers (functional.dropout), and two frameworks never draw the same: use layers "
                      "(nn.Dropout), which are silenced")
    model.take({"optimizer": "sgd", "lr": 0.0}, loss)
    given = dict(x) if isinstance(x, Mapping) else list(x) if isinstance(x, (tuple, list)) else [x]
    targets = list(y) if isinstance(y, (tuple, list)) else [y]
    ours = model.one_step(data.to_arrays(x, [p.name for p in model.net.inputs]), data.to_arrays(y))  # collective, so it is first
    judge, single = judged(quiet, given, targets, loss, model.loss)
    return compare(ours, judge, [single], comparison.FLOAT)


class _Callable(types.ModuleType):
    """megalith.check(net, x, y) is what the module is for."""

    def __call__(self, *arguments: Any, **words: Any) -> float:
        return check(*arguments, **words)


sys.modules[__name__].__class__ = _Callable
