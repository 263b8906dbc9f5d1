"""A step of training, and a look at a batch, by whoever has the loss and the optimizer.

    the library has both    one call
    loss in Python          forward, the loss, backward (own_loss.py)
    optimizer in Python     gradients come out, weights go in (own_optimizer.py)
"""
from __future__ import annotations

import sys
from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np

from . import data
from ._library import NotFinite
from .engine import Data, Trainer

Logs = Dict[str, float]


def logs_of(report: Any) -> Logs:
    """What the library measured: accuracy of classes, absolute error of real targets."""
    out = {"loss": report.loss}
    if not np.isnan(report.accuracy):
        out["accuracy"] = report.accuracy
    if not np.isnan(report.absolute_error):
        out["mae"] = report.absolute_error
    return out


def accuracy(y: np.ndarray, target: np.ndarray, axis: int) -> float:
    """
    >>> accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]), 1)
    0.5
    """
    return float((y.argmax(axis) == target.reshape(y.argmax(axis).shape)).mean())


def not_finite(arrays: Mapping[str, np.ndarray]) -> str:
    """The first array with NaN or infinity in it; "": none."""
    return next((k for k, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()), "")


class Steps:
    """`own_loss`, `own_optimizer`: those that run in Python; None: the library's."""

    def __init__(self, output: Any, own_loss: Any = None, own_optimizer: Any = None, classes_at: Optional[int] = None):
        self.output, self.own_loss, self.own_optimizer = output, own_loss, own_optimizer
        self.classes_at = classes_at  # the axis that has the classes, if accuracy of an own loss is wanted

    def announce(self) -> None:
        """A line for each of the two that is not the library's."""
        for what, own in (("loss", self.own_loss), ("optimizer", self.own_optimizer)):
            if own is not None:
                print(f"megalith: the {what} {own.name} is not one of the library's: it runs in Python, on every rank alike, and "
                      "its numbers are copied to and fro in each step", file=sys.stderr)

    def train(self, trainer: Trainer, named: Mapping[str, np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        """One step; the targets are for a loss in Python, which takes them as the user gave them."""
        try:
            logs = self._own_step(trainer, named, targets[0]) if self.own_loss else logs_of(trainer.step(named))
        except NotFinite as e:
            bad = not_finite(named)
            raise (data.BadData(f"'{bad}' of the batch has numbers that are not finite (NaN or infinity): look for them in the "
                                "data") if bad else e) from None
        if self.own_optimizer:
            trainer.set(self.own_optimizer.update(trainer.get("gradient")), "weight")
        return logs

    def _measure(self, y: np.ndarray, target: np.ndarray) -> Logs:
        if self.classes_at is None or target.dtype.kind not in "iu":
            return {}
        return {"accuracy": accuracy(y, target, self.classes_at)}

    def _own_step(self, trainer: Trainer, named: Mapping[str, np.ndarray], target: np.ndarray) -> Logs:
        y = trainer.forward(named, self.output)
        value, gradient = self.own_loss.value_and_gradient(y, target)
        if not np.isfinite(value):
            raise NotFinite(f"the loss {self.own_loss.name} is {value}: use a smaller lr, or look for numbers that are not finite in "
                            "the batch")
        trainer.backward(gradient)
        return {"loss": value, **self._measure(y, target)}

    def evaluate(self, trainer: Trainer, named: Mapping[str, np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        """Of a batch, in evaluation mode."""
        if self.own_loss is None:
            return logs_of(trainer.evaluate(Data(named)))
        y = trainer.predict(Data(named), self.output, everywhere=True)
        assert y is not None
        return {"loss": self.own_loss.value(y, targets[0]), **self._measure(y, targets[0])}
