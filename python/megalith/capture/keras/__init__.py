"""Captures Keras 3 models: functional and Sequential ones, of any back end, whole or nested.

    captured = capture(model)            # captured.net goes to megalith.onnx_file.write
    captured.unwrap(weights)             # {name: array} as the C library saves them; returns the model itself

The graph is walked call by call (graph.py); a table has a translator for each layer (windows.py, norms.py, points.py,
shapes.py, tokens.py). Layers of the user's own are traced: their call is run with symbolic tensors, so what is
written with layers and keras.ops is captured, too. What is in no table is refused by its name.
"""
from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

import keras
import numpy as np

from ...net import CaptureError, Net, Port
from ..ids import rows
from . import norms, points, shapes, tokens, windows  # fill the tables
from .context import LAYERS, OPERATIONS, Context
from .graph import Call, is_graph, is_symbolic, mask_of, trace, untouched, walk
from .value import FIRST, KERAS, Value, to_first

__all__ = ["Captured", "capture"]
_TABLES = (norms, points, shapes, tokens, windows)

INSTEAD = {  # what would do
    "RandomFlip": "augment the data before training, or take it out of the model",
    "GaussianNoise": "use Dropout", "GaussianDropout": "use Dropout", "AlphaDropout": "use Dropout",
    "TimeDistributed": "Dense and activations treat each step alike without it",
    "LSTM": "use Conv1D or MultiHeadAttention", "GRU": "use Conv1D or MultiHeadAttention",
}


class Captured:
    """A model of Keras, its net, and the way back."""

    def __init__(self, model: Any, context: Context):
        self.model, self.net, self.bindings, self.fixed = model, context.net, context.bindings, context.fixed
        self.rows = rows(context.net)
        self.turned = False  # the output has channels first inside of the library, so real targets do, too
        self.masked = False  # the output carries a mask, by which Keras weighs the loss

    @property
    def end(self) -> str:
        """The operator that makes the first output."""
        return next((n.op for n in reversed(self.net.nodes) if self.net.outputs[0].name in n.outputs), "")

    def target_array(self, t: np.ndarray) -> np.ndarray:
        """Real targets of the outputs' shape, in the library's order."""
        return t.transpose(to_first(t.ndim)) if self.turned and t.ndim > 2 else t

    def predicted(self, y: np.ndarray, loss: str) -> np.ndarray:
        """Outputs as the model has them: where the loss brought the last function along, it is applied here."""
        if loss.startswith("softmax_xent") and self.end == "Softmax":
            e = np.exp(y - y.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)
        if loss.startswith("bce_logits") and self.end == "Sigmoid":
            return (0.5 * (1 + np.tanh(0.5 * y.astype(np.float64)))).astype(y.dtype)
        return y

    def state_dict(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """By Keras' paths, with the shapes of its variables."""
        return self.to_keras({k: a for k, a in arrays.items() if k in self.bindings})

    def input_arrays(self, x: Any) -> Dict[str, np.ndarray]:
        """A batch as Keras takes it, by the names and in the order of the net's inputs."""
        arrays = x if isinstance(x, (list, tuple)) else [x]
        return {p.name: turn_input(np.asarray(a), p) for p, a in zip(self.net.inputs, arrays)}

    def state(self) -> Dict[str, np.ndarray]:
        """The model's numbers now, in the order of the file."""
        for variable, array in self.fixed:
            if not np.array_equal(np.asarray(keras.ops.convert_to_numpy(variable)), array):
                raise CaptureError(f"'{getattr(variable, 'path', 'a number')}', which is not trained, has other numbers than when the model "
                                   "was captured, and they are constants of the network: load weights before megalith.Model(net)")
        return {name: b.layout.to_file(np.asarray(keras.ops.convert_to_numpy(b.variable))) for name, b in self.bindings.items()}

    def to_keras(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Weights, or gradients, with the shapes of Keras' variables."""
        return {name: self.bindings[name].layout.to_framework(np.asarray(a)) for name, a in arrays.items()}

    def unwrap(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Sets the variables of the user's model, and returns that model. All of them must be there."""
        missing = sorted(self.bindings.keys() - arrays.keys())
        if missing:
            raise ValueError(f"{len(missing)} weights of the model are not among those given: {', '.join(missing[:3])}, ..")
        for name, array in self.to_keras({k: arrays[k] for k in self.bindings}).items():
            self.bindings[name].variable.assign(array)
        return self.model


def turn_input(array: np.ndarray, port: Port) -> np.ndarray:
    """Keras has channels last, the net first; of two axes, and of whole numbers, there is nothing to turn."""
    if array.ndim < 3 or not port.dtype.startswith("float"):
        return array
    return array.transpose(to_first(array.ndim))


# ---- one call

def _resolve(operation: Any, table: Mapping[str, Any]) -> Optional[Any]:
    """The translator of a layer of Keras, or of one that a user derived from it without another call."""
    for cls in type(operation).__mro__:
        own = cls.__module__.split(".")[0] == "keras" and cls.__name__ in table
        if own and type(operation).call is cls.call:
            return table[cls.__name__]
    return None


def _activity(operation: Any) -> bool:
    """Does it add something to the loss that depends on what it computes?"""
    zero = all(not getattr(operation, k, 0) for k in ("l1", "l2"))
    own = type(operation).__name__ == "ActivityRegularization"
    return not zero if own else getattr(operation, "activity_regularizer", None) is not None


def _is_operation(operation: Any) -> bool:
    return type(operation).__module__.startswith("keras.src.ops.")


class Capture:
    def __init__(self, net: Net):
        self.context = Context(net)

    def _argument(self, x: Any, env: Dict[int, Value]) -> Any:
        if is_symbolic(x):
            if id(x) not in env:
                self.context.refuse("an input of it is not reached from the model's inputs", "add it to the inputs of the model")
            return env[id(x)]
        if isinstance(x, keras.Variable):
            v = Value(self.context.net, x.shape, str(x.dtype), keras=self.context.weight(x))
            v.is_weight = True
            return v
        if isinstance(x, np.ndarray) or keras.ops.is_tensor(x):
            return self.context.constant(keras.ops.convert_to_numpy(x))
        return x

    def _arguments(self, tree: Any, env: Dict[int, Value]) -> Any:
        if isinstance(tree, (list, tuple)):
            return type(tree)(self._arguments(t, env) for t in tree)
        if isinstance(tree, dict):
            return {k: self._arguments(t, env) for k, t in tree.items()}
        return self._argument(tree, env)

    def _masks(self, call: Call, env: Dict[int, Value]) -> Dict[int, Value]:
        """Masks that Keras would hand on with the arguments, computed where they are not yet."""
        found = {}
        for t in flat((call.args, call.kwargs)):
            mask = mask_of(t) if is_symbolic(t) and id(t) in env else None
            if mask is None:
                continue
            if id(mask) not in env:
                self.run(walk_known(env, mask), env)
            found[id(env[id(t)])] = env[id(mask)]
        return found

    def _call(self, call: Call, env: Dict[int, Value]) -> List[Value]:
        c, op = self.context, call.operation
        args, kwargs = self._arguments(call.args, env), self._arguments(dict(call.kwargs), env)
        training = kwargs.pop("training", None)
        before, c.training = c.training, c.training if training is None else bool(training) and c.training
        masks, mask = self._masks(call, env), kwargs.pop("mask", None)
        if isinstance(mask, Value) and flat(args):
            masks[id(flat(args)[0])] = mask
        c.at, c.masks, c.net.scope = op, masks, ".".join([*c.scopes, op.name])
        if _activity(op):
            c.refuse("a regularizer of activity is not supported", "leave it out, or add it to a loss of your own")
        try:
            translator = _resolve(op, OPERATIONS if _is_operation(op) else LAYERS)
            if translator is not None:
                return flat([translator(c, op, *args, **kwargs)])
            return self._inside(call, args, kwargs)
        finally:
            c.training = before

    def _inside(self, call: Call, args: Any, kwargs: Dict[str, Any]) -> List[Value]:
        """A nested model, or a layer of the user's own: what it does, call by call."""
        c, op = self.context, call.operation
        ours = type(op).__module__.split(".")[0] == "keras"
        if is_graph(op):
            inputs, outputs = flat(op.inputs), flat(op.outputs)
            values = [v for v in flat((args, kwargs)) if isinstance(v, Value)]
            return self._nested(op, inputs, outputs, values)
        if ours and not isinstance(op, keras.layers.Lambda) or not isinstance(op, keras.layers.Layer):
            c.refuse("is not supported", INSTEAD.get(type(op).__name__, "replace it by layers that are (docs/python.md has a list)"))
        symbolic, values = [], []
        def fresh(v: Any) -> Any:
            if not isinstance(v, Value) or not v.is_data:
                return v
            symbolic.append(keras.Input(batch_shape=v.shape, dtype=v.dtype))
            values.append(v)
            return symbolic[-1]
        with untouched(op):
            outputs, found = trace(op.call, c.path, mapped(fresh, args), {k: mapped(fresh, v) for k, v in kwargs.items()})
            symbolic += [tensor for tensor, _ in found.values()]
            values += [c.constant(numbers) for _, numbers in found.values()]
            return self._nested(op, symbolic, flat(outputs), values)

    def _nested(self, op: Any, inputs: Sequence[Any], outputs: Sequence[Any], values: Sequence[Value]) -> List[Value]:
        c = self.context
        env = {id(t): v for t, v in zip(inputs, values)}
        c.scopes.append(op.name)
        self.run(walk(inputs, outputs), env)
        c.scopes.pop()
        return [self._argument(t, env) for t in outputs]

    def run(self, calls: Iterable[Call], env: Dict[int, Value]) -> None:
        for call in calls:
            for tensor, value in zip(call.outputs, self._call(call, env)):
                env[id(tensor)] = value


def flat(tree: Any) -> List[Any]:
    if isinstance(tree, dict):
        return [x for v in tree.values() for x in flat(v)]
    return [x for v in tree for x in flat(v)] if isinstance(tree, (list, tuple)) else [tree]


def mapped(function: Any, tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(function, t) for t in tree)
    if isinstance(tree, dict):
        return {k: mapped(function, t) for k, t in tree.items()}
    return function(tree)


def walk_known(env: Dict[int, Value], tensor: Any) -> List[Call]:
    """Calls that lead to a tensor and are not done yet."""
    return [call for call in walk((), [tensor]) if not all(id(t) in env for t in call.outputs)]


# ---- the model

def _graph_of(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise CaptureError(f"{type(model).__name__} is no Keras model: give a functional or Sequential keras.Model")
    if not is_graph(model) and isinstance(model, keras.Sequential):
        raise CaptureError(f"the Sequential model '{model.name}' is not built yet: begin it with keras.Input(shape), or call "
                           "model.build((None, ...))")
    if not is_graph(model):
        raise CaptureError(
            f"'{model.name}' ({type(model).__name__}) is a subclass of keras.Model, which has no graph until it runs. Make a "
            "functional model of it: x = keras.Input(shape); model = keras.Model(x, net.call(x))")


def _add_input(net: Net, tensor: Any) -> Value:
    shape = tuple(tensor.shape)
    unknown = [i for i, d in enumerate(shape) if d is None and i]
    if unknown:
        raise CaptureError(f"input '{tensor.name}' has shape {shape}, and axis {unknown[0]} is open: build the model with "
                           "keras.Input of the size that will be trained")
    whole = tensor.dtype.startswith(("int", "uint"))
    dtype = "int64" if tensor.dtype == "int64" else "int32" if whole else "float32"
    if len(shape) < 3 or whole:
        return Value(net, (None, *shape[1:]), tensor.dtype, keras=net.add_input(tensor.name, (None, *shape[1:]), dtype))
    turned = [shape[i] for i in to_first(len(shape))][1:]
    return Value(net, (None, *shape[1:]), tensor.dtype, first=net.add_input(tensor.name, (None, *turned), dtype))


def _output(net: Net, value: Value) -> str:
    """In Keras' order. A sigmoid of pixels comes behind the turn, where the loss that brings one along looks for it."""
    first = value.names.get(FIRST)
    maker = next((n for n in reversed(net.nodes) if first in n.outputs), None)
    if KERAS in value.names or maker is None or maker.op != "Sigmoid":
        return value.keras()
    net.scope = maker.scope
    before = Value(net, value.shape, value.dtype, first=maker.inputs[0])
    return net.emit("Sigmoid", [before.keras()])


def capture(model: Any, name: Optional[str] = None) -> Captured:
    """The network of a functional or Sequential model, for training.

    Inputs of images have channels first in the net (Captured.input_arrays turns them), outputs are as Keras has them.
    """
    _graph_of(model)
    net = Net(name or model.name)
    run = Capture(net)
    inputs, outputs = flat(model.inputs), flat(model.outputs)
    env = {id(t): _add_input(net, t) for t in inputs}
    run.run(walk(inputs, outputs), env)
    net.scope = ""
    turned: List[bool] = []
    for t in outputs:
        value = env[id(t)]
        turned.append("first" in value.names)
        net.add_output(_output(net, value), shape=value.shape)
    net.prune()
    kept = {k: b for k, b in run.context.bindings.items() if k in net.weights}
    run.context.bindings = kept
    captured = Captured(model, run.context)
    captured.turned = turned[0]
    captured.masked = any(mask_of(t) is not None for t in outputs)
    return captured


