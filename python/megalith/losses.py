"""Losses as strings, or as objects of PyTorch or Keras, in the words of the C library.

    >>> to_words("cross_entropy").text
    'softmax_xent'
    >>> to_words("mse").target
    'target'
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

from .optimizers import of_framework

CLASSES, REAL = "label", "target"  # what the library calls classes, and real numbers, that a loss compares with


@dataclasses.dataclass
class Loss:
    """`text` goes to the library; `target` is the name of what outputs are compared with."""

    text: str
    target: str
    class_weights: Optional[np.ndarray] = None
    one_hot: bool = False     # the user's classes are rows with a single 1
    smoothing: float = 0.0    # of real targets, 0 and 1, towards one half
    ignored: int = -100       # stands where no class counts
    head: str = ""            # what the network must end with: softmax, sigmoid, logits (Keras), log_softmax; "": not said

    def targets(self, t: np.ndarray) -> np.ndarray:
        """Targets as the library takes them.

        >>> Loss("softmax_xent", CLASSES, one_hot=True).targets(np.eye(3)[[2, 0]]).tolist()
        [2, 0]
        """
        if self.one_hot:
            t = np.asarray(t)
            if t.ndim < 2 or not np.array_equal(t, t.astype(bool)) or not (t.sum(-1) == 1).all():
                raise ValueError("categorical_crossentropy takes rows with a single 1, here: give such, or classes with "
                                 "sparse_categorical_crossentropy; targets in between are not supported")
            return t.argmax(-1).astype(np.int32)
        return np.asarray(t) * (1 - self.smoothing) + 0.5 * self.smoothing if self.smoothing else t


OUTSIDE = Loss("outside", "")  # it runs in Python: own_loss.py


class UnknownLoss(ValueError):
    """A loss that the C library does not have."""


NAMES: Dict[str, Loss] = {}
for _names, _loss in (
        (("softmax_xent", "cross_entropy", "crossentropy", "sparse_categorical_crossentropy"), Loss("softmax_xent", CLASSES)),
        (("nll_loss",), Loss("softmax_xent", CLASSES, head="log_softmax")),
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
    ignored = int(getattr(loss, "ignore_index", -100))
    if ignored >= 0:
        words += f" ignore={ignored}"
    if getattr(loss, "weight", None) is not None:
        return Loss(words + " weighted=1", CLASSES, np.asarray(loss.weight.detach().cpu(), np.float32), ignored=ignored)
    return Loss(words, CLASSES, ignored=ignored)


def _nll(loss: Any) -> Loss:
    return dataclasses.replace(_cross_entropy(loss), head="log_softmax")


def _bce(loss: Any) -> Loss:
    if getattr(loss, "weight", None) is not None or getattr(loss, "pos_weight", None) is not None:
        raise UnknownLoss("BCEWithLogitsLoss with weights is not supported: leave weight= and pos_weight= out")
    return NAMES["bce_logits"]


# ---- Keras: probabilities unless from_logits says otherwise

def _head(loss: Any, head: str) -> str:
    return "logits" if getattr(loss, "from_logits", False) else head


def _sparse_keras(loss: Any) -> Loss:
    ignored = getattr(loss, "ignore_class", None)
    words = "softmax_xent" + (f" ignore={ignored}" if ignored is not None else "")
    return Loss(words, CLASSES, ignored=-100 if ignored is None else int(ignored), head=_head(loss, "softmax"))


def _categorical_keras(loss: Any) -> Loss:
    smoothing = float(getattr(loss, "label_smoothing", 0) or 0)
    words = "softmax_xent" + (f" smoothing={smoothing:.9g}" if smoothing else "")
    return Loss(words, CLASSES, one_hot=True, head=_head(loss, "softmax"))


def _binary_keras(loss: Any) -> Loss:
    return Loss("bce_logits", REAL, smoothing=float(getattr(loss, "label_smoothing", 0) or 0), head=_head(loss, "sigmoid"))


KERAS_NAMES: Dict[str, Loss] = {
    "sparse_categorical_crossentropy": Loss("softmax_xent", CLASSES, head="softmax"),
    "categorical_crossentropy": Loss("softmax_xent", CLASSES, one_hot=True, head="softmax"),
    "binary_crossentropy": Loss("bce_logits", REAL, head="sigmoid"),
}
NAMES.update(KERAS_NAMES)


def check_head(loss: Loss, end: str) -> None:
    """Cross entropies of Keras are of probabilities, or of logits, PyTorch's nll_loss of their logarithms; `end` is the operator
    that the network ends with."""
    if loss.head == "log_softmax" and end != "LogSoftmax":
        raise UnknownLoss("nll_loss is of log-probabilities, but the model does not end with LogSoftmax over the classes: end with it, "
                          "or use cross_entropy, which brings it along")
    wanted = {"softmax": "Softmax", "sigmoid": "Sigmoid"}.get(loss.head)
    if wanted and end != wanted:
        raise UnknownLoss(f"this loss is of probabilities, but the model does not end with a {loss.head}: end with "
                          f"activation='{loss.head}', or give the loss as an object with from_logits=True")
    if loss.head == "logits" and end in ("Softmax", "Sigmoid"):
        raise UnknownLoss(f"from_logits=True, but the model ends with {end}: leave one of both out")


def class_axis(output: Sequence[Optional[int]], labels: Sequence[Optional[int]], last: bool) -> int:
    """Where an output of this shape has the classes: Keras has them last, PyTorch behind the batch, unless the labels' shape
    says that they come last, as transformers have it.

    >>> class_axis((8, 3, 5, 5), (8, 5, 5), False), class_axis((8, 5, 5), (8, 5), False), class_axis((8, 7, 3), (8, 7), False)
    (1, 1, 2)
    """
    rank = len(output)
    behind, front, given = tuple(output[2:]), tuple(output[1:-1]), tuple(labels[1:])
    return rank - 1 if last or rank <= 2 or given == front and given != behind else 1


def of_keras(name: str) -> Any:
    """Keras' own loss of this name; None: it has none."""
    import keras
    try:
        return keras.losses.get(name)
    except ValueError:
        return None


