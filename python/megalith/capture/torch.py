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

The first axis of every input is the batch. It is exported as a symbol whose value is a prime that no other extent
has, so that code which computes with the batch size is found, and refused.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.utils import _pytree as pytree

from ..net import BUFFER, CONSTANT, PARAMETER, CaptureError, Net
from .meta import first_numbers, is_meta, materialise

PRIMES = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)


class BatchSize(int):
    """A whole number that was computed of the batch size: fine in shapes, refused in arithmetic."""


@dataclasses.dataclass
class Known:
    """Numbers that no training changes."""

    tensor: torch.Tensor
    name: str = ""       # of a buffer of the model
    batch: bool = False  # its extents were computed of the batch size


@dataclasses.dataclass
class Draw:
    """Numbers that are `value` with probability 1 - rate, else 0: drawn anew in every step."""

    shape: Tuple[int, ...]
    rate: float
    value: float = 1.0


class Refused:
    """Stands for the output of a node that could not be translated: what reads it is not translated either."""


@dataclasses.dataclass
class Refusal:
    operator: str
    where: str
    why: str


# ---- operators

Handler = Callable[..., Any]
OPERATORS: Dict[str, Handler] = {}  # "conv2d": aten's name, without the overload


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Registers a translation: f(c, n, **arguments), which get the names that aten's schema has.

    It returns the value of the node, or a list of them."""
    def register(f: Handler) -> Handler:
        for name in names:
            OPERATORS[name] = f
        return f
    return register


RANDOM = ("bernoulli", "bernoulli_", "rand", "rand_like", "randn", "randn_like", "normal_", "uniform_", "dropout",
          "dropout_", "feature_dropout", "randperm", "randint", "multinomial", "rrelu", "rrelu_")


def short_name(target: Any) -> str:
    """aten.conv2d.default -> conv2d; operator.mul -> mul"""
    text = str(target)
    return text.split(".")[1] if text.startswith("aten.") else getattr(target, "__name__", text)


# ---- the model's own names

def _tensors(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """All names of parameters and buffers, also of those that are shared or not in the state dict."""
    out: Dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    out.update(module.named_buffers(remove_duplicate=False))
    return out


def _first_names(tensors: Dict[str, torch.Tensor]) -> Dict[str, str]:
    """Of each name the first one that the same tensor has."""
    first: Dict[int, str] = {}
    return {name: first.setdefault(id(t), name) for name, t in tensors.items()}


def to_numpy(t: torch.Tensor) -> Any:
    """Shares the tensor's memory where numpy has its type."""
    t = t.detach()
    if t.dtype == torch.bfloat16:
        t = t.float()
    return t.cpu().numpy()


def dtype_name(t: torch.Tensor) -> str:
    return str(t.dtype).replace("torch.", "")


def hint(size: Any) -> int:
    """An extent as a number; of the batch, the number that stands for it."""
    return size if isinstance(size, int) else BatchSize(size.node.hint)


# ---- exporting

def _batch_number(tensors: Dict[str, torch.Tensor], example: Sequence[Any]) -> int:
    seen = {d for t in [*tensors.values(), *example] if isinstance(t, torch.Tensor) for d in t.shape}
    return next(p for p in PRIMES if p not in seen)


def _check_modules(module: torch.nn.Module) -> None:
    """What is told better before PyTorch's own code meets it."""
    for path, m in module.named_modules():
        norm = isinstance(m, torch.nn.modules.batchnorm._NormBase) and m.track_running_stats and m.training
        if norm and m.momentum is None:
            raise CaptureError(f"{path or 'the model'} ({type(m).__name__}): momentum=None, the mean over all batches, is not "
                               "supported: use a number, e.g. 0.1")


def _checked_example(example: Any) -> Tuple[torch.Tensor, ...]:
    if example is None:
        raise CaptureError("example= is missing: give a batch as the model's forward takes it, e.g. "
                           "example=torch.zeros(1, 3, 224, 224)")
    values = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    values = tuple(torch.as_tensor(v) for v in values)
    for i, v in enumerate(values):
        if v.ndim < 1:
            raise CaptureError(f"example {i} is one number, but inputs are batches: their first axis is the batch")
    return values


def _stretched(example: Sequence[torch.Tensor], count: int, meta: bool) -> Tuple[torch.Tensor, ...]:
    """As many samples as stand for the batch, where the model is. Nobody looks at their numbers: the memory is not even
    touched."""
    return tuple(torch.empty((count, *t.shape[1:]), dtype=t.dtype, device="meta" if meta else t.device) for t in example)


