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
from .losses import to_words
from .net import Net
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


def compare(ours: Step, judge: Step, floats: Sequence[Step] = (), tolerance: float = comparison.DOUBLE) -> float:
    """The largest error, if all are within what is allowed; else raises Mismatch, with the worst of them."""
    norms = [float(np.linalg.norm(g)) for g in judge.gradients.values()]
    if not np.isfinite(judge.loss) or not norms or not max(norms) > 0:
        raise Mismatch("the framework's own step is degenerate: its loss is not finite, or all gradients are zero")
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


def torch_step(module: Any, inputs: Sequence[Any], target: Any, loss: Any, double: bool = True) -> Step:
    """Of a copy of the module, in training mode, in double or as it is."""
    m = copied(module).train()
    if double:
        m = m.double()
    given = [t.double() if double and t.is_floating_point() else t for t in inputs]
    with exact_hardsigmoid():
        y = m(*given)
    while isinstance(y, (tuple, list, dict)):
        y = next(iter(y.values())) if isinstance(y, dict) else y[0]
    value = loss(y, target.double() if double and target.is_floating_point() else target)
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
    """A copy without randomness: masks of two frameworks are never the same."""
    m = copied(module)
    for layer in m.modules():
        kind = type(layer).__name__
        if "Dropout" in kind or kind == "StochasticDepth":
            layer.p = 0.0
        if kind == "MultiheadAttention":
            layer.dropout = 0.0
    return m


def torch_loss(loss: Any) -> Any:
    """The framework's own, of a name."""
    from torch.nn import functional
    names = {"softmax_xent": functional.cross_entropy, "mse": functional.mse_loss,
             "bce_logits": functional.binary_cross_entropy_with_logits}
    return names[to_words(loss).text] if isinstance(loss, str) else loss


def check(module: Any, x: Any, y: Any, loss: Any = "cross_entropy", plan: Optional[Mapping[str, Any]] = None) -> float:
    """Compares one step on the batch (x, y) with PyTorch's: loss, every gradient, running statistics. Returns the largest
    error; raises Mismatch, with the worst tensors, where they are not the same. Dropout is left out. Collective.

    >>> import torch
    >>> check(torch.nn.Linear(4, 3), torch.randn(8, 4), torch.arange(8) % 3) < 1e-4
    True
    """
    from .model import Model
    quiet = silenced(module)
    model = Model(quiet, example=x, plan={"keep_grads": 1, **(plan or {})})
    model.compile({"optimizer": "sgd", "lr": 0.0}, loss)
    inputs, target = data.to_arrays(x), data.to_array(y)
    trainer = model._make(len(target))
    report = trainer.step(model._named(inputs, [target]))
    ours = Step(report.loss, trainer.get("gradient"), trainer.get("statistic"))
    given = [x] if not isinstance(x, (tuple, list)) else list(x)
    judge, single = (torch_step(quiet, given, y, torch_loss(loss), double) for double in (True, False))
    return compare(ours, judge, [single], comparison.FLOAT)


class _Callable(types.ModuleType):
    """megalith.check(net, x, y) is what the module is for."""

    def __call__(self, *arguments: Any, **words: Any) -> float:
        return check(*arguments, **words)


sys.modules[__name__].__class__ = _Callable
