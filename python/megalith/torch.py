"""The user's own loop, loss and optimizer: `megalith.torch.Module` computes a module's forward and backward by the C library.

    >>> net, loader = torch.nn.Linear(4, 1), [(torch.randn(8, 4), torch.ones(8, 1)) for _ in range(3)]
    >>> model = Module(net, example=torch.zeros(1, 4))
    >>> optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    >>> for x, y in loader:
    ...     loss = (model(x) - y).abs().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()

Parameters are those of `net`: the library gets a copy before each step, and its gradients come back as `.grad`, those by
inputs to whatever stands in front. On many ranks all have the outputs and the gradients, so that every rank computes the same
loss and the same update. The library keeps the numbers of one step: backward comes before the next forward.
"""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch

from . import data
from .capture.ids import check_ids
from .capture.torch import Captured, to_numpy
from .engine import Data, Trainer
from .own_optimizer import PLAN
from .session import Made, Session

LATE = ("backward of a call whose numbers are gone: the model was called again since then, or has gone back already. Call backward once "
        "after each model(x), before the next one")
STILL = ("the model was called in eval(), where the library keeps nothing to go back with: call model.train() first (layers that were in "
         "eval() when it was captured stay as they were)")


class _Step(torch.autograd.Function):
    """Forward gives the outputs; backward the gradients of all inputs and parameters at once."""

    @staticmethod
    def forward(ctx: Any, module: "Module", named: Dict[str, np.ndarray], *tensors: torch.Tensor) -> torch.Tensor:
        ctx.module, ctx.named = module, named  # the library reads the inputs again
        y = torch.from_numpy(module._forward(named))
        ctx.call = module._waiting
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        module = ctx.module
        count = len(module.net.inputs)
        by_weights = module._backward(ctx.call, to_numpy(gradients[0].contiguous()))
        by_inputs = module._input_gradients(ctx.named, ctx.needs_input_grad[2:2 + count])
        return (None, None, *by_inputs, *[torch.from_numpy(by_weights[k]) if k in by_weights else None for k in module.names])


class _Still(torch.autograd.Function):
    """Outputs of eval(): whoever wants gradients by them is told."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        raise RuntimeError(STILL)


class Module(torch.nn.Module):
    """Wraps `module`; `plan` is that of megalith.Model, `seed` of dropout (below 0: that of megalith.init)."""

    def __init__(self, module: torch.nn.Module, example: Any, plan: Any = None, seed: int = -1):
        super().__init__()
        self.module = module
        self.captured = Captured(module, example)
        self.net = self.captured.net
        if self.net.meta:
            raise ValueError("the module is on the meta device, and its parameters, which your optimizer updates, have no numbers: use "
                             "megalith.Model, or module.to_empty(device='cpu')")
        if len(self.net.outputs) != 1:
            raise ValueError(f"the module has {len(self.net.outputs)} outputs: return one")
        self.names: List[str] = [k for k, p in module.named_parameters() if p.requires_grad and k in self.net.weights]
        self.session = Session(self.captured, plan, seed)
        self.session.use(Made({"loss": "outside"}, {**PLAN.words, "keep_grads": 1}, exact=True, returns="statistic"), 0.0)
        self._calls = self._waiting = 0  # the call that the library has the numbers of; 0: none
        self._uncounted = 0              # steps that the normalisations do not know of yet
        self._versions: Dict[str, Tuple[int, int]] = {}

    # ---- numbers of the user's module

    def _statistics(self) -> Dict[str, Tuple[int, int]]:
        """Buffers, and how often each was written to."""
        return {k: (id(b), b._version) for k, b in self.module.named_buffers() if k in self.net.weights}

    def _look(self) -> None:
        """Buffers that the user has changed (load_state_dict) go to the library."""
        if self.session.trainer is not None and self._versions != self._statistics():
            self.session.trainer.set_known(self.captured.state())
            self._versions = self._statistics()

    def _trainer(self, size: int, named: Dict[str, np.ndarray]) -> Trainer:
        """For so many samples, with the parameters as they are now."""
        before, own = self.session.trainer, dict(self.module.named_parameters())
        trainer = self.session.ready(size, named)
        if trainer is not before:
            self._versions = self._statistics()
        trainer.set({k: to_numpy(own[k]) for k in self.names}, "weight")
        return trainer

    # ---- forward and backward

    def _named(self, x: Sequence[Any]) -> Dict[str, np.ndarray]:
        if len(x) != len(self.net.inputs):
            raise data.BadData(f"{len(x)} inputs, but the module takes {len(self.net.inputs)}: "
                               + ", ".join(p.name for p in self.net.inputs))
        arrays = self.captured.input_arrays([data.to_array(v) for v in x])
        named = {p.name: data.as_input(arrays[p.name], p.name, p.dtype) for p in self.net.inputs}
        check_ids(self.captured.rows, named)
        self.captured.check_fixed()
        return named

    def _forward(self, named: Dict[str, np.ndarray]) -> np.ndarray:
        trainer = self._trainer(len(next(iter(named.values()))), named)
        trainer.go_on(self.session.steps, self.session.seed)
        y = trainer.forward(named, self.net.outputs)[0]
        self.session.steps += 1
        self._calls += 1
        self._waiting = self._calls
        return y

    def _backward(self, call: int, gradient: np.ndarray) -> Dict[str, np.ndarray]:
        trainer, waiting, self._waiting = self.session.trainer, self._waiting, 0
        if call != waiting or trainer is None:
            raise RuntimeError(LATE)
        trainer.backward([gradient])
        self._uncounted += 1
        return trainer.get("gradient")

    def _input_gradients(self, named: Dict[str, np.ndarray], wanted: Sequence[bool]) -> List[Any]:
        trainer = self.session.trainer
        assert trainer is not None
        return [torch.from_numpy(trainer.input_gradient(p, len(named[p.name]))) if want else None
                for p, want in zip(self.net.inputs, wanted)]

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        named, own = self._named(x), dict(self.module.named_parameters())
        self._look()
        tensors = [torch.as_tensor(v) for v in x] + [own[k] for k in self.names]
        if self.training:
            if torch.is_grad_enabled() and any(t.requires_grad for t in tensors[:len(x)]):
                self.session.change(plan={"input_grads": 1})
            return _Step.apply(self, named, *tensors)
        self._waiting = 0
        trainer = self._trainer(self.session.batch or len(x[0]), named)
        y = trainer.predict(Data(named), self.net.outputs[0], everywhere=True)
        return _Still.apply(torch.from_numpy(y), *tensors)

    # ---- names of the user's own

    def unwrap(self) -> torch.nn.Module:
        """The user's module, with the running statistics of the steps so far. Collective."""
        self._look()
        if self.session.trainer is not None:
            self.captured.unwrap(self.session.trainer.get("statistic"))
            self._versions = self._statistics()
        self.captured.count_batches(self._uncounted)
        self._uncounted = 0
        return self.module

    def state_dict(self, *arguments: Any, **words: Any) -> Any:
        """Of the user's module, under its own names. Collective."""
        return self.unwrap().state_dict(*arguments, **words)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """The names are those that `state_dict` gives."""
        for key in [k for k in state_dict if k.startswith(prefix)]:
            state_dict[f"{prefix}module.{key[len(prefix):]}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)