def _explain(error: Exception) -> CaptureError:
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "data-dependent" in text or "Could not guard" in text or "GuardOnDataDependent" in type(error).__name__:
        where = next((line.strip() for line in text.splitlines() if 'File "' in line and "/torch/" not in line), "")
        return CaptureError("the model's code decides by the numbers of a tensor (an `if` or a loop over data), so that "
                            "there is no one network: use torch.where, or take the decision out of forward"
                            + (f" ({where})" if where else ""))
    if "batch" in text and ("specialized" in text or "Constraints violated" in text or "constant" in text):
        return CaptureError("the model's code fixes the batch size: write x.shape[0], or -1 in view and reshape, instead "
                            f"of the number ({first[:200]})")
    return CaptureError(f"torch.export cannot follow the model: {first[:400]}")


def _export(module: torch.nn.Module, inputs: Tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2, max=1 << 20)
    shapes = tuple({0: batch} for _ in inputs)
    training = module.training
    flags = [] if training else [(m, m.training) for m in module.modules()]
    try:
        if not training:  # a model that was only evaluated: all of it is trained
            module.train()
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except CaptureError:
        raise
    except Exception as e:
        raise _explain(e) from e
    finally:
        for m, flag in flags:
            m.training = flag


# ---- translating

class Capture:
    """One translation. Tables of operators use `name`, `emit`, `shape` and `refuse`."""

    def __init__(self, module: torch.nn.Module, example: Tuple[torch.Tensor, ...]):
        self.tensors = _tensors(module)
        self.first = _first_names(self.tensors)
        self.batch = _batch_number(self.tensors, example)
        self.program = _export(module, _stretched(example, self.batch, is_meta(module)))
        self.net = Net(type(module).__name__)
        self.net.batch = self.batch
        self.env: Dict[torch.fx.Node, Any] = {}
        self.root: Dict[torch.fx.Node, torch.fx.Node] = {}  # whose memory a view has
        self.order = {n: i for i, n in enumerate(self.program.graph.nodes)}
        self.refusals: List[Refusal] = []
        self.materialised: Dict[int, Tuple[torch.Tensor, str]] = {}
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

    def shape(self, n: torch.fx.Node) -> Tuple[int, ...]:
        """Extents of a node's value; the batch's are `self.batch`."""
        return tuple(hint(d) for d in n.meta["val"].shape)

    def refuse(self, why: str) -> "CaptureError":
        """To be raised: this node cannot be translated."""
        return CaptureError(why)

    def name(self, value: Any) -> str:
        """A value as the name of something in the network."""
        if isinstance(value, str):
            return value
        if isinstance(value, Known):
            return self._materialise(value)
        if isinstance(value, BatchSize):
            raise self.refuse("it computes with the batch size, which a plan cuts as it likes")
        if isinstance(value, (bool, int, float)):
            return self.net.constant(float(value))
        if isinstance(value, Draw):
            raise self.refuse("random numbers are supported as a mask that data is multiplied with (dropout)")
        raise self.refuse(f"a {type(value).__name__} where a tensor is expected")

    def _materialise(self, value: Known) -> str:
        t = value.tensor
        if value.name:
            kind = BUFFER
            return self.net.add_weight(value.name, to_numpy(t), kind)
        if id(t) in self.materialised:
            return self.materialised[id(t)][1]
        small = t
        if value.batch and t.ndim and t.shape[0] == self.batch:
            if not bool((t == t[:1]).all()):
                raise self.refuse("it makes numbers that differ from sample to sample of the batch")
            small = t[:1]
        elif value.batch and self.batch in t.shape:
            raise self.refuse("it makes numbers whose extents depend on the batch size")
        name = self.net.constant(to_numpy(small).copy())
        self.materialised[id(t)] = (t, name)
        return name

    # ---- placeholders

    def _placeholder(self, n: torch.fx.Node, spec: Any) -> None:
        target = getattr(spec, "target", None)
        if target is None:
            t = n.meta["val"]
            if not isinstance(t, torch.Tensor):
                raise CaptureError(f"the input '{n.name}' is no tensor")
            self.env[n] = self.net.add_input(n.name, (None, *self.shape(n)[1:]), dtype_name(t))
            return
        target = self.first.get(target, target)
        t = self.tensors.get(target)
        if t is None:
            t = self.program.constants.get(target, self.program.state_dict.get(target))
        if not isinstance(t, torch.Tensor):
            raise CaptureError(f"'{target}' is no tensor")
        trained = isinstance(t, torch.nn.Parameter) and t.requires_grad
        if isinstance(t, torch.nn.Parameter) or t.device.type == "meta":
            array = None if t.device.type == "meta" else to_numpy(t)
            self.env[n] = self.net.add_weight(target, array, PARAMETER if trained else BUFFER, shape=tuple(t.shape),
                                              dtype=dtype_name(t))
        else:  # cloned: code that changes it in place must not change the model's
            self.env[n] = Known(t.detach().clone(), target if target in self.tensors else "")

    # ---- nodes

    def _argument(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            val = a.meta.get("val")
            if isinstance(val, (int, torch.SymInt)):
                return hint(val)
            if isinstance(val, (float, torch.SymFloat)):
                return val if isinstance(val, float) else BatchSize(val.node.hint)
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

    def _alias(self, n: torch.fx.Node) -> None:
        """Notes whose memory the node's value shares, as aten's schema has it."""
        for i, a in enumerate(n.target._schema.arguments):
            if a.alias_info is not None and i < len(n.args) and isinstance(n.args[i], torch.fx.Node):
                source = n.args[i]
                self.root[n] = self.root.get(source, source)
                return
        if short_name(n.target) in ("reshape", "contiguous", "to", "flatten", "dropout", "feature_dropout"):
            source = n.args[0]
            if isinstance(source, torch.fx.Node):
                self.root[n] = self.root.get(source, source)

    def _overwrite(self, n: torch.fx.Node, value: Any) -> None:
        """An operator in place: later readers of its operand see the new value. Its other views must have none."""
        target = n.args[0]
        root = self.root.get(target, target)
        self.env[target] = value
        for other in self.order:
            same = other is not target and other is not n and self.root.get(other, other) is root
            if same and any(self.order[u] > self.order[n] for u in other.users):
                raise self.refuse("it changes a tensor in place that is read later through another view: use the "
                                  "operator that makes a new tensor (without the trailing _)")

    def _known(self, n: torch.fx.Node, values: List[Any]) -> bool:
        """Is all that the node reads known now?"""
        tensors = [v for v in values if isinstance(v, (str, Known, Draw, Refused))]
        return all(isinstance(v, Known) for v in tensors) and short_name(n.target) not in RANDOM

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
        name = short_name(n.target)
        if name == "getitem":
            whole = self.env[n.args[0]]
            return whole if isinstance(whole, Refused) else whole[n.args[1]]
        if not hasattr(n.target, "_schema"):
            return None  # arithmetic of extents: n.meta has the result
        arguments = self._arguments(n)
        self._alias(n)
        values = pytree.tree_leaves(arguments, is_leaf=lambda v: isinstance(v, (Known, Draw)))
        if any(isinstance(v, Refused) for v in values):
            return Refused()
        if isinstance(n.meta.get("val"), (int, torch.SymInt)):
            return None
        if self._known(n, values):
            return self._compute(n, arguments)
        in_place = name.endswith("_") and not name.startswith("_")
        f = OPERATORS.get(name) or (OPERATORS.get(name[:-1]) if in_place else None)
        if f is None:
            raise self.refuse("")
        value = f(self, n, **arguments)
        if in_place:
            self._overwrite(n, value)
        return value

    def _place(self, n: torch.fx.Node) -> None:
        """Scope and class of what is emitted next."""
        stack = [v for v in (n.meta.get("nn_module_stack") or {}).values()]
        path, cls = stack[-1] if stack else ("", "")
        self.net.scope = path.split("@")[0]
        self.cls = (cls if isinstance(cls, str) else getattr(cls, "__name__", "")).rpartition(".")[2]

    def _translate(self, n: torch.fx.Node) -> None:
        self._place(n)
        before = len(self.net.nodes)
        try:
            self.env[n] = self._call(n)
        except CaptureError as e:
            del self.net.nodes[before:]
            where = f"{self.net.scope or 'forward'} ({self.cls})" if self.cls else self.net.scope or "forward"
            self.refusals.append(Refusal(str(n.target), where, str(e)))
            self.env[n] = Refused()

    # ---- the whole

    def run(self, names: Optional[Sequence[str]] = None) -> Net:
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        for n in self.program.graph.nodes:
            if n.op == "placeholder":
                self._placeholder(n, specs[n.name])
            elif n.op == "call_function":
                self._translate(n)
            elif n.op == "output":
                self._finish(n)
        self.net.prune()
        return self.net

    def _finish(self, n: torch.fx.Node) -> None:
        outputs = [a for a in pytree.tree_leaves(n.args) if isinstance(a, torch.fx.Node)]
        mutated = {s.arg.name for s in self.program.graph_signature.output_specs if s.kind.name != "USER_OUTPUT"}
        outputs = [a for a in outputs if a.name not in mutated]
        needed = [a for a in outputs if not isinstance(self.env[a], Refused)]
        if self.refusals and len(needed) < len(outputs):
            raise CaptureError(self._all_refusals())
        self.net.scope = ""
        for i, a in enumerate(outputs):
            if not isinstance(self.env[a], str):
                raise CaptureError(f"output {i} does not depend on the input")
            name = "output" if i == 0 else f"output{i}"
            self.net.add_output(self.env[a], name, (None, *self.shape(a)[1:]), dtype_name(a.meta["val"]))

    def _all_refusals(self) -> str:
        """Each operator once, with the layers that have it."""
        groups: Dict[Tuple[str, str], List[str]] = {}
        for r in self.refusals:
            groups.setdefault((r.operator, r.why), []).append(r.where)
        lines = []
        for (op, why), places in groups.items():
            some = ", ".join(dict.fromkeys(places[:3])) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
            lines.append(f"  {some}: {op}" + (f": {why}" if why else f" is not supported: {advice(op)}"))
        return f"{len(self.refusals)} operators of {self.net.name} cannot be translated:\n" + "\n".join(lines)


ADVICE = {
    "nonzero": "shapes that depend on numbers cannot be planned: use a mask and torch.where",
    "masked_select": "shapes that depend on numbers cannot be planned: use a mask and torch.where",
    "unique": "shapes that depend on numbers cannot be planned",
    "sort": "no gradient flows through an order that depends on data here; use max or topk outside of the model",
    "topk": "no gradient flows through an order that depends on data here; use max outside of the model",
    "fft_fft2": "Fourier transforms are not here: use convolutions, or transform the data set beforehand",
    "deform_conv2d": "use a convolution",
    "cumsum": "use a matmul with a triangular matrix of ones",
    "grid_sample": "use a resize (torch.nn.Upsample), or resample the data set beforehand",
}


def advice(op: str) -> str:
    name = op.split(".")[1] if op.startswith("aten.") else op
    return ADVICE.get(name.rstrip("_"), "write it with operators that are (docs/python.md has the list)")


def capture(module: torch.nn.Module, example: Any) -> Net:
    """The network that `module` is when it is trained. `example` is a batch, or a tuple of them, as forward takes it;
    only its shapes count.

    >>> net = capture(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.zeros(1, 4))
    >>> [(n.op, n.scope) for n in net.nodes]
    [('Gemm', '0'), ('Relu', '1'), ('Identity', '')]
    >>> list(net.weights), net.inputs[0].shape
    (['0.weight', '0.bias'], (None, 4))
    """
    from . import aten  # noqa: F401 fills the table
    if not isinstance(module, torch.nn.Module):
        raise CaptureError(f"a torch.nn.Module is expected, not a {type(module).__name__}")
    _check_modules(module)
    return Capture(module, _checked_example(example)).run()


class Captured:
    """A model of PyTorch, its net, and the way back."""

    def __init__(self, module: torch.nn.Module, example: Any):
        self.model, self.net = module, capture(module, example)

    def input_arrays(self, x: Any) -> Dict[str, Any]:
        """A batch as forward takes it, by the names of the net's inputs."""
        arrays = x if isinstance(x, (list, tuple)) else [x]
        return {p.name: a for p, a in zip(self.net.inputs, arrays)}

    def _own(self) -> Dict[str, torch.Tensor]:
        """The module's tensors that the net has, by name."""
        tensors = _tensors(self.model)
        return {k: tensors[k] for k, w in self.net.weights.items() if k in tensors and w.kind != CONSTANT}

    def first_numbers(self, seed: int, here: bool) -> Iterator[Dict[str, Any]]:
        """Of a model on the meta device: see meta.py."""
        return first_numbers(self.model, self.net, seed, here)

    def state(self) -> Dict[str, Any]:
        """The module's numbers now."""
        if is_meta(self.model):
            raise CaptureError("the model is on the meta device and has no numbers: it gets them in fit, evaluate or predict")
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
        first, out = _first_names(_tensors(self.model)), self.model.state_dict()
        for name, t in out.items():
            if first.get(name, name) in arrays:
                out[name] = torch.from_numpy(arrays[first.get(name, name)]).reshape(t.shape).to(t.dtype)
            elif t.is_meta:
                out[name] = torch.zeros(t.shape, dtype=t.dtype)
        return out
