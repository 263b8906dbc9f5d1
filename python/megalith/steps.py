"""A step of training, and a look at a batch, by whoever has the loss and the optimizer.

    the library has both    one call
    loss in Python          forward, the loss, backward (own_loss.py)
    optimizer in Python     gradients come out, weights go in (own_optimizer.py)
"""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import numpy as np

from . import data
from ._library import NotFinite
from .engine import Data, Trainer
from .losses import class_axis

Logs = Dict[str, float]


def logs_of(report: Any) -> Logs:
    """What the library measured: accuracy of classes, absolute error of real targets."""
    out = {"loss": report.loss}
    if not np.isnan(report.accuracy):
        out["accuracy"] = report.accuracy
    if not np.isnan(report.absolute_error):
        out["mae"] = report.absolute_error
    return out


def right(y: np.ndarray, target: np.ndarray, last: bool, threshold: Optional[float] = None) -> Optional[float]:
    """The share of right answers: of classes, else (if there is a threshold) of rows with a single 1, and of yes and no. None:
    there is nothing that could be right.

    >>> right(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]), False)
    0.5
    >>> right(np.array([[0.9], [0.8]]), np.array([[1.0], [0.0]]), True, 0.5)
    0.5
    """
    axis = class_axis(y.shape, target.shape, last)
    if y.ndim > 1 and y.shape[axis] > 1 and target.size * y.shape[axis] == y.size and target.dtype.kind in "iub":
        found = y.argmax(axis)
        return float((found == target.reshape(found.shape)).mean())
    if target.size != y.size or threshold is None:
        return None
    target = target.reshape(y.shape)
    if last and y.shape[-1] > 1:  # Keras' own: rows of classes
        return float((y.argmax(-1) == target.argmax(-1)).mean())
    return float(((y > threshold) == (target > 0.5)).mean())


def absolute_error(y: np.ndarray, target: np.ndarray, logits: bool = False) -> Optional[float]:
    """Its mean, of real targets; of `logits`, that of their chances, as the library has it. None: the targets are of another shape.

    >>> absolute_error(np.array([[1.0], [2.0]]), np.array([2, 4])), absolute_error(np.zeros((2, 3)), np.array([1, 2]))
    (1.5, None)
    """
    if [d for d in y.shape if d != 1] != [d for d in target.shape if d != 1]:
        return None
    y = 0.5 * (1 + np.tanh(0.5 * y.astype(np.float64))) if logits else y
    return float(np.abs(y - target.reshape(y.shape)).mean())


def not_finite(arrays: Mapping[str, np.ndarray]) -> str:
    """The first array with NaN or infinity in it; "": none."""
    return next((k for k, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()), "")


class Steps:
    """`own_loss`, `own_optimizer`: those that run in Python; None: the library's. `measures`: what is wanted beside a loss in
    Python, each a function of an output and its target."""

    def __init__(self, outputs: Sequence[Any], own_loss: Any = None, own_optimizer: Any = None,
                 measures: Mapping[str, Callable[[np.ndarray, np.ndarray], Optional[float]]] = {}):
        self.outputs, self.own_loss, self.own_optimizer, self.measures = outputs, own_loss, own_optimizer, measures

    def announce(self) -> None:
        """A line for each of the two that is not the library's."""
        for what, own in (("loss", self.own_loss), ("optimizer", self.own_optimizer)):
            if own is not None:
                print(f"megalith: the {what} {own.name} is not one of the library's: it runs in Python, on every rank alike, and "
                      "its numbers are copied to and fro in each step", file=sys.stderr)

    def train(self, trainer: Trainer, named: Mapping[str, np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        """One step; the targets are for a loss in Python, which takes them as the user gave them."""
        try:
            logs = self._own_step(trainer, named, targets) if self.own_loss else logs_of(trainer.step(named))
        except NotFinite as e:
            bad = not_finite(named)
            raise (data.BadData(f"'{bad}' of the batch has numbers that are not finite (NaN or infinity): look for them in the "
                                "data") if bad else e) from None
        if self.own_optimizer:
            trainer.set(self.own_optimizer.update(trainer.get("gradient", dtype=trainer.real)), "weight")
        return logs

    def _measure(self, y: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        """Of the first output, as the library has it."""
        out: Logs = {}
        for name, measure in self.measures.items():
            value = measure(y[0], targets[0]) if targets else None
            if value is None:
                given = f"targets of {'x'.join(map(str, targets[0].shape))}, {targets[0].dtype}" if targets else "no targets"
                raise ValueError(f"{name} cannot be measured of outputs of {'x'.join(map(str, y[0].shape))} and {given}: leave it out of "
                                 "metrics=, or measure it of model.predict(x)")
            out[name] = value
        return out

    def _own_step(self, trainer: Trainer, named: Mapping[str, np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        y = trainer.forward(named, self.outputs)
        value, gradients = self.own_loss.value_and_gradients(y, targets)
        if not np.isfinite(value):
            raise NotFinite(f"the loss {self.own_loss.name} is {value}: use a smaller lr, or look for numbers that are not finite in "
                            "the batch")
        trainer.backward(gradients)
        return {"loss": value, **self._measure(y, targets)}

    def evaluate(self, trainer: Trainer, named: Mapping[str, np.ndarray], targets: Sequence[np.ndarray]) -> Logs:
        """Of a batch, in evaluation mode."""
        if self.own_loss is None:
            return logs_of(trainer.evaluate(Data(named)))
        y = [trainer.predict(Data(named), o, True, i) for i, o in enumerate(self.outputs)]
        found = [a for a in y if a is not None]
        return {"loss": self.own_loss.value(found, targets), **self._measure(found, targets)}