def by_framework(text: str, keras_end: Optional[str]) -> Any:
    """The framework's own loss for one of real targets that the library has by this name; PyTorch's, unless the end of a model of
    Keras is given."""
    if keras_end is None:
        from torch.nn import functional
        return functional.binary_cross_entropy_with_logits if text == "bce_logits" else functional.mse_loss
    import keras
    if text == "bce_logits":
        return keras.losses.BinaryCrossentropy(from_logits=keras_end != "Sigmoid", name="binary_crossentropy")
    return keras.losses.MeanSquaredError(name="mean_squared_error")


OBJECTS: Dict[str, Callable[[Any], Loss]] = {  # by the name of the class
    "CrossEntropyLoss": _cross_entropy, "NLLLoss": _nll, "MSELoss": lambda loss: NAMES["mse"],
    "BCEWithLogitsLoss": _bce, "SparseCategoricalCrossentropy": _sparse_keras,
    "CategoricalCrossentropy": _categorical_keras, "BinaryCrossentropy": _binary_keras,
    "MeanSquaredError": lambda loss: NAMES["mse"],
}


def to_words(loss: Any) -> Loss:
    """A loss as the library knows it; raises UnknownLoss, with what there is."""
    if isinstance(loss, str):
        if loss in NAMES:
            return NAMES[loss]
        raise UnknownLoss(f"loss={loss!r} is not known: use one of {', '.join(NAMES)}, or an object of PyTorch or Keras")
    name, known = getattr(loss, "__name__", ""), of_framework(loss, "torch", "keras")
    make = OBJECTS.get(type(loss).__name__)
    if make and known:
        _mean_only(loss)
        return make(loss)
    if name in NAMES and known and name != "dice":  # Keras' own is of the whole batch, and of real targets
        return NAMES[name]
    raise UnknownLoss(f"the loss {name or type(loss).__name__} is not known here: use one of {', '.join(NAMES)} or "
                      f"{', '.join(OBJECTS)}")
