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
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

import numpy as np

from . import comparison, data, onnx_file
from .losses import to_words
from .net import Net


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


def torch_step(module: Any, inputs: Sequence[Any], target: Any, loss: Any, double: bool = True) -> Step:
    """Of a copy of the module, in training mode, in double or as it is."""
    m = copy.deepcopy(module).train()
    if double:
        m = m.double()
    given = [t.double() if double and t.is_floating_point() else t for t in inputs]
    with exact_hardsigmoid():
        y = m(*given)
    while isinstance(y, (tuple, list)):
        y = y[0]
    value = loss(y, target.double() if double and target.is_floating_point() else target)
    value.backward()
    gradients = {k: p.grad.numpy() for k, p in m.named_parameters() if p.grad is not None}
    norms = {k for k, b in m.named_modules() if getattr(b, "track_running_stats", False) and b.training}
    running = {f"{k}.{what}": t.numpy() for k in norms for what in ("running_mean", "running_var")
               for t in [m.state_dict()[f"{k}.{what}"]]}
    idle = {k.rpartition(".")[0] for k, p in m.named_parameters() if p.grad is None}
    running = {k: t for k, t in running.items() if k.rpartition(".")[0] not in idle}
    return Step(float(value.detach()), gradients, running)


# ---- Megalith

def command() -> str:
    """The command `megalith`, of the environment, the build tree, or the path."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    built = os.path.join(here, "build", "megalith")
    return os.environ.get("MEGALITH_COMMAND") or (built if os.path.exists(built) else "megalith")


def read_safetensors(path: str) -> Dict[str, np.ndarray]:
    """All tensors of a file; the format is a length, a JSON header, and the numbers."""
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "?", "F16": "<f2"}
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        start, out = f.tell(), {}
        for name, t in head.items():
            if name == "__metadata__":
                continue
            f.seek(start + t["data_offsets"][0])
            data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            out[name] = np.frombuffer(data, types[t["dtype"]]).reshape(t["shape"])
    return out


def megalith_step(net: Net, inputs: Sequence[np.ndarray], target: np.ndarray, device: str = "ref64", loss: str = "",
                  words: Sequence[str] = ()) -> Step:
    """The same step by Megalith, in the framework's names and order of axes."""
    with tempfile.TemporaryDirectory() as folder:
        file, x, y, out = (os.path.join(folder, k) for k in ("net.onnx", "x.npy", "y.npy", "out.safetensors"))
        onnx_file.write(net, file)
        if len(inputs) != 1:
            raise ValueError("one input only, so far")
        np.save(x, inputs[0])
        np.save(y, target)
        call = [command(), "grads", file, "--device", device, "--threads", "1", "--batch", str(len(target)), "--input", x,
                "--labels", y, "--out", out, *(["--loss", loss] if loss else []),
                *(["--output", "output"] if len(net.outputs) > 1 else []), *words]
        done = subprocess.run(call, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().replace(file, net.name))
        record = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1]
        tensors = {k: net.weights[k].to_framework(t) if k in net.weights else t for k, t in read_safetensors(out).items()}
    running = {k for k, w in net.weights.items() if w.kind == "buffer"}
    return Step(record["loss"], {k: t for k, t in tensors.items() if k not in running},
                {k: t for k, t in tensors.items() if k in running})




# ---- one call

def silenced(module: Any) -> Any:
    """A copy without randomness: masks of two frameworks are never the same."""
    m = copy.deepcopy(module)
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
