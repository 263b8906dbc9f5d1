"""What translators of layers work with: the net that grows, the weights of the model, the layer at hand.

A translator is a function `(c, layer, *arguments)` in a table under the layer's class name; values in, values out.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

import keras
import numpy as np

from ...net import BUFFER, PARAMETER, CaptureError, Net
from .layout import Layout, plain
from .value import FIRST, KERAS, Value, constant

LAYERS: Dict[str, Callable[..., Any]] = {}      # by the class name of keras.layers
OPERATIONS: Dict[str, Callable[..., Any]] = {}  # by the class name of what keras.ops makes of symbolic tensors


def layer(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(f: Callable[..., Any]) -> Callable[..., Any]:
        LAYERS.update({name: f for name in names})
        return f
    return enter


def operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(f: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update({name: f for name in names})
        return f
    return enter


@dataclasses.dataclass
class Binding:
    """A variable of the user's model, and how its numbers lie in the file."""

    variable: Any
    layout: Layout


class Context:
    def __init__(self, net: Net):
        self.net = net
        self.bindings: Dict[str, Binding] = {}  # by the name in the file
        self.names: Dict[int, str] = {}         # of variables, by id
        self.fixed: List[Tuple[Any, np.ndarray]] = []  # variables whose numbers became constants of the network, and these
        self.training = True
        self.scopes: List[str] = []             # nested models
        self.at: Any = None                     # the layer at hand
        self.rows: Dict[int, int] = {}          # of tables that ids were looked up in, by id of the value
        self.masks: Dict[int, Optional[Value]] = {}  # of the arguments of the call at hand, by id of the value

    # ---- messages

    @property
    def path(self) -> str:
        return ".".join([*self.scopes, getattr(self.at, "name", "?")])

    def refuse(self, why: str, instead: str = "") -> NoReturn:
        raise CaptureError(f"layer '{self.path}' ({type(self.at).__name__}): {why}" + (f": {instead}" if instead else ""))

    # ---- weights

    def _name_of(self, variable: Any) -> str:
        """Keras' path. Layers of two nested models may have one name; then the models' names come first."""
        stem = variable.path
        if stem in self.net.weights and self.scopes:
            stem = "/".join([*self.scopes, stem])
        name, count = stem, 1
        while name in self.net.weights:
            count += 1
            name = f"{stem}_{count}"
        return name

    def weight(self, variable: Any, layout: Optional[Layout] = None) -> str:
        """The name of a variable in the file, where it lies in this layout."""
        layout = layout or plain(variable.shape)
        name = self.names.get(id(variable))
        if name is None:
            self._check_variable(variable)
            name = self.names[id(variable)] = self._name_of(variable)
            array = np.asarray(keras.ops.convert_to_numpy(variable))
            self.net.add_weight(name, layout.to_file(array), PARAMETER if variable.trainable else BUFFER)
            self.net.weights[name].layout = layout
            self.bindings[name] = Binding(variable, layout)
        elif self.bindings[name].layout != layout:
            self.refuse(f"the weight '{name}' is shared by layers that read it in different ways",
                        "give each of them its own")
        return name

    def _check_variable(self, variable: Any) -> None:
        """What Keras would add to the loss, or do to the weight after each step, and nobody would here."""
        for what, instead in (("regularizer", "give the optimizer weight_decay (AdamW), or add it to a loss of your own"),
                              ("constraint", "train without it, or use a normalisation layer")):
            if variable.trainable and getattr(variable, what, None) is not None:
                self.refuse(f"the {what} of '{variable.path}' is not supported", f"leave it out; {instead}")

    def numbers(self, variable: Any) -> np.ndarray:
        """Of a variable that no training changes."""
        array = np.asarray(keras.ops.convert_to_numpy(variable))
        self.fixed.append((variable, array))
        return array

    # ---- nodes

    def emit(self, op: str, inputs: List[str], **rest: Any) -> Any:
        return self.net.emit(op, inputs, **rest)

    def constant(self, array: Any) -> Value:
        return constant(self.net, array)

    def made(self, name: str, order: str, shape: Any, dtype: str = "float32") -> Value:
        return Value(self.net, shape, dtype, **{order: name})

    def channels(self, x: Value, data_format: str = "channels_last") -> str:
        """The name of x with channels at place 1, wherever Keras has them."""
        return x.first() if data_format == "channels_last" else x.keras()

    def of_channels(self, name: str, shape: Any, data_format: str = "channels_last") -> Value:
        """A value of Keras' shape whose channels lie at place 1 in the net."""
        if data_format == "channels_last" and len(shape) > 2:
            return self.made(name, FIRST, shape)
        return self.made(name, KERAS, shape)

    def output_shape(self, *shapes: Any) -> Any:
        """What the layer at hand makes of inputs of these shapes."""
        return tuple(self.at.compute_output_shape(*shapes))


def space_of(x: Value, data_format: str = "channels_last") -> List[int]:
    """
    >>> space_of(Value(Net(), (None, 4, 5, 3)))
    [4, 5]
    """
    return list(x.shape[1:-1] if data_format == "channels_last" else x.shape[2:])
