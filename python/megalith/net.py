"""A captured network, as plain data.

Frameworks are read by ``megalith.capture``; what they leave is a ``Net``: nodes with the names, attributes
and meaning of ONNX operators, in the order in which they run, and the weights under the names that the
user's framework gives them. ``megalith.onnx_file`` writes it for the C library.

    >>> import numpy as np
    >>> net = Net("two layers")
    >>> x = net.add_input("x", (None, 4), "float32")
    >>> net.scope = "fc"                                     # the module that the next nodes belong to
    >>> w = net.add_weight("fc.weight", np.zeros((3, 4), "float32"))
    >>> y = net.emit("Gemm", [x, w], transB=1)
    >>> net.scope = "act"
    >>> net.add_output(net.emit("Relu", [y]))
    >>> [(n.op, n.scope) for n in net.nodes]
    [('Gemm', 'fc'), ('Relu', 'act')]
"""
from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, Container, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

Shape = Tuple[Optional[int], ...]  # None: the batch

PARAMETER = "parameter"  # trained, and in files of weights
BUFFER = "buffer"        # not trained, but in files of weights: running statistics, frozen parameters
CONSTANT = "constant"    # a number of the code: in no file of weights
KINDS = (PARAMETER, BUFFER, CONSTANT)


class CaptureError(Exception):
    """A model, or a part of it, that cannot be captured. The message says which layer, which operator, and
    what would do instead."""


@dataclasses.dataclass
class Port:
    """An input or an output of the network. The first axis is the batch."""

    name: str
    shape: Shape
    dtype: str  # "float32", "int64", ...


@dataclasses.dataclass
class Weight:
    """Numbers that lie in the file: ``array`` in the order of the file's operators.

    ``permutation`` says how that order came about: ``array == framework.transpose(permutation)``. Frameworks
    whose order is ONNX's have None.
    """

    name: str
    kind: str
    shape: Tuple[int, ...]
    dtype: str
    array: Optional[np.ndarray]  # None: of a model on the meta device
    permutation: Optional[Tuple[int, ...]] = None
    layout: Any = None  # more than a permutation (capture/keras/layout.py): has to_file and to_framework

    def to_framework(self, array: np.ndarray) -> np.ndarray:
        """Numbers in the file's order (a gradient, a trained weight) in that of the framework.

        >>> w = Weight("k", PARAMETER, (2, 1), "float32", None, permutation=(1, 0))
        >>> w.to_framework(np.array([[1.], [2.]])).tolist()
        [[1.0, 2.0]]
        """
        if self.layout is not None:
            return self.layout.to_framework(array)
        if self.permutation is None:
            return array
        return array.transpose(np.argsort(self.permutation))

    def to_file(self, array: np.ndarray) -> np.ndarray:
        """Numbers in the framework's order in that of the file."""
        if self.layout is not None:
            return self.layout.to_file(array)
        return array if self.permutation is None else array.transpose(self.permutation)


@dataclasses.dataclass
class Node:
    """One ONNX operator; of the domain "megalith", one of the C library by its own name, with its words in the attribute
    ``words``. ``scope`` is the path of the module that called it ("layer1.0.conv1")."""

    op: str
    inputs: List[str]  # "": absent
    outputs: List[str]
    attributes: Dict[str, Any] = dataclasses.field(default_factory=dict)
    scope: str = ""
    notes: Dict[str, str] = dataclasses.field(default_factory=dict)
    domain: str = ""


def exact(number: float) -> np.ndarray:
    """One number of the code, as a float if the reader of the C library finds back what was meant (up to six
    digits, and roots of whole numbers), else as a double.

    >>> exact(0.1).dtype, exact(1 / 3).dtype
    (dtype('float32'), dtype('float64'))
    """
    small = np.float32(number)
    if not math.isfinite(number) or float(small) == number or float(f"{small:.6g}") == number:
        return np.array(small)
    return np.array(number, np.float64)


