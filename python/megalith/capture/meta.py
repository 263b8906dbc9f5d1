"""PyTorch models on the meta device: shapes without numbers, for models that no one process could hold.

    with torch.device("meta"):
        net = Huge()
    model = megalith.Model(net, example=x)                  # or weights="start.safetensors"

First numbers are those of PyTorch's own layers: module by module memory is made, `reset_parameters` draws into it with random
numbers of (seed, the module's path), and the library takes them. So no more than one module's weights are here at a
time, and the draw does not depend on the plan.
"""
from __future__ import annotations

import copy
import zlib
from typing import Any, Dict, Iterator, Mapping

import numpy as np
import torch

from ..net import CaptureError, Net


def is_meta(module: torch.nn.Module) -> bool:
    return any(t.is_meta for t in (*module.parameters(), *module.buffers()))


def _reset_of(module: torch.nn.Module) -> Any:
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _drawn(module: torch.nn.Module, path: str, seed: int) -> torch.nn.Module:
    """A copy of the module alone, without what it contains, that has numbers."""
    if _reset_of(module) is None:
        names = ", ".join(k for k in (*module._parameters, *module._buffers))
        raise CaptureError(f"{path or 'the model'} ({type(module).__name__}) is on the meta device and has no reset_parameters() that "
                           f"would draw {names}: write one, or give weights=FILE.safetensors")
    out = copy.copy(module)
    out._parameters = {k: p if p is None else torch.nn.Parameter(torch.empty_like(p, device="cpu"), p.requires_grad)
                       for k, p in module._parameters.items()}
    out._buffers = {k: b if b is None else torch.zeros_like(b, device="cpu") for k, b in module._buffers.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence((seed, zlib.crc32(path.encode()))).generate_state(1)[0]))
        _reset_of(out)()
    return out


def first_numbers(module: torch.nn.Module, net: Net, seed: int, here: bool) -> Iterator[Dict[str, np.ndarray]]:
    """Weights and statistics by name, some at a time. Not `here`: of the right shape, but nobody looks at them."""
    for path, m in module.named_modules():
        own = {f"{path}.{k}" if path else k: (k, t) for k, t in (*m._parameters.items(), *m._buffers.items()) if t is not None}
        own = {name: kt for name, kt in own.items() if name in net.weights}
        if not own:
            continue
        drawn = _drawn(m, path, seed) if here else None
        yield {name: getattr(drawn, k).detach().numpy() if drawn is not None else np.empty(tuple(t.shape), np.float32)
               for name, (k, t) in own.items()}


def materialise(module: torch.nn.Module, arrays: Mapping[str, Any]) -> None:
    """Gives the user's own module memory, for numbers that are copied into it next. What the library has none of
    (counts of batches) begins anew."""
    if not is_meta(module):
        return
    module.to_empty(device="cpu")
    for m in module.modules():
        if m._buffers and _reset_of(m) is not None:
            _reset_of(m)()
    missing = [k for k, _ in module.named_parameters() if k not in arrays]
    if missing:
        raise CaptureError(f"'{missing[0]}' is on the meta device, and no output depends on it, so that it has no numbers: take it out of "
                           "the model")
