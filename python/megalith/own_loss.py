"""A loss that the C library does not have: it runs in Python, between forward and backward.

The outputs come to every rank, all of which compute the same: the value, and its gradient by the outputs, which
the library goes back from. Each framework has its own way to a gradient; a table has them by name.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np


class BadLoss(ValueError):
    """What the user's loss gave is no loss."""


def _one_number(shape: Any) -> None:
    if int(np.prod(shape)) != 1:
        raise BadLoss(f"the loss gave numbers of shape {tuple(shape)}, not one: take their mean over the batch")


def _by_torch(loss: Callable[..., Any], y: np.ndarray) -> Tuple[float, np.ndarray]:
    import torch
    output = torch.from_numpy(y).requires_grad_()
    with torch.enable_grad():
        value = loss(output)
        _one_number(value.shape)
        if not value.requires_grad:
            raise BadLoss("the loss does not depend on the model's output by operators of PyTorch: no gradient comes back")
        value.backward()
    gradient = output.grad if output.grad is not None else torch.zeros_like(output)
    return float(value.detach()), gradient.numpy()


def _by_tensorflow(loss: Callable[..., Any], y: np.ndarray) -> Tuple[float, np.ndarray]:
    import tensorflow as tf
    output = tf.convert_to_tensor(y)
    with tf.GradientTape() as tape:
        tape.watch(output)
        value = loss(output)
    _one_number(value.shape)
    gradient = tape.gradient(value, output)
    if gradient is None:
        raise BadLoss("the loss does not depend on the model's output by operators of TensorFlow: no gradient comes back")
    return float(value), gradient.numpy()


def _by_jax(loss: Callable[..., Any], y: np.ndarray) -> Tuple[float, np.ndarray]:
    import jax

    def scalar(output: Any) -> Any:
        value = loss(output)
        _one_number(value.shape)
        return value.reshape(())
    value, gradient = jax.value_and_grad(scalar)(y)
    return float(value), np.asarray(gradient)


GRADIENTS: Dict[str, Callable[..., Tuple[float, np.ndarray]]] = {
    "torch": _by_torch, "tensorflow": _by_tensorflow, "jax": _by_jax}


class TorchLoss:
    """loss(output, target) of tensors."""

    framework = "torch"

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def of(self, y: Any, target: np.ndarray) -> Any:
        import torch
        return self.function(y, torch.from_numpy(np.ascontiguousarray(target)))

    def value(self, y: np.ndarray, target: np.ndarray) -> float:
        """Of outputs and targets, without a gradient.

        >>> import torch
        >>> TorchLoss(torch.nn.L1Loss()).value(np.ones((2, 3), "f4"), np.zeros((2, 3), "f4"))
        1.0
        """
        import torch
        with torch.no_grad():
            return float(self.of(torch.from_numpy(y), target))

    def value_and_gradient(self, y: np.ndarray, target: np.ndarray) -> Tuple[float, np.ndarray]:
        return GRADIENTS[self.framework](lambda output: self.of(output, target), y)


class KerasLoss(TorchLoss):
    """loss(target, output), whose values Keras takes the mean of."""

    def __init__(self, function: Callable[..., Any]):
        import keras
        super().__init__(function)
        self.keras, self.framework = keras, keras.backend.backend()

    def of(self, y: Any, target: np.ndarray) -> Any:
        return self.keras.ops.mean(self.function(self.keras.ops.convert_to_tensor(target), y))

    def value(self, y: np.ndarray, target: np.ndarray) -> float:
        return float(self.keras.ops.convert_to_numpy(self.of(self.keras.ops.convert_to_tensor(y), target)))
