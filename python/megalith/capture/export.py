"""torch.export in training mode: the model's code run with tensors that have shapes but no numbers.

The first axis of every input is the batch. It is exported as a symbol whose value is a prime that no other extent has, so
that code which computes with the batch size is found, and refused.
"""
from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

import torch

from ..net import CaptureError
from .meta import is_meta

PRIMES = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199)

Example = Tuple[Tuple[torch.Tensor, ...], Dict[str, torch.Tensor]]  # what forward is called with


def short_name(target: Any) -> str:
    """aten.conv2d.default -> conv2d; torchvision.deform_conv2d.default -> torchvision.deform_conv2d; operator.mul -> mul"""
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", str(target))
    space, name = str(target).split(".")[:2]
    return name if space == "aten" else f"{space}.{name}"


def batch_number(tensors: Iterable[Any]) -> int:
    """What stands for the batch: no extent of these tensors."""
    seen = {d for t in tensors if isinstance(t, torch.Tensor) for d in t.shape if isinstance(d, int)}
    return next(p for p in PRIMES if p not in seen)


# ---- what is told better before PyTorch's own code meets it

def computed_weights(module: torch.nn.Module) -> Iterator[Tuple[torch.nn.Module, str]]:
    """Weights that a hook computes before forward, by torch.nn.utils.weight_norm."""
    from torch.nn.utils.weight_norm import WeightNorm
    for m in module.modules():
        for hook in m._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm):
                yield m, hook.name


def check_modules(module: torch.nn.Module) -> None:
    from torch.nn.utils.spectral_norm import SpectralNorm
    for path, m in module.named_modules():
        where = f"{path or 'the model'} ({type(m).__name__})"
        norm = isinstance(m, torch.nn.modules.batchnorm._NormBase) and m.track_running_stats and m.training
        if norm and m.momentum is None:
            raise CaptureError(f"{where}: momentum=None, the mean over all batches, is not supported: use a number, e.g. 0.1")
        if any(isinstance(hook, SpectralNorm) for hook in m._forward_pre_hooks.values()):
            raise CaptureError(f"{where}: torch.nn.utils.spectral_norm, the older form, goes on with its vectors in another order: use "
                               "torch.nn.utils.parametrizations.spectral_norm")


def _batch_of(value: Any, name: str) -> torch.Tensor:
    t = torch.as_tensor(value)
    if t.ndim < 1:
        raise CaptureError(f"example {name} is one number, but inputs are batches: their first axis is the batch")
    return t


def checked_example(module: torch.nn.Module, example: Any) -> Example:
    """A batch, a tuple of them, or a dict by the names of forward's arguments."""
    if example is None:
        raise CaptureError("example= is missing: give a batch as the model's forward takes it, e.g. "
                           "example=torch.zeros(1, 3, 224, 224)")
    if isinstance(example, Mapping):
        names = list(inspect.signature(module.forward).parameters)
        unknown = [k for k in example if k not in names]
        if unknown:
            raise CaptureError(f"example has '{unknown[0]}', but forward takes {', '.join(names)}")
        return (), {k: _batch_of(example[k], k) for k in names if k in example}
    values = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    return tuple(_batch_of(v, str(i)) for i, v in enumerate(values)), {}


def _stretched(t: torch.Tensor, count: int, meta: bool) -> torch.Tensor:
    """As many samples as stand for the batch, where the model is. Nobody looks at their numbers: the memory is not even
    touched."""
    return torch.empty((count, *t.shape[1:]), dtype=t.dtype, device="meta" if meta else t.device)


# ---- spectral normalisation: what it does to its vectors in each step is one operator, ours

_LIBRARY = torch.library.Library("megalith", "DEF")
_LIBRARY.define("spectral_norm(Tensor weight, Tensor u, Tensor v, int dim, int iterations, float epsilon) -> Tensor")
_LIBRARY.impl("spectral_norm", lambda weight, *_: torch.empty_like(weight), "CompositeExplicitAutograd")


