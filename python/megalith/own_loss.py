"""A loss that the C library does not have: it runs in Python, between forward and backward.

The outputs come to every rank, all of which compute the same: the value, and its gradient by the outputs, which
the library goes back from. Each framework has its own way to a gradient; a table has them by name.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np


class BadLoss(ValueError):
    """What the user's loss gave is no loss."""


def _one_number(shape: Any) -> None:
    if int(np.prod(shape)) != 1:
        raise BadLoss(f"the loss gave numbers of shape {tuple(shape)}, not one: take their mean over the batch")


def _by_torch(loss: Callable[..., Any], y: Sequence[np.ndarray]) -> Tuple[float, List[np.ndarray]]:
    import torch
    outputs = [torch.from_numpy(a).requires_grad_() for a in y]
    with torch.enable_grad():
        value = loss(outputs)
        _one_number(value.shape)
        if not value.requires_grad:
            raise BadLoss("the loss does not depend on the model's output by operators of PyTorch: no gradient comes back")
        value.backward()
    return float(value.detach()), [np.zeros_like(a) if t.grad is None else t.grad.numpy() for t, a in zip(outputs, y)]


def _by_tensorflow(loss: Callable[..., Any], y: Sequence[np.ndarray]) -> Tuple[float, List[np.ndarray]]:
    import tensorflow as tf
    outputs = [tf.convert_to_tensor(a) for a in y]
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(outputs)
    _one_number(value.shape)
    gradients = tape.gradient(value, outputs)
    if all(g is None for g in gradients):
        raise BadLoss("the loss does not depend on the model's output by operators of TensorFlow: no gradient comes back")
    return float(value), [np.zeros_like(a) if g is None else g.numpy() for g, a in zip(gradients, y)]


def _by_jax(loss: Callable[..., Any], y: Sequence[np.ndarray]) -> Tuple[float, List[np.ndarray]]:
    import jax

    def scalar(outputs: Any) -> Any:
        value = loss(outputs)
        _one_number(value.shape)
        return value.reshape(())
    value, gradients = jax.value_and_grad(scalar)(list(y))
    return float(value), [np.asarray(g) for g in gradients]


GRADIENTS: Dict[str, Callable[..., Tuple[float, List[np.ndarray]]]] = {
    "torch": _by_torch, "tensorflow": _by_tensorflow, "jax": _by_jax}


def only(several: Sequence[Any]) -> Any:
    """One for one; of several a tuple.

    >>> only([3]), only([3, 4])
    (3, (3, 4))
    """
    return several[0] if len(several) == 1 else tuple(several)


def of_real_targets(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of PyTorch whose targets may be whole numbers, and may lack a last axis of one, as the library takes them.

    >>> import torch
    >>> float(of_real_targets(torch.nn.MSELoss())(torch.ones(2, 1), torch.tensor([1, 3])))
    2.0
    """
    def loss(y: Any, target: Any) -> Any:
        target = target.to(y.dtype)
        return function(y, target[:, None] if target.ndim == 1 and y.ndim == 2 and y.shape[1] == 1 else target)
    loss.__name__ = getattr(function, "__name__", type(function).__name__)
    return loss


class TorchLoss:
    """loss(output, target) of tensors; of several outputs, or targets, of tuples of them."""

    framework = "torch"

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def of(self, y: Sequence[Any], targets: Sequence[np.ndarray]) -> Any:
        import torch
        return self.function(only(y), only([torch.from_numpy(np.ascontiguousarray(t)) for t in targets]))

    def value(self, y: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> float:
        """Of outputs and targets, without a gradient.

        >>> import torch
        >>> TorchLoss(torch.nn.L1Loss()).value([np.ones((2, 3), "f4")], [np.zeros((2, 3), "f4")])
        1.0
        """
        import torch
        with torch.no_grad():
            return float(self.of([torch.from_numpy(a) for a in y], targets))

    def value_and_gradients(self, y: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Tuple[float, List[np.ndarray]]:
        return GRADIENTS[self.framework](lambda outputs: self.of(outputs, targets), y)


class KerasLoss(TorchLoss):
    """loss(target, output), whose values Keras takes the mean of."""

    def __init__(self, function: Callable[..., Any]):
        import keras
        super().__init__(function)
        self.keras, self.framework = keras, keras.backend.backend()

    def of(self, y: Sequence[Any], targets: Sequence[np.ndarray]) -> Any:
        return self.keras.ops.mean(self.function(only([self.keras.ops.convert_to_tensor(t) for t in targets]), only(y)))

    def value(self, y: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> float:
        return float(self.keras.ops.convert_to_numpy(self.of([self.keras.ops.convert_to_tensor(a) for a in y], targets)))
