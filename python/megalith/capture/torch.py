"""PyTorch models as a ``Net``: torch.export in training mode, translated operator by operator.

torch.export runs the model's Python code with tensors that have shapes but no numbers. What it leaves is a list of
aten operators with the module that called each; batch normalisation and dropout are in it as they are trained, and
no number of the model is changed. (torch.onnx folds or freezes both.) The tables of ``capture.aten`` turn each
operator into ONNX nodes.

Three kinds of values are told apart:

    str        a value of the network: it depends on the data or on a parameter
    Known      numbers that are known now: buffers, constants and all that is computed of them. It is computed at
               once, with PyTorch itself, views and in-place operators included
    Draw       a random mask, until data is multiplied with it: dropout, stochastic depth

An operator in place gives its operand another value, and with it whatever the operand was cut out of (``capture.memory``).
Where that is not known, because something was refused, none of them has a value any more.
"""
from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch.utils import _pytree as pytree

from ..net import BUFFER, CONSTANT, PARAMETER, CaptureError, Net
from .batch import BATCH, all_nodes, batch_of, check_same, two_batches
from .export import check_modules, checked_example, export, short_name
from .ids import rows
from .memory import Memory, is_in_place, written
from .meta import first_numbers, is_meta, materialise
from .names import counters, dtype_name, first_names, has_tensor, tensors_of, to_numpy
from .refusals import Refusal, all_refusals


class BatchSize(int):
    """A whole number that was computed of the batch size: fine in shapes, refused in arithmetic."""


class BatchShare(float):
    """A real one, 1 / x.shape[0]: always refused."""


class Known:
    """Numbers that no training changes. `name`: of a buffer of the model; `batch`: its extents were computed of the batch size."""

    def __init__(self, tensor: torch.Tensor, name: str = "", batch: bool = False, fixed: Optional[Dict[str, torch.Tensor]] = None):
        self.held, self.name, self.batch, self._fixed = tensor, name, batch, fixed

    @property
    def tensor(self) -> torch.Tensor:
        """Whoever looks at a buffer's numbers makes them a part of the network, so that they are noted among the `fixed` ones; the
        buffer itself, by its name, is a weight, which is loaded and saved."""
        if self._fixed is not None:
            self._fixed[self.name] = self.held
        return self.held


@dataclasses.dataclass
class Draw:
    """Numbers that are `value` with probability 1 - rate, else 0: drawn anew in every step."""

    shape: Tuple[int, ...]
    rate: float
    value: float = 1.0


@dataclasses.dataclass
class Normalised:
    """A layer's weight that is normalised anew in each step. Layers are linear in their weights: they take `weight` itself, and
    an operator of ours beside the layer does the rest (aten/weights.py)."""

    weight: str
    op: str
    inputs: Tuple[str, ...]  # its weights
    words: str


class Refused:
    """Stands for the output of a node that could not be translated: what reads it is not translated either."""


class Lasting(CaptureError):
    """Wrong whether an output depends on it or not: it changes what the next step begins with."""


FLAT = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Not", "And", "Or")  # no gradient goes through them
VALUES = (Known, Draw, Normalised, Refused)
STOPPED = ("it stops a gradient inside of the model, which is not supported: use two models, or freeze the parameters before it "
           "(requires_grad_(False))")


# ---- operators

Handler = Callable[..., Any]
OPERATORS: Dict[str, Handler] = {}  # "conv2d": aten's name, without the overload
BACK: Dict[str, Handler] = {}       # "slice": puts a changed part back into what it was cut out of


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Registers a translation: f(c, n, **arguments), which get the names that aten's schema has.

    It returns the value of the node, or a list of them."""
    def register(f: Handler) -> Handler:
        for name in names:
            OPERATORS[name] = f
        return f
    return register


def written_back(*names: str) -> Callable[[Handler], Handler]:
    """Registers f(c, n, part): the value that the operand of n, a view, has when the view's value is `part`."""
    def register(f: Handler) -> Handler:
        for name in names:
            BACK[name] = f
        return f
    return register


def is_random(target: Any) -> bool:
    """Does it draw numbers? (Attention does if it has a dropout, of which its own translation takes care.)"""
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and "attention" not in short_name(target)