def _spectral_norm(self: Any, weight: torch.Tensor) -> torch.Tensor:
    """In the place of _SpectralNorm.forward. A vector is divided by its length, which needs no iteration."""
    if weight.ndim == 1:
        return torch.nn.functional.normalize(weight, dim=0, eps=self.eps)
    iterations = self.n_power_iterations if self.training else 0
    return torch.ops.megalith.spectral_norm(weight, self._u, self._v, self.dim, iterations, self.eps)


@contextlib.contextmanager
def _spectral_norms() -> Iterator[None]:
    from torch.nn.utils.parametrizations import _SpectralNorm
    own, _SpectralNorm.forward = _SpectralNorm.forward, _spectral_norm  # type: ignore[method-assign]
    try:
        yield
    finally:
        _SpectralNorm.forward = own  # type: ignore[method-assign]


# ---- the module stays as it is

@contextlib.contextmanager
def _as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """Everything in training mode, where the module was only evaluated; afterwards it is what it was: exporting leaves tensors
    without numbers in attributes that forward sets."""
    before = [(m, dict(m.__dict__)) for m in module.modules()]
    try:
        if not module.training:
            module.train()
        with _spectral_norms():
            yield
    finally:
        for m, own in before:
            m.__dict__.clear()
            m.__dict__.update(own)


ASSIGNED = "assigned during export"  # PyTorch's warning of tensors, neither parameters nor buffers, that forward sets


@contextlib.contextmanager
def _heard() -> Iterator[List[warnings.WarningMessage]]:
    """All warnings, whatever the user's filters do with them: one of them is an error here."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


def _say_again(said: Sequence[warnings.WarningMessage]) -> None:
    """Those that are not ours go through the user's filters."""
    for w in said:
        if ASSIGNED not in str(w.message):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


# ---- the export

def _explain(error: Exception) -> CaptureError:
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "data-dependent" in text or "Could not guard" in text or "GuardOnDataDependent" in type(error).__name__:
        where = next((line.strip() for line in text.splitlines() if 'File "' in line and "/torch/" not in line), "")
        return CaptureError("the model's code decides by the numbers of a tensor (an `if` or a loop over data), so that "
                            "there is no one network: use torch.where, or take the decision out of forward"
                            + (f" ({where})" if where else ""))
    if "batch" in text and ("specialized" in text or "Constraints violated" in text or "constant" in text):
        return CaptureError("the model's code fixes the batch size: write x.shape[0], or -1 in view and reshape, instead "
                            f"of the number ({first[:200]})")
    if "fake tensor in the exported program constant" in text:
        return CaptureError("the model's code takes a tensor out of PyTorch's sight (.data): use detach(), or the tensor itself")
    return CaptureError(f"torch.export cannot follow the model: {first[:400]}")


def _check_kept(program: torch.export.ExportedProgram, said: Sequence[warnings.WarningMessage]) -> None:
    """A tensor that forward reads and sets anew is another one in the next step."""
    for text in [str(w.message) for w in said if ASSIGNED in str(w.message)]:
        for name in [k for k in re.findall(r"self\.([\w.]+)", text) if k in program.constants]:
            raise CaptureError(f"forward reads the tensor '{name}' and sets it anew, but here it stays as it was: hand it in as an input, "
                               "or set it outside of the model between steps")


def _by_name(example: Example, axis: Any) -> Any:
    """The first axis of each input is the batch."""
    given, named = example
    return {k: axis for k in named} if named else tuple(axis for _ in given)


def export(module: torch.nn.Module, example: Example) -> torch.export.ExportedProgram:
    """Of a batch of any size."""
    meta, own = is_meta(module), [*module.parameters(), *module.buffers()]
    batch = batch_number([*own, *example[0], *example[1].values()])
    given = tuple(_stretched(t, batch, meta) for t in example[0])
    named = {k: _stretched(t, batch, meta) for k, t in example[1].items()}
    axis = {0: torch.export.Dim("batch", min=2, max=1 << 20)}
    try:
        with _as_it_was(module), _heard() as said:
            program = torch.export.export(module, given, named, dynamic_shapes=_by_name((given, named), axis), strict=False)
    except CaptureError:
        raise
    except Exception as e:
        raise _explain(e) from e
    _check_kept(program, said)
    _say_again(said)
    return program


__all__: List[str] = ["Example", "batch_number", "check_modules", "checked_example", "computed_weights", "export", "short_name"]
