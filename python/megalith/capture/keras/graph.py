"""The graph of operations behind Keras tensors, in the order in which it runs.

Every symbolic tensor of Keras 3 knows the call that made it (its history: an operation, and which of its calls).
A walk from the outputs backwards therefore needs no help from the model, and serves functional and Sequential
models, parts of them, and what a traced call of a custom layer leaves, alike. All that is taken from Keras and is
not of its documented interface stands in this file.
"""
from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import keras

from ...net import CaptureError


@dataclasses.dataclass
class Call:
    """One call of a layer or operation; arguments hold Keras tensors, variables, numbers."""

    operation: Any
    args: Sequence[Any]
    kwargs: Dict[str, Any]
    outputs: List[Any]


def _node_of(tensor: Any) -> Optional[Any]:
    """What made the tensor; None: it is an input."""
    history = getattr(tensor, "_keras_history", None)
    if history is None or history.operation is None:
        return None
    node = history.operation._inbound_nodes[history.node_index]
    return None if node.is_input else node


def is_symbolic(x: Any) -> bool:
    return isinstance(x, keras.KerasTensor)


def mask_of(tensor: Any) -> Optional[Any]:
    """The mask that Keras lets follow a tensor (Embedding(mask_zero=True), Masking), itself a tensor."""
    return getattr(tensor, "_keras_mask", None)


def walk(inputs: Sequence[Any], outputs: Sequence[Any]) -> Iterator[Call]:
    """Calls between inputs and outputs, makers before users. Iterative, since networks may be deep."""
    known, done = {id(t) for t in inputs}, set()
    stack = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        node = None if id(tensor) in known else _node_of(tensor)
        if node is None or id(node) in done:
            continue
        if ready:
            done.add(id(node))
            yield Call(node.operation, node.arguments.args, node.arguments.kwargs, list(node.output_tensors))
        else:
            stack.append((tensor, True))
            stack += [(t, False) for t in reversed(node.input_tensors)]


def is_graph(operation: Any) -> bool:
    """Has it inputs, outputs, and calls between them: a functional model, or a Sequential that was built?"""
    if isinstance(operation, keras.Sequential):
        return bool(operation.built) and bool(operation.layers)
    return isinstance(operation, keras.Model) and hasattr(operation, "operations")


@contextlib.contextmanager
def untouched(*roots: Any) -> Iterator[None]:
    """Forgets the calls that happen inside on these layers and all within them, so that tracing leaves a user's
    model as it was: `layer.output` works for layers with one call only."""
    layers = {id(k): k for root in roots for k in (root, *getattr(root, "_flatten_layers", lambda: ())())}
    before = [(k, len(k._inbound_nodes), len(k._outbound_nodes)) for k in layers.values()]
    try:
        yield
    finally:
        for layer, inbound, outbound in before:
            del layer._inbound_nodes[inbound:]
            del layer._outbound_nodes[outbound:]


@contextlib.contextmanager
def _constants_in_sight(found: Dict[int, Any]) -> Iterator[None]:
    """Layers with weights that are called with plain numbers (Embedding(..)(arange(..))) would run at once, and
    leave numbers where their weights should be. Inside, they get symbolic tensors; `found` has the numbers by id."""
    own = keras.layers.Layer.__call__
    kept: List[Any] = []

    def symbol(x: Any) -> Any:
        if not keras.ops.is_tensor(x) or is_symbolic(x):
            return x
        kept.append(keras.Input(batch_shape=tuple(x.shape), dtype=keras.backend.standardize_dtype(x.dtype)))
        found[id(kept[-1])] = (kept[-1], keras.ops.convert_to_numpy(x))
        return kept[-1]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        every = [*args, *kwargs.values()]
        plain = not any(is_symbolic(t) for x in every for t in (x if isinstance(x, (list, tuple)) else [x]))
        if plain and not isinstance(self, keras.layers.InputLayer):
            args, kwargs = tuple(symbol(x) for x in args), {k: symbol(x) for k, x in kwargs.items()}
        return own(self, *args, **kwargs)

    def add_loss(self: Any, loss: Any) -> None:
        raise CaptureError(f"layer '{self.name}' ({type(self).__name__}): add_loss is not supported: return what the loss needs as an "
                           "output of the model, and give a loss of your own")

    adds = keras.layers.Layer.add_loss
    keras.layers.Layer.__call__, keras.layers.Layer.add_loss = call, add_loss
    try:
        yield
    finally:
        keras.layers.Layer.__call__, keras.layers.Layer.add_loss = own, adds


def trace(function: Any, path: str, args: Sequence[Any], kwargs: Dict[str, Any]) -> Tuple[Any, Dict[int, Any]]:
    """Output tensors of a call with symbolic tensors, the graph of a layer that is written with layers and keras.ops;
    and numbers that take part in it: {id of a tensor: (the tensor, numbers)}."""
    found: Dict[int, Any] = {}
    try:
        with _constants_in_sight(found):
            return function(*args, **kwargs), found
    except CaptureError:
        raise
    except Exception as e:  # whatever the user's code does with a tensor that has no numbers
        raise CaptureError(
            f"layer '{path}' ({type(getattr(function, '__self__', function)).__name__}) was called with tensors "
            f"that have shapes, but no numbers yet, and failed: {e}. Write its call with layers and keras.ops, without "
            "branches on data") from e
