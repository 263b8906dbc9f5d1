"""The tensors of a module by name, and as arrays of numpy."""
from __future__ import annotations

from typing import Any, Dict, Set

import torch


def tensors_of(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """All names of parameters and buffers, also of those that are shared or not in the state dict."""
    out: Dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    out.update(module.named_buffers(remove_duplicate=False))
    return out


def first_names(tensors: Dict[str, torch.Tensor]) -> Dict[str, str]:
    """Of each name the first one that the same tensor has."""
    first: Dict[int, str] = {}
    return {name: first.setdefault(id(t), name) for name, t in tensors.items()}


def has_tensor(module: torch.nn.Module, name: str) -> bool:
    """Is it a tensor of the module, by whatever attribute? (Those of the code itself, torch.tensor(..), are not.)"""
    held: Any = module
    for part in name.split("."):
        held = getattr(held, part, None)
    return isinstance(held, torch.Tensor)


def counters(module: torch.nn.Module) -> Set[str]:
    """Counters of normalisations, which Captured.count_batches looks after."""
    norms = [k for k, m in module.named_modules(remove_duplicate=False) if isinstance(m, torch.nn.modules.batchnorm._NormBase)]
    return {f"{k}.num_batches_tracked" if k else "num_batches_tracked" for k in norms}


def to_numpy(t: torch.Tensor) -> Any:
    """Shares the tensor's memory where numpy has its type."""
    t = t.detach()
    if t.dtype == torch.bfloat16:
        t = t.float()
    return t.cpu().numpy()


def dtype_name(t: torch.Tensor) -> str:
    return str(t.dtype).replace("torch.", "")
