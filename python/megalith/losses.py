"""Losses as strings, or as objects of PyTorch or Keras, in the words of the C library.

    >>> to_words("cross_entropy").text
    'softmax_xent'
    >>> to_words("mse").target
    'target'
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Optional

import numpy as np

CLASSES, REAL = "label", "target"  # what the library calls classes, and real numbers, that a loss compares with


@dataclasses.dataclass
class Loss:
    """`text` goes to the library; `target` is the name of what outputs are compared with."""

    text: str
    target: str
    class_weights: Optional[np.ndarray] = None


class UnknownLoss(ValueError):
    """A loss that the C library does not have."""


NAMES: Dict[str, Loss] = {}
for _names, _loss in (
        (("softmax_xent", "cross_entropy", "crossentropy", "sparse_categorical_crossentropy", "nll_loss"),
         Loss("softmax_xent", CLASSES)),
        (("mse", "mse_loss", "mean_squared_error"), Loss("mse", REAL)),
        (("bce_logits", "binary_cross_entropy_with_logits"), Loss("bce_logits", REAL)),
        (("dice",), Loss("dice", CLASSES))):
    for _name in _names:
        NAMES[_name] = _loss


def _mean_only(loss: Any) -> None:
    if getattr(loss, "reduction", "mean") not in ("mean", "sum_over_batch_size"):
        raise UnknownLoss(f"{type(loss).__name__}(reduction={loss.reduction!r}): use 'mean', of which a batch can be cut "
                          "into parts")


def _cross_entropy(loss: Any) -> Loss:
    words = "softmax_xent"
    if getattr(loss, "label_smoothing", 0):
        words += f" smoothing={loss.label_smoothing:.9g}"
    if getattr(loss, "ignore_index", -100) >= 0:
        words += f" ignore={loss.ignore_index}"
    if getattr(loss, "weight", None) is not None:
        return Loss(words + " weighted=1", CLASSES, np.asarray(loss.weight.detach().cpu(), np.float32))
    return Loss(words, CLASSES)


def _bce(loss: Any) -> Loss:
    if getattr(loss, "weight", None) is not None or getattr(loss, "pos_weight", None) is not None:
        raise UnknownLoss("BCEWithLogitsLoss with weights is not supported: leave weight= and pos_weight= out")
    return NAMES["bce_logits"]


def _sparse_keras(loss: Any) -> Loss:
    ignored = getattr(loss, "ignore_class", None)
    return Loss("softmax_xent" + (f" ignore={ignored}" if ignored is not None else ""), CLASSES)


OBJECTS: Dict[str, Callable[[Any], Loss]] = {  # by the name of the class
    "CrossEntropyLoss": _cross_entropy, "NLLLoss": _cross_entropy, "MSELoss": lambda loss: NAMES["mse"],
    "BCEWithLogitsLoss": _bce, "SparseCategoricalCrossentropy": _sparse_keras,
    "MeanSquaredError": lambda loss: NAMES["mse"],
}


def to_words(loss: Any) -> Loss:
    """A loss as the library knows it; raises UnknownLoss, with what there is."""
    if isinstance(loss, str):
        if loss in NAMES:
            return NAMES[loss]
        raise UnknownLoss(f"loss={loss!r} is not known: use one of {', '.join(NAMES)}, or an object of PyTorch or Keras")
    make = OBJECTS.get(type(loss).__name__)
    if make:
        _mean_only(loss)
        return make(loss)
    name = getattr(loss, "__name__", "")
    if name in NAMES:
        return NAMES[name]
    raise UnknownLoss(f"the loss {name or type(loss).__name__} is not known here: use one of {', '.join(NAMES)} or "
                      f"{', '.join(OBJECTS)}")