class Net:
    """Nodes, weights, inputs and outputs; and what a capture needs to add them one after the other."""

    def __init__(self, name: str = "network"):
        self.name = name
        self.nodes: List[Node] = []
        self.inputs: List[Port] = []
        self.outputs: List[Port] = []
        self.weights: Dict[str, Weight] = {}
        self.aliases: Dict[str, str] = {}  # second names of shared weights -> the name that they have in `weights`
        self.batch = 0                     # the number that stands for the batch in shapes; 0: shapes say -1
        self.scope = ""                    # of the nodes that are added next
        self.untouched: Dict[str, str] = {}  # names of the framework that the network does not use -> why
        self._names: Dict[str, int] = {}   # how often a stem was asked for: names are found without trying all
        self._taken: Set[str] = set()

    # ---- names

    def fresh(self, stem: str) -> str:
        """A name that no value and no weight has yet."""
        name, count = stem, self._names.get(stem, 1)
        while name in self._taken or name in self.aliases:
            count += 1
            name = f"{stem}_{count}"
        self._names[stem] = count
        self._taken.add(name)
        return name

    # ---- parts

    def add_input(self, name: str, shape: Sequence[Optional[int]], dtype: str) -> str:
        """Whole numbers of few bits come as int32."""
        name, dtype = self.fresh(name), "int32" if dtype in ("uint8", "int8", "int16") else dtype
        self.inputs.append(Port(name, tuple(shape), dtype))
        return name

    def add_output(self, value: str, name: Optional[str] = None, shape: Sequence[Optional[int]] = (),
                   dtype: str = "float32") -> None:
        """Makes a value an output; under another name, if given."""
        if name is not None and name != value:
            value = self.emit("Identity", [value], names=[self.fresh(name)])
        self.outputs.append(Port(value, tuple(shape), dtype))

    def add_weight(self, name: str, array: Any, kind: str = PARAMETER,
                   permutation: Optional[Sequence[int]] = None, shape: Optional[Sequence[int]] = None,
                   dtype: Optional[str] = None) -> str:
        """Adds a weight under the framework's name, once; returns that name.

        ``array`` is in the order of the framework, and is turned here if there is a permutation. It may be
        None, with shape and dtype, for a model on the meta device.
        """
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r}: use one of {', '.join(KINDS)}")
        name = self.aliases.get(name, name)
        if name in self.weights:
            if self.weights[name].permutation != (tuple(permutation) if permutation else None):
                raise CaptureError(f"the weight '{name}' is shared by layers that read it in different orders: "
                                   "give each its own")
            return name
        if array is not None:
            array = np.asarray(array)
            shape, dtype = array.shape, str(array.dtype)
        assert shape is not None and dtype is not None
        turn = tuple(int(i) for i in permutation) if permutation else None
        if turn:
            array = array.transpose(turn) if array is not None else None
            shape = [shape[i] for i in turn]
        self.weights[name] = Weight(name, kind, tuple(int(d) for d in shape), dtype, array, turn)
        self._taken.add(name)
        return name

    def add_alias(self, name: str, canonical: str) -> None:
        """A second name of a shared weight."""
        if name != canonical:
            self.aliases[name] = canonical

    def constant(self, array: Any, stem: str = "constant") -> str:
        """Numbers of the code: never trained, never saved. A Python float is kept as exact as it can be."""
        array = exact(array) if isinstance(array, float) else np.asarray(array)
        name = self.fresh(stem)
        self.weights[name] = Weight(name, CONSTANT, array.shape, str(array.dtype), array)
        return name

    def whole(self, *numbers: int) -> str:
        """A list of whole numbers: axes, a shape."""
        return self.constant(np.array(numbers, np.int64), "whole")

    def emit(self, op: str, inputs: Iterable[str], names: Optional[List[str]] = None, outputs: int = 1,
             notes: Optional[Dict[str, str]] = None, domain: str = "", **attributes: Any) -> Any:
        """Adds a node; returns the name of its output, or a list of them if there are several."""
        out = names or [self.fresh(op.lower()) for _ in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(Node(op, list(inputs), out, given, self.scope, dict(notes or {}), domain))
        return out[0] if len(out) == 1 else out

    # ---- the whole

    def prune(self) -> None:
        """Leaves out nodes that no output needs, and constants that no node reads."""
        needed = {p.name for p in self.outputs}
        kept: List[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        for name in [k for k, w in self.weights.items() if k not in needed]:
            if self.weights[name].kind != CONSTANT:
                self.untouched[name] = "no output depends on it"
            del self.weights[name]

    def with_numbers(self, numbers: Mapping[str, np.ndarray], fixed: Container[str] = (), hollow: bool = False) -> "Net":
        """The same with these numbers, which may be newer than those that were captured. Parameters among the `fixed` ones are
        not trained. `hollow`: the others have no numbers, and are set later."""
        def renewed(name: str, w: Weight) -> Weight:
            array = np.asarray(numbers[name]).reshape(w.shape)
            if w.kind == PARAMETER and name not in fixed:
                return dataclasses.replace(w, array=None if hollow else array, dtype=str(array.dtype))
            return dataclasses.replace(w, array=array, dtype=str(array.dtype), kind=BUFFER)
        out = copy.copy(self)
        out.weights = {k: renewed(k, w) if k in numbers and w.kind != CONSTANT else w for k, w in self.weights.items()}
        return out

    @property
    def mixes(self) -> bool:
        """Has each sample a say in what becomes of the others? Then batches cannot be filled up."""
        return any(n.op == "BatchNormalization" for n in self.nodes)

    @property
    def meta(self) -> bool:
        """Are there weights without numbers?"""
        return any(w.array is None for w in self.weights.values())

    def layers(self) -> List[Tuple[str, List[str], int]]:
        """Of each module that has operators: its path, the operators, how many numbers of it are trained.

        >>> net = Net()
        >>> net.scope = "fc"
        >>> _ = net.emit("Gemm", ["x", net.add_weight("fc.weight", np.zeros((3, 4), "float32"))])
        >>> net.layers()
        [('fc', ['Gemm'], 12)]
        """
        out: Dict[str, Tuple[List[str], Dict[str, int]]] = {}
        seen: Set[str] = set()
        for node in self.nodes:
            ops, weights = out.setdefault(node.scope, ([], {}))
            ops += [node.op] if node.op not in ops else []
            for name in node.inputs:
                w = self.weights.get(name)
                if w is not None and w.kind == PARAMETER and name not in seen:
                    seen.add(name)
                    weights[name] = math.prod(w.shape)
        return [(scope, ops, sum(weights.values())) for scope, (ops, weights) in out.items() if scope or weights]

    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(math.prod(w.shape) for w in self.weights.values() if w.kind == PARAMETER)

    def bytes(self) -> int:
        """Of all weights and constants."""
        return sum(math.prod(w.shape) * itemsize(w.dtype) for w in self.weights.values())


def itemsize(dtype: str) -> int:
    """Bytes of one number.

    >>> itemsize("bfloat16"), itemsize("float64")
    (2, 8)
    """
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize

