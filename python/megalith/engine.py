"""Graph, plan, data set and trainer of the C library, each a Python object that frees what it holds."""
from __future__ import annotations

import ctypes
import os
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from . import _c
from ._library import STOP, AskedToStop, as_tensor, check, library, tensor_array, words
from .context import Context, current


class _Handle:
    """What the library gave, and what was made of it, which must go first. Objects in a cycle end in any order, so that the
    order is kept apart from them."""

    def __init__(self, free: str, context: Context):
        self.value, self.free, self.context = ctypes.c_void_p(), free, context
        self.made: List[_Handle] = []

    def add(self, other: "_Handle") -> None:
        self.made = [h for h in self.made if h.value] + [other]

    def close(self) -> None:
        for other in self.made:
            other.close()
        value, self.value, self.made = self.value, ctypes.c_void_p(), []
        if value and self.context.handle:
            getattr(library(), self.free)(value)


class _Held:
    """Something of the library's, freed by `free`. `parents` must live as long."""

    free = ""

    def __init__(self, context: Context, *parents: Any):
        self.context, self.parents = context, [p for p in parents if p is not None]
        self.held = _Handle(self.free, context)
        for p in self.parents:
            p.held.add(self.held)

    @property
    def handle(self) -> ctypes.c_void_p:
        return self.held.value

    def make(self, function: str, *arguments: Any) -> None:
        check(self.context.handle, getattr(library(), function)(*arguments, ctypes.byref(self.held.value)))

    def close(self) -> None:
        self.held.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the interpreter's end there may be no library any more
            pass


class Graph(_Held):
    """The network of an ONNX file."""

    free = "meg_graph_free"

    def __init__(self, path: str, context: Optional[Context] = None, **options: Any):
        super().__init__(context or current())
        self.make("meg_graph_load", self.context.handle, path.encode(), words(**options))

    @property
    def parameters(self) -> int:
        return library().meg_graph_parameters(self.handle)


class Data(_Held):
    """Arrays in memory, one for each input and target, by name; they stay alive with this object."""

    free = "meg_data_free"

    def __init__(self, arrays: Mapping[str, np.ndarray], context: Optional[Context] = None, **options: Any):
        super().__init__(context or current())
        self.arrays = {k: np.ascontiguousarray(a) for k, a in arrays.items()}
        tensors = tensor_array([as_tensor(k, a) for k, a in self.arrays.items()])
        self.make("meg_data_memory", self.context.handle, len(tensors), tensors, words(**options))

    def __len__(self) -> int:
        return library().meg_data_count(self.handle)


class Announced(_Held):
    """So many samples that steps will bring (Trainer.step): plans want their number, for the last batch of an epoch."""

    free = "meg_data_free"

    def __init__(self, samples: Mapping[str, np.ndarray], count: int, context: Optional[Context] = None):
        super().__init__(context or current())
        self.how = _c.Lazy(_c.Read(lambda user, index, arrays, out: 1), None)  # nobody reads them
        tensors = tensor_array([as_tensor(k, a) for k, a in samples.items()])
        for t in tensors:
            t.data, t.shape[0] = None, count
        self.make("meg_data_lazy", self.context.handle, len(tensors), tensors, ctypes.byref(self.how))


class Plan(_Held):
    """Who computes what and when; nothing runs. Options are those of `megalith plan` (docs/cli.md); `file` has more of them."""

    free = "meg_plan_free"

    def __init__(self, graph: Graph, data: Any = None, file: Optional[str] = None, **options: Any):
        super().__init__(graph.context, graph, data)
        given, text = (graph.handle, data.handle if data else None), words(**options)
        if file is None:
            self.make("meg_plan_new", *given, text)
        else:
            self.make("meg_plan_load", *given, file.encode(), text)

    def save(self, path: Any) -> None:
        """As a short text, to be read, edited, and given again: Model(plan=path). Collective."""
        check(self.context.handle, library().meg_plan_save(self.handle, os.fspath(path).encode()))

    @property
    def bytes(self) -> int:
        """Predicted peak of this rank's memory."""
        return library().meg_plan_bytes(self.handle)

    @property
    def seconds(self) -> float:
        """Predicted, per step."""
        return library().meg_plan_seconds(self.handle)

    def reads(self, index: int) -> bool:
        """Does this rank read this sample of a batch?"""
        return library().meg_plan_reads(self.handle, index)

    def text(self, what: str = "summary") -> str:
        """"summary", or "program": every instruction."""
        libc = ctypes.CDLL(None)
        libc.fdopen.restype, libc.fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
        libc.fclose.argtypes = [ctypes.c_void_p]
        with tempfile.TemporaryFile("w+") as file:
            stream = libc.fdopen(os.dup(file.fileno()), b"w")
            status = library().meg_plan_print(self.handle, what.encode(), stream)
            libc.fclose(stream)
            check(self.context.handle, status)
            file.seek(0)
            return file.read()