def graph_at(n: torch.fx.Node) -> Optional[int]:
    """Which argument of a node is a graph of its own (no_grad, autocast)."""
    if not isinstance(n.target, torch._ops.HigherOrderOperator):
        return None
    return next((i for i, a in enumerate(n.args) if isinstance(a, torch.fx.Node) and a.op == "get_attr"), None)


# ---- translating


class Capture:
    """One translation. Tables of operators use `name`, `emit`, `shape` and `refuse`."""

    def __init__(self, module: torch.nn.Module, program: torch.export.ExportedProgram, batch: int):
        self.tensors = tensors_of(module)
        self.first = first_names(self.tensors)
        self.batch, self.module, self.program = batch, module, program
        self.counts = counters(module)
        self.fixed: Dict[str, torch.Tensor] = {}  # buffers that constants were computed of
        self.net = Net(type(module).__name__)
        self.net.batch = self.batch
        self.env: Dict[torch.fx.Node, Any] = {}
        self.calls = [n for n in all_nodes(program) if n.op == "call_function"]
        self.given: Dict[torch.fx.Node, torch.fx.Node] = {}  # to placeholders of graphs within the graph
        self.memory = Memory()
        self.kept: Dict[torch.fx.Node, str] = {}  # tensors of the model, which the next step finds as this one leaves them
        self.refusals: List[Refusal] = []
        self.materialised: Dict[Tuple[int, int], Tuple[torch.Tensor, str]] = {}  # of each version of a tensor
        self.still = False                        # inside of no_grad()
        self.cls = ""
        for name, first in self.first.items():
            self.net.add_alias(name, first)

    # ---- what tables use

    def emit(self, op: str, inputs: Sequence[Any], **attributes: Any) -> Any:
        """A node; inputs may be values of any kind, None is absent."""
        names = ["" if v is None else self.name(v) for v in inputs]
        while names and not names[-1]:
            names.pop()
        return self.net.emit(op, names, **attributes)

    def extent(self, size: Any) -> int:
        """As a number; of the batch, the number that stands for it."""
        return size if isinstance(size, int) else BatchSize(batch_of(size, self.batch))

    def shape(self, n: torch.fx.Node) -> Tuple[int, ...]:
        """Extents of a node's value; the batch's are `self.batch`."""
        return tuple(self.extent(d) for d in n.meta["val"].shape)

    def refuse(self, why: str) -> "CaptureError":
        """To be raised: this node cannot be translated."""
        return CaptureError(why)

    def trains(self, value: Any) -> bool:
        """Does a gradient that comes to this value reach a parameter?"""
        makers = {name: node for node in self.net.nodes for name in node.outputs}
        todo, seen = [value.weight if isinstance(value, Normalised) else value], set()
        while todo:
            name = todo.pop()
            if not isinstance(name, str) or name in seen:
                continue
            seen.add(name)
            if name in self.net.weights and self.net.weights[name].kind == PARAMETER:
                return True
            maker = makers.get(name)
            if maker is not None and maker.op not in FLAT:
                todo += maker.inputs[maker.op == "Where":]
        return False

    def name(self, value: Any) -> str:
        """A value as the name of something in the network."""
        if isinstance(value, str):
            return value
        if isinstance(value, Known):
            return self._materialise(value)
        if isinstance(value, (BatchSize, BatchShare)):
            raise self.refuse(BATCH)
        if isinstance(value, (bool, int, float)):
            return self.net.constant(float(value))
        if isinstance(value, Draw):
            raise self.refuse("random numbers are supported as a mask that data is multiplied with (dropout)")
        if isinstance(value, Normalised):
            raise self.refuse("normalised weights are supported in convolutions and linear layers")
        raise self.refuse(f"a {type(value).__name__} where a tensor is expected")

    def _materialise(self, value: Known) -> str:
        if value.name:
            return self.net.add_weight(value.name, to_numpy(value.held), BUFFER)
        t = value.tensor
        key = (id(t), t._version)  # it may be changed in place, and read again
        if key in self.materialised:
            return self.materialised[key][1]
        small = t
        if value.batch and t.ndim and t.shape[0] == self.batch:
            if not bool((t == t[:1]).all()):
                raise self.refuse("it makes numbers that differ from sample to sample of the batch")
            small = t[:1]
        elif value.batch and self.batch in t.shape:
            raise self.refuse("it makes numbers whose extents depend on the batch size")
        name = self.net.constant(to_numpy(small).copy())
        self.materialised[key] = (t, name)
        return name

    # ---- placeholders

    def is_input(self, n: torch.fx.Node) -> bool:
        return any(p.name == self.env.get(n) for p in self.net.inputs)

    def _placeholder(self, n: torch.fx.Node, spec: Any) -> None:
        target = getattr(spec, "target", None)
        if target is None:
            t = n.meta["val"]
            if not isinstance(t, torch.Tensor):
                raise CaptureError(f"the input '{n.name}' is no tensor")
            self.env[n] = self.net.add_input(n.name, (None, *self.shape(n)[1:]), dtype_name(t))
            return
        target = self.first.get(target, target)
        if target not in self.counts and has_tensor(self.module, target):
            self.kept[n] = target
        t = self.tensors.get(target)
        if t is None:
            t = self.program.constants.get(target, self.program.state_dict.get(target))
        if not isinstance(t, torch.Tensor):
            raise CaptureError(f"'{target}' is no tensor")
        trained = isinstance(t, torch.nn.Parameter) and t.requires_grad
        if isinstance(t, torch.nn.Parameter) or t.device.type == "meta":
            array, kind = None if t.device.type == "meta" else to_numpy(t), PARAMETER if trained else BUFFER
            self.env[n] = self.net.add_weight(target, array, kind, shape=tuple(t.shape), dtype=dtype_name(t))
        else:  # cloned: code that changes it in place must not change the model's
            fixed = self.fixed if target in self.tensors and target not in self.counts else None
            self.env[n] = Known(t.detach().clone(), target if target in self.tensors else "", fixed=fixed)

    # ---- nodes

    def _argument(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            val = a.meta.get("val")
            if isinstance(val, (int, torch.SymInt)):
                return self.extent(val)
            if isinstance(val, (float, torch.SymFloat)):
                return val if isinstance(val, float) else BatchShare(batch_of(val, self.batch))
            return self.env[a]
        if isinstance(a, (list, tuple)):
            return [self._argument(i) for i in a]
        return a

    def _arguments(self, n: torch.fx.Node) -> Dict[str, Any]:
        """All of the schema's, by name."""
        out: Dict[str, Any] = {}
        for i, a in enumerate(n.target._schema.arguments):
            if i < len(n.args):
                out[a.name] = self._argument(n.args[i])
            elif a.name in n.kwargs:
                out[a.name] = self._argument(n.kwargs[a.name])
            else:
                out[a.name] = a.default_value
        return out

    def _keep(self, n: torch.fx.Node) -> None:
        """What the model keeps from step to step cannot be changed by its code."""
        for w in written(n):
            name = self.kept.get(self.memory.of(w))
            if name is not None:
                t = self.tensors.get(name)
                kind = "parameter" if isinstance(t, torch.nn.Parameter) else "tensor" if t is None else "buffer"
                raise Lasting(f"it changes the {kind} '{name}' in forward, which stays as it was here: leave that out, or do it "
                              "outside of the model between steps")

    def _overwrite(self, n: torch.fx.Node, value: Any) -> None:
        """An operator in place: later readers of its operand see the new value, and those of what the operand was cut out of.
        There must be none of its other views."""
        at = n.args[0]
        if self.still and (self.trains(self.env[at]) or self.trains(value)):
            raise self.refuse(STOPPED)
        changed = {n, at}
        self.env[at] = value
        while at in self.memory.root:
            back = (lambda c, n, part: part) if is_in_place(at) else BACK.get(short_name(at.target))
            if at.op == "placeholder" or back is None or self._may_copy(at):
                break
            value, at = back(self, at, value), at.args[0]
            self.env[at] = value
            changed.add(at)
        if any(self.memory.is_read_later(v) for v in self.memory.family(n) - changed):
            raise self.refuse("it changes a tensor in place that is read later through another view: use the operator that makes "
                              "a new tensor (without the trailing _)")

    def _may_copy(self, at: torch.fx.Node) -> bool:
        """reshape and its like make a view where the operand, as it lies in memory, can be seen in the new extents; else a copy,
        which nothing is written back from."""
        if short_name(at.target) not in ("reshape", "reshape_as", "flatten"):
            return False
        lies = [self.extent(s) for s in at.args[0].meta["val"].stride()]
        try:
            torch.empty_strided(self.shape(at.args[0]), lies, device="meta").view(self.shape(at))
        except RuntimeError:
            return True
        return False

    def _spoil(self, n: torch.fx.Node) -> None:
        """A node that is not translated: what it would have changed has no value any more."""
        for w in written(n):
            for v in self.memory.family(w):
                self.env[v] = Refused()

    def _known(self, n: torch.fx.Node, values: List[Any]) -> bool:
        """Is all that the node reads known now?"""
        tensors = [v for v in values if isinstance(v, (str, *VALUES))]
        return all(isinstance(v, Known) for v in tensors) and not is_random(n.target)

    def _compute(self, n: torch.fx.Node, arguments: Dict[str, Any]) -> Any:
        flat = pytree.tree_leaves(arguments)
        batch = any(isinstance(v, BatchSize) or (isinstance(v, Known) and v.batch) for v in flat)
        bare = pytree.tree_map(lambda v: v.tensor if isinstance(v, Known) else int(v) if isinstance(v, BatchSize) else v,
                               arguments, is_leaf=lambda v: isinstance(v, Known))
        schema = n.target._schema.arguments
        plain = [bare[a.name] for a in schema if not a.kwarg_only]
        with torch.no_grad():
            out = n.target(*plain, **{a.name: bare[a.name] for a in schema if a.kwarg_only})
        return pytree.tree_map(lambda t: Known(t, batch=batch) if isinstance(t, torch.Tensor) else t, out)

    def _call(self, n: torch.fx.Node) -> Any:
        if short_name(n.target) == "getitem":
            return self._entry(n)
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            return self._inside(n)
        if not hasattr(n.target, "_schema"):
            return self._extent(n)
        arguments = self._arguments(n)
        self.memory.note(n)
        self._keep(n)
        values = pytree.tree_leaves(arguments, is_leaf=lambda v: isinstance(v, VALUES))
        if any(isinstance(v, Refused) for v in values):
            self._spoil(n)
            return Refused()
        if isinstance(n.meta.get("val"), (int, torch.SymInt)):
            return None
        if self._known(n, values):
            return self._compute(n, arguments)
        return self._emit_for(n, arguments)

    def _emit_for(self, n: torch.fx.Node, arguments: Dict[str, Any]) -> Any:
        name, in_place = short_name(n.target), is_in_place(n)
        f = OPERATORS.get(name) or (OPERATORS.get(name[:-1]) if in_place else None)
        if f is None or (written(n) and not in_place):
            raise self.refuse("")
        try:
            inspect.signature(f).bind(self, n, **arguments)
        except TypeError:
            raise self.refuse("this form of it is not supported") from None
        value = f(self, n, **arguments)
        if in_place:
            self._overwrite(n, value)
        return value

    def _entry(self, n: torch.fx.Node) -> Any:
        """One of several values; of split and its like they are views."""
        whole = n.args[0]
        if whole in self.memory.root:
            self.memory.share(n, whole)
        value = self.env[whole]
        return value if isinstance(value, Refused) else value[n.args[1]]

    def _extent(self, n: torch.fx.Node) -> None:
        """Arithmetic of extents: n.meta has the result."""
        if n.target is torch._C._set_grad_enabled:
            raise Lasting(STOPPED)
        if any(isinstance(v, torch.Tensor) for v in pytree.tree_leaves(n.meta.get("val"))):
            raise self.refuse("")

    def _inside(self, n: torch.fx.Node) -> Any:
        """What stands in no_grad() or the like is a graph of its own, which is translated in the place of its call."""
        name = short_name(n.target)
        at = graph_at(n)
        if name not in ("wrap_with_set_grad_enabled", "wrap_with_autocast") or at is None:
            raise self.refuse("")
        if name == "wrap_with_autocast" and n.args[2]:
            raise self.refuse("lower precision is the device's business here: leave torch.autocast out")
        if any(isinstance(self.env.get(a), Refused) for a in n.args if isinstance(a, torch.fx.Node)):
            self._spoil(n)
            return Refused()
        nodes = getattr(n.args[at].graph.owning_module, n.args[at].target).graph.nodes
        outer, self.still = self.still, self.still if name == "wrap_with_autocast" else not n.args[0]
        self._give(nodes, n.args[at + 1:])
        self._walk(nodes)
        last = next(iter(reversed(nodes))).args[0]
        stops, self.still = self.still, outer
        return [self._taken(a, stops) for a in (last if isinstance(last, (list, tuple)) else [last])]

    def _match(self) -> None:
        """Which placeholder of an inner graph stands for what: some look ahead."""
        for n in self.calls:
            at = graph_at(n)
            if at is not None:
                inner = [p for p in getattr(n.args[at].graph.owning_module, n.args[at].target).graph.nodes if p.op == "placeholder"]
                self.given.update({p: a for p, a in zip(inner, n.args[at + 1:]) if isinstance(a, torch.fx.Node)})

    def _give(self, nodes: Iterable[torch.fx.Node], given: Sequence[Any]) -> None:
        """Placeholders of an inner graph get what it is called with."""
        for p, a in zip([p for p in nodes if p.op == "placeholder"], given):
            self.env[p] = self._argument(a)
            self.memory.share(p, a)
            if isinstance(a, torch.fx.Node):
                p.meta.setdefault("val", a.meta.get("val"))

    def _taken(self, a: Any, stops: bool) -> Any:
        """A result of an inner graph. What stops gradients must be what none would go through."""
        value = self._argument(a)
        real = isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor) and a.meta["val"].is_floating_point()
        if stops and real and self.trains(value):
            raise self.refuse(STOPPED)
        return value

    def _place(self, n: torch.fx.Node) -> None:
        """Scope and class of what is emitted next."""
        stack = [v for v in (n.meta.get("nn_module_stack") or {}).values()]
        path, cls = stack[-1] if stack else ("", "")
        self.net.scope = path.split("@")[0]
        self.cls = (cls if isinstance(cls, str) else getattr(cls, "__name__", "")).rpartition(".")[2]

    def _translate(self, n: torch.fx.Node) -> None:
        self.memory.seen.add(n)
        if not n.users and not written(n):
            return
        self._place(n)
        before = len(self.net.nodes)
        try:
            self.env[n] = self._call(n)
        except CaptureError as e:
            del self.net.nodes[before:]
            where = f"{self.net.scope or 'forward'} ({self.cls})" if self.cls else self.net.scope or "forward"
            self.refusals.append(Refusal(str(n.target), where, str(e), isinstance(e, Lasting)))
            self.env[n] = Refused()
            self._spoil(n)

    def _walk(self, nodes: Iterable[torch.fx.Node]) -> None:
        for n in nodes:
            if n.op == "call_function":
                self._translate(n)
            elif n.op == "get_attr":
                held = n.graph.owning_module
                for part in str(n.target).split("."):
                    held = getattr(held, part)
                self.env[n] = Known(held.detach().clone()) if isinstance(held, torch.Tensor) else held

    # ---- the whole

    def run(self) -> Net:
        self._match()
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        nodes = list(self.program.graph.nodes)
        for n in nodes:
            if n.op == "placeholder":
                self._placeholder(n, specs[n.name])
        self._walk(nodes)
        self._finish(nodes[-1])
        self.net.prune()
        return self.net

    def _finish(self, n: torch.fx.Node) -> None:
        outputs = [a for a in pytree.tree_leaves(n.args) if isinstance(a, torch.fx.Node)]
        mutated = {s.arg.name for s in self.program.graph_signature.output_specs if s.kind.name != "USER_OUTPUT"}
        outputs = [a for a in outputs if a.name not in mutated]
        if any(r.lasting for r in self.refusals) or any(isinstance(self.env[a], Refused) for a in outputs):
            raise CaptureError(all_refusals(self.net.name, self.refusals))
        self.net.scope = ""
        for i, a in enumerate(outputs):
            if not isinstance(self.env[a], str):
                raise CaptureError(f"output {i} does not depend on the input")
            name = "output" if i == 0 else f"output{i}"
            self.net.add_output(self.env[a], name, (None, *self.shape(a)[1:]), dtype_name(a.meta["val"]))


