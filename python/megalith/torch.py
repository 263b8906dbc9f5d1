"""The user's own loop, loss and optimizer: `megalith.torch.Module` computes a module's forward and backward by the C library.

    >>> net, loader = torch.nn.Linear(4, 1), [(torch.randn(8, 4), torch.ones(8, 1)) for _ in range(3)]
    >>> model = Module(net, example=torch.zeros(1, 4))
    >>> optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    >>> for x, y in loader:
    ...     loss = (model(x) - y).abs().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()

Parameters are those of `net`: the library gets a copy before each step, and its gradients come back as `.grad`. On many ranks
all have the outputs and the gradients, so that every rank computes the same loss and the same update.
"""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
import torch

from . import data, onnx_file
from .capture.torch import Captured, to_numpy
from .engine import Data, Graph, Plan, Trainer
from .own_optimizer import PLAN


class _Step(torch.autograd.Function):
    """Forward gives the outputs; backward the gradients of all parameters at once."""

    @staticmethod
    def forward(ctx: Any, module: "Module", named: Dict[str, np.ndarray], *parameters: torch.Tensor) -> torch.Tensor:
        ctx.module, ctx.named = module, named  # the library reads the inputs again
        return torch.from_numpy(module._forward(named))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        found = ctx.module._backward(to_numpy(gradients[0].contiguous()))
        return (None, None, *[torch.from_numpy(found[k]) if k in found else None for k in ctx.module.names])


class Module(torch.nn.Module):
    """Wraps `module`; `plan` has words of the plan, as in megalith.Model."""

    def __init__(self, module: torch.nn.Module, example: Any, plan: Optional[Mapping[str, Any]] = None):
        super().__init__()
        self.module = module
        self.captured = Captured(module, example)
        self.net, self.plan_words = self.captured.net, dict(plan or {})
        if self.net.meta:
            raise ValueError("the module is on the meta device, and its parameters, which your optimizer updates, have no numbers: use "
                             "megalith.Model, or module.to_empty(device='cpu')")
        if len(self.net.outputs) != 1:
            raise ValueError(f"the module has {len(self.net.outputs)} outputs: return one")
        self.names: List[str] = [k for k, p in module.named_parameters() if p.requires_grad and k in self.net.weights]
        self._folder = tempfile.mkdtemp(prefix="megalith-")
        self._trainer: Optional[Trainer] = None
        self._batch = 0

    def __del__(self) -> None:
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)

    def _make(self, batch: int) -> Trainer:
        if self._trainer is not None and self._batch == batch:
            return self._trainer
        self.unwrap()
        path = os.path.join(self._folder, "network.onnx")
        onnx_file.write(self.net, path)
        words = {**PLAN.words, "batch": batch, "keep_grads": 1, "predict": 1, **self.plan_words}
        plan = Plan(Graph(path, loss="outside"), None, **words)
        self._trainer, self._batch = Trainer(plan, None, lr=0.0), batch
        self._trainer.set(self.captured.state())
        return self._trainer

    def _named(self, x: Tuple[Any, ...]) -> Dict[str, np.ndarray]:
        arrays = self.captured.input_arrays([data.to_array(v) for v in x])
        return {p.name: data.as_input(arrays[p.name], p.name, p.dtype) for p in self.net.inputs}

    def _upload(self, trainer: Trainer) -> None:
        own = dict(self.module.named_parameters())
        trainer.set({k: to_numpy(own[k]) for k in self.names}, "weight")

    def _forward(self, named: Dict[str, np.ndarray]) -> np.ndarray:
        trainer = self._make(len(next(iter(named.values()))))
        self._upload(trainer)
        return trainer.forward(named, self.net.outputs[0])

    def _backward(self, gradient: np.ndarray) -> Dict[str, np.ndarray]:
        assert self._trainer is not None
        self._trainer.backward(gradient)
        return self._trainer.get("gradient")

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        named = self._named(x)
        if self.training:
            own = dict(self.module.named_parameters())
            return _Step.apply(self, named, *[own[k] for k in self.names])
        trainer = self._make(self._batch or len(x[0]))
        self._upload(trainer)
        y = trainer.predict(Data(named), self.net.outputs[0], everywhere=True)
        assert y is not None
        return torch.from_numpy(y)

    def unwrap(self) -> torch.nn.Module:
        """The user's module, with the running statistics of the steps so far. Collective."""
        if self._trainer is not None:
            self.captured.unwrap(self._trainer.get("statistic"))
        return self.module

    def state_dict(self, *arguments: Any, **words: Any) -> Any:
        """Of the user's module, under its own names. Collective."""
        return self.unwrap().state_dict(*arguments, **words)
