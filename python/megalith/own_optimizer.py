"""An optimizer that the C library does not have: it runs in Python, after each step of the library.

Gradients come to every rank, all of which update their copy of the user's model alike; rank 0's new weights go back
to the library. PLAN has the words of a plan whose own optimizer does nothing (its rate is 0). It counts as one whose steps do
not shrink with the gradient, as Adam's, since nothing is known of the one in Python: convolutions whose noise would become
full steps of weights without a gradient are not chosen.
"""
from __future__ import annotations

from typing import Any, Dict, Mapping

import numpy as np

from .optimizers import Optimizer

PLAN = Optimizer({"optimizer": "rmsprop", "momentum": 0.0}, 0.0)


class TorchOptimizer:
    """Of torch.optim, or of its kind: param_groups, step()."""

    def __init__(self, optimizer: Any, captured: Any):
        self.optimizer, self.name = optimizer, type(optimizer).__name__
        self.own = {k: p for k, p in captured.model.named_parameters() if p.requires_grad and k in captured.net.weights}
        given = {id(p) for g in optimizer.param_groups for p in g["params"]}
        if not any(id(p) in given for p in self.own.values()):
            raise ValueError(f"{self.name} has no parameter of this model: make it of net.parameters(), with the net that was "
                             "given to megalith.Model")

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, rate: float) -> None:
        """Groups keep the ratio of their rates."""
        now = self.lr
        for g in self.optimizer.param_groups:
            g["lr"] = rate if not now else g["lr"] * (rate / now)

    def update(self, gradients: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """The weights after a step with these gradients, as the library has them."""
        import torch
        for k, p in self.own.items():
            p.grad = torch.from_numpy(gradients[k]).reshape(p.shape).to(p.dtype) if k in gradients else None
        self.optimizer.step()
        self.optimizer.zero_grad()  # also of what a loss in Python has of its own
        return {k: p.detach().numpy() for k, p in self.own.items()}


class KerasOptimizer:
    """Of keras.optimizers, or of its kind: apply(gradients, variables)."""

    def __init__(self, optimizer: Any, captured: Any):
        self.optimizer, self.name, self.captured = optimizer, type(optimizer).__name__, captured
        self.own = {k: b for k, b in captured.bindings.items() if b.variable.trainable}

    @property
    def lr(self) -> float:
        import keras
        return float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))

    @lr.setter
    def lr(self, rate: float) -> None:
        if rate != self.lr:  # a schedule of Keras' own cannot be set, and need not
            self.optimizer.learning_rate = rate

    def update(self, gradients: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        import keras
        turned = self.captured.to_keras({k: gradients[k] for k in self.own})
        given = [keras.ops.convert_to_tensor(turned[k], b.variable.dtype) for k, b in self.own.items()]
        self.optimizer.apply(given, [b.variable for b in self.own.values()])
        return {k: b.layout.to_file(np.asarray(keras.ops.convert_to_numpy(b.variable))) for k, b in self.own.items()}