def capture(module: torch.nn.Module, example: Any) -> Net:
    """The network that `module` is when it is trained. `example` is a batch, a tuple of them, or a dict by the names of forward's
    arguments; only its shapes count.

    >>> net = capture(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.zeros(1, 4))
    >>> [(n.op, n.scope) for n in net.nodes]
    [('Gemm', '0'), ('Relu', '1'), ('Identity', '')]
    >>> list(net.weights), net.inputs[0].shape
    (['0.weight', '0.bias'], (None, 4))
    """
    return _translated(module, example).net


def _translated(module: torch.nn.Module, example: Any) -> Capture:
    """For two sizes of the batch, so that what depends on it is found (batch.py)."""
    from . import aten  # noqa: F401 fills the table
    if not isinstance(module, torch.nn.Module):
        raise CaptureError(f"a torch.nn.Module is expected, not a {type(module).__name__}")
    check_modules(module)
    program = export(module, checked_example(module, example))
    first, second = (Capture(module, program, batch) for batch in two_batches(program))
    check_same(first.run(), second.run())
    return first


class Captured:
    """A model of PyTorch, its net, and the way back."""

    def __init__(self, module: torch.nn.Module, example: Any):
        done = _translated(module, example)
        self.model, self.net, self._fixed, self.rows = module, done.net, done.fixed, rows(done.net)
        self._equal: Dict[str, Tuple[int, int]] = {}  # of buffers that were compared: which tensor, how often written to

    def input_arrays(self, x: Any) -> Dict[str, Any]:
        """A batch as forward takes it, by the names of the net's inputs."""
        if isinstance(x, Mapping):
            return {p.name: x[p.name] for p in self.net.inputs}
        arrays = x if isinstance(x, (list, tuple)) else [x]
        return {p.name: a for p, a in zip(self.net.inputs, arrays)}

    def _own(self) -> Dict[str, torch.Tensor]:
        """The module's tensors that the net has, by name."""
        tensors = tensors_of(self.model)
        return {k: tensors[k] for k, w in self.net.weights.items() if k in tensors and w.kind != CONSTANT}

    def first_numbers(self, seed: int, here: bool) -> Iterator[Dict[str, Any]]:
        """Of a model on the meta device: see meta.py."""
        return first_numbers(self.model, self.net, seed, here)

    def check_fixed(self, arrays: Optional[Mapping[str, Any]] = None) -> None:
        """Are the buffers that constants of the network were computed of what they were? The module's, or those of a file."""
        given = tensors_of(self.model) if arrays is None else {k: torch.as_tensor(a) for k, a in arrays.items()}
        for name, was in self._fixed.items():
            now = given.get(name)
            if now is None or now.is_meta or self._equal.get(name) == (id(now), now._version):
                continue
            if now.shape != was.shape or not torch.equal(torch.nan_to_num(now.detach().to(was)), torch.nan_to_num(was)):
                raise CaptureError(f"the buffer '{name}' has other numbers than when the model was captured, and constants of the network "
                                   "were computed of them (of a normalisation in eval(), a mask): load weights before megalith.Model(net)")
            if arrays is None:
                self._equal[name] = id(now), now._version

    def state(self) -> Dict[str, Any]:
        """The module's numbers now."""
        if is_meta(self.model):
            raise CaptureError("the model is on the meta device and has no numbers: it gets them in fit, evaluate or predict")
        self.check_fixed()
        return {k: to_numpy(t) for k, t in self._own().items()}

    def unwrap(self, arrays: Dict[str, Any]) -> torch.nn.Module:
        """Puts the numbers into the user's module, and returns it. Shared weights are one tensor already."""
        materialise(self.model, arrays)
        with torch.no_grad():
            for name, t in self._own().items():
                if name in arrays:
                    t.copy_(torch.from_numpy(arrays[name]).reshape(t.shape))
        return self.model

    def count_batches(self, steps: int) -> None:
        """Normalisations count the batches that they were trained with."""
        for m in self.model.modules():
            if isinstance(m, torch.nn.modules.batchnorm._NormBase) and m.training and m.num_batches_tracked is not None:
                m.num_batches_tracked += steps

    def state_dict(self, arrays: Dict[str, Any]) -> Dict[str, torch.Tensor]:
        """The module's state dict, with these numbers; the module stays as it is."""
        first, out = first_names(tensors_of(self.model)), self.model.state_dict()
        for name, t in out.items():
            if first.get(name, name) in arrays:
                out[name] = torch.from_numpy(arrays[first.get(name, name)]).reshape(t.shape).to(t.dtype)
            elif t.is_meta:
                out[name] = torch.zeros(t.shape, dtype=t.dtype)
        return out