class Trainer(_Held):
    """Memory, weights and steps. All calls but `tensors` are collective: every rank makes them."""

    free = "meg_trainer_free"

    def __init__(self, plan: Plan, data: Optional[Data] = None, **options: Any):
        super().__init__(plan.context, plan, data)
        self.make("meg_trainer_new", plan.handle, data.handle if data else None, words(**options))

    def _tensors(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return tensor_array([as_tensor(k, a) for k, a in arrays.items()])

    def train(self, steps: int = 0) -> _c.Report:
        """So many steps further on the trainer's data set; 0: to the end of the schedule."""
        report = _c.Report()
        check(self.context.handle, library().meg_train(self.handle, steps, ctypes.byref(report)))
        return report

    def step(self, arrays: Mapping[str, np.ndarray]) -> _c.Report:
        """One step on the whole batch of all ranks."""
        report, tensors = _c.Report(), self._tensors(arrays)
        check(self.context.handle, library().meg_step(self.handle, len(tensors), tensors, ctypes.byref(report)))
        return report

    def ask_to_stop(self, arrays: Mapping[str, np.ndarray], outputs: Sequence[Any] = ()) -> None:
        """In place of `step` with these arrays, or of `forward` to the outputs. What is wrong on one rank is an error of all,
        and nothing is done: an array, or an output, that no network has tells every rank that one was asked to stop."""
        if self.context.size == 1:
            raise AskedToStop("asked to stop")
        if outputs:
            self.forward(arrays, outputs, [STOP] * len(outputs))
        else:
            self.step({**arrays, STOP: np.zeros(len(next(iter(arrays.values()))), np.float32)})

    def go_on(self, step: int, seed: int = -1) -> None:
        """Where another trainer ended, after so many steps; dropout is drawn from this seed (below 0: that of the context)."""
        library().meg_trainer_go_on(self.handle, step, seed)

    def evaluate(self, data: Data) -> _c.Report:
        report = _c.Report()
        check(self.context.handle, library().meg_evaluate(self.handle, data.handle, ctypes.byref(report)))
        return report

    def outputs(self) -> List[str]:
        """Their names here, in the order of the network's."""
        out, tensor = [], _c.Tensor()
        while library().meg_output_at(self.handle, len(out), ctypes.byref(tensor)):
            out.append(tensor.name.decode())
        return out

    def predict(self, data: Data, output: Any, everywhere: bool = False, index: int = 0) -> Optional[np.ndarray]:
        """An output (a Port), the first unless `index` says otherwise, of all samples of the data set, in evaluation mode;
        None on ranks other than 0, unless `everywhere`."""
        y, here = np.empty((len(data), *output.shape[1:]), np.float32), everywhere or self.context.rank == 0
        tensor = as_tensor(self.outputs()[index], y)
        if not here:
            tensor.data = None
        check(self.context.handle, library().meg_predict(self.handle, data.handle, ctypes.byref(tensor)))
        return y if here else None

    def forward(self, arrays: Mapping[str, np.ndarray], outputs: Sequence[Any],
                names: Optional[Sequence[str]] = None) -> List[np.ndarray]:
        """The outputs (Ports) of a batch, in training mode, on all ranks. The arrays must stay until `backward`."""
        count = len(next(iter(arrays.values())))
        y, inputs = [np.empty((count, *o.shape[1:]), np.float32) for o in outputs], self._tensors(arrays)
        tensors = tensor_array([as_tensor(k, a) for k, a in zip(names or self.outputs(), y)])
        check(self.context.handle, library().meg_forward(self.handle, len(inputs), inputs, len(tensors), tensors))
        return y

    def backward(self, gradients: Sequence[np.ndarray]) -> None:
        """From the gradients by those outputs; then gradients of weights can be read."""
        kept = [np.ascontiguousarray(g) for g in gradients]
        tensors = tensor_array([as_tensor(k, a) for k, a in zip(self.outputs(), kept)])
        check(self.context.handle, library().meg_backward(self.handle, len(tensors), tensors))

    def input_gradient(self, port: Any, count: int) -> np.ndarray:
        """By an input (a Port) of so many samples, after `backward`, on all ranks; the plan has input_grads=1."""
        gradient = np.empty((count, *port.shape[1:]), np.float32)
        tensor = as_tensor(port.name, gradient)
        check(self.context.handle, library().meg_input_gradient(self.handle, ctypes.byref(tensor)))
        return gradient

    def set_lr(self, rate: float) -> None:
        """The learning rate of steps to come; below 0: the schedule's."""
        library().meg_trainer_lr(self.handle, rate)

    def save(self, path: str) -> None:
        """Weights and running statistics, as a safetensors file."""
        check(self.context.handle, library().meg_trainer_save(self.handle, path.encode()))

    def load(self, path: str) -> None:
        check(self.context.handle, library().meg_trainer_load(self.handle, path.encode()))

    def export(self, path: str) -> None:
        """Network and weights as an ONNX file, for inference."""
        check(self.context.handle, library().meg_trainer_export(self.handle, path.encode()))

    # ---- tensors by name

    def tensors(self, what: str = "value") -> Dict[str, tuple]:
        """Names and shapes. `what`: value (all of the next three), weight, statistic, fixed, gradient, state (of the optimizer)."""
        out, tensor = {}, _c.Tensor()
        for i in range(library().meg_tensors(self.handle, what.encode())):
            library().meg_tensor_at(self.handle, what.encode(), i, ctypes.byref(tensor))
            out[tensor.name.decode()] = tuple(tensor.shape[:tensor.rank])
        return out

    def get(self, what: str = "value", names: Optional[Sequence[str]] = None, dtype: str = "float32",
            everywhere: bool = True) -> Dict[str, np.ndarray]:
        """Tensors by name, whole, whatever the plan does with them; not `everywhere`: only rank 0 has numbers."""
        shapes = self.tensors(what)
        here = everywhere or self.context.rank == 0
        out = {k: np.empty(shapes[k], dtype) for k in (shapes if names is None else names)}
        tensors = self._tensors(out)
        for t in tensors if not here else ():
            t.data = None
        check(self.context.handle, library().meg_trainer_get_many(self.handle, what.encode(), len(tensors), tensors))
        return out if here else {}

    @property
    def real(self) -> str:
        """What the device computes in: numbers of this type come out, and go back, as they are."""
        tensor = _c.Tensor()
        found = library().meg_tensor_at(self.handle, b"value", 0, ctypes.byref(tensor))
        return _c.DTYPES[tensor.dtype] if found else "float32"

    def set_known(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Of these numbers those that are held here as real ones: no counters, no tables of indices."""
        names = self.tensors("value")
        self.set({k: a for k, a in arrays.items() if k in names and a.dtype.kind == "f"})

    def set(self, arrays: Mapping[str, np.ndarray], what: str = "value") -> None:
        """Rank 0's numbers become those of all ranks."""
        half = np.dtype("float16")
        kept = {k: np.asarray(a, np.float32 if a.dtype == half else None, order="C") for k, a in arrays.items()}  # one number stays ()
        tensors = self._tensors(kept)
        check(self.context.handle, library().meg_trainer_set_many(self.handle, what.encode(), len(tensors), tensors))


def registry(name: str) -> List[str]:
    """Names of what there is: "ops", "devices", "optimizers", "models".

    >>> "sgd" in registry("optimizers")
    True
    """
    out: List[str] = []
    entry, doc = ctypes.c_char_p(), ctypes.c_char_p()
    while library().meg_list(name.encode(), len(out), ctypes.byref(entry), ctypes.byref(doc)):
        assert entry.value is not None
        out.append(entry.value.decode())
    return out
