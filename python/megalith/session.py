"""The library's objects for a captured model: graph, plan, trainer.

A plan is for a number of samples per step, and one other number, that of the last batch of an epoch. So they are made when
a batch is there, and anew where one of another size does not fit. What was trained goes over: weights, statistics, the state
of the library's optimizer, and how many steps there were, of which Adam's rate and the random numbers of dropout depend.
"""
from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import tempfile
from typing import Any, Dict, FrozenSet, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import data, onnx_file
from .context import current
from .engine import Announced, Graph, Plan, Trainer
from .net import CONSTANT, PARAMETER
from .weights import read_safetensors

Arrays = Mapping[str, np.ndarray]
COUNTERS = ("num_batches_tracked",)      # of normalisations, which the captured model looks after
LEAST = 1e-20                            # a rate that moves no weight, but can be divided by
CLASS_WEIGHTS = "loss.weight"            # files of a trainer have them beside the network's


def plan_words(plan: Any) -> Tuple[Dict[str, Any], Optional[str]]:
    """Words of a plan, and the file that has more of them.

    >>> plan_words("auto"), plan_words({"stages": 2}), plan_words("stages=2 micro=4")
    (({}, None), ({'stages': 2}, None), ({'stages': '2', 'micro': '4'}, None))
    """
    if plan is None or isinstance(plan, str) and plan == "auto":
        return {}, None
    if isinstance(plan, Mapping):
        return dict(plan), None
    if not isinstance(plan, (str, os.PathLike)):
        raise TypeError(f"plan= is a {type(plan).__name__}: give 'auto', words as a dict, {{'stages': 2}}, or the path of a plan's "
                        "file")
    path = os.fspath(plan)
    if os.path.exists(path):
        return {}, path
    pairs = [word.partition("=") for word in shlex.split(path)]
    if not all(sign for _, sign, _ in pairs):
        raise ValueError(f"plan={path!r}: there is no such file; give 'auto', words ('stages=2 micro=4'), or a file that model.plan.save, or "
                         "megalith plan, has written")
    return {word: value for word, _, value in pairs}, None


@dataclasses.dataclass
class Made:
    """What trainers are made for."""

    graph: Dict[str, Any] = dataclasses.field(default_factory=dict)  # words of the graph: loss, output
    plan: Dict[str, Any] = dataclasses.field(default_factory=dict)   # words of the plan, under those of the user
    fixed: FrozenSet[str] = frozenset()                              # parameters that the user's optimizer does not have
    exact: bool = False  # batches have the planned sizes; else smaller ones are filled up
    returns: str = ""    # weights are trained outside, in the user's own model: what of a trainer that goes is newer than there
    class_weights: Optional[np.ndarray] = None  # of the loss


class Session:
    """`plan`: "auto", words, or a file. `seed`: of dropout; below 0: that of megalith.init. `weights`: a file to begin with."""

    def __init__(self, captured: Any, plan: Any = None, seed: int = -1, weights: Optional[str] = None):
        self.captured, self.net, self.seed, self.weights = captured, captured.net, seed, weights
        self.words, self.file = plan_words(plan)
        self.folder = tempfile.mkdtemp(prefix="megalith-")
        self.made, self.lr = Made(), 0.0
        self.trainer: Optional[Trainer] = None
        self.plan: Optional[Plan] = None
        self.graph: Optional[Graph] = None
        self.batch = self.tail = 0                      # samples of a step; of the last one of an epoch, if it has fewer
        self.steps = 0                                  # done, by this optimizer
        self.values: Optional[Arrays] = None            # newer than the model's, from a trainer that is gone
        self.moments: Arrays = {}                       # of its optimizer
        if weights is not None and not self.net.meta:   # else the trainer reads it, once
            self.values, self.weights = self.read(weights), None

    def __del__(self) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @property
    def chosen(self) -> bool:
        """Has the user said how ranks share the work?"""
        return bool(self.words or self.file)

    # ---- making

    def use(self, made: Made, lr: float) -> None:
        """For another loss or optimizer, whose state begins anew; weights stay."""
        self.drop()
        self.made, self.lr, self.moments, self.steps = made, lr, {}, 0

    def set_lr(self, rate: float, inside: bool) -> None:
        """Of the steps to come. `inside`: momentum is Keras', the library's times the rate, and stays as it is; collective then."""
        rate = max(rate, LEAST) if inside else rate
        if inside and rate != self.lr:
            self._scale(self.lr / rate)
        self.lr = rate
        if self.trainer is not None:
            self.trainer.set_lr(rate)

    def _scale(self, factor: float) -> None:
        """The momentum of all weights."""
        held = self.moments
        if self.trainer is not None:
            names = [k for k in self.trainer.tensors("state") if k.endswith("#momentum")]
            held = self.trainer.get("state", names, self.trainer.real) if names else {}
        for name in [k for k in held if k.endswith("#momentum")]:
            np.multiply(held[name], factor, out=held[name])
        if self.trainer is not None and held:
            self.trainer.set(held, "state")

    def change(self, graph: Mapping[str, Any] = {}, plan: Mapping[str, Any] = {}) -> None:
        """Other words for what is being trained: all goes over to the next trainer."""
        new = {**self.made.graph, **graph}, {**self.made.plan, **plan}
        if new != (self.made.graph, self.made.plan):
            self.drop()
            self.made = dataclasses.replace(self.made, graph=new[0], plan=new[1])

    def drop(self) -> None:
        """No trainer any more: what it had is here, or in the user's own model."""
        if self.trainer is not None and self.made.returns:
            self.captured.unwrap(self.trainer.get(self.made.returns, dtype=self.trainer.real))
        elif self.trainer is not None:
            real = self.trainer.real
            self.values = self.trainer.get("value", dtype=real)
            self.moments = self.trainer.get("state", dtype=real) if self.trainer.tensors("state") else {}
        for held in (self.trainer, self.plan, self.graph):
            if held is not None:
                held.close()
        self.trainer = self.plan = self.graph = None

    def takes(self, size: int) -> bool:
        """Is the trainer for a batch of so many samples?"""
        if self.trainer is None:
            return False
        return size in (self.batch, self.tail) or size < self.batch and not (self.made.exact or self.net.mixes)

    def ready(self, size: int, sample: Optional[Arrays] = None) -> Trainer:
        """The trainer for a step on so many samples, whose arrays are `sample`."""
        if self.trainer is None or self.takes(size):
            return self.make(self.batch if self.takes(size) else size)
        return self.make(max(size, self.batch), min(size, self.batch), sample)

    def make(self, batch: int, tail: int = 0, sample: Optional[Arrays] = None) -> Trainer:
        """The trainer for steps on `batch` samples, and `tail` in the last one of an epoch."""
        if self.trainer is not None and self.batch == batch and (not tail or self.takes(tail)):
            return self.trainer
        self.drop()
        context = current()
        numbers = {} if self.net.meta else self.captured.state()
        self.graph = Graph(self.write(numbers), context, **self.made.graph)
        announced = Announced(sample, batch + tail, context) if tail and sample else None
        self.plan = Plan(self.graph, announced, self.file, **{**self.made.plan, "batch": batch, "predict": 1, **self.words})
        self.trainer = Trainer(self.plan, None, lr=self.lr)
        self.batch, self.tail = batch, tail if announced else 0
        self._fill(self.trainer, numbers)
        self.trainer.go_on(self.steps, self.seed)
        return self.trainer

    def write(self, numbers: Arrays) -> str:
        """The network as a file; on many ranks without what rank 0 has the say of."""
        path = os.path.join(self.folder, "network.onnx")
        onnx_file.write(self.net.with_numbers(numbers, self.made.fixed, hollow=current().size > 1), path)
        return path

    def _fill(self, trainer: Trainer, numbers: Arrays) -> None:
        """The newest numbers: of a trainer before this one, of a file, drawn; else those that the file of the network has, or,
        on many ranks, rank 0's."""
        if self.values is not None:
            trainer.set_known(self.values)
        elif self.weights is not None:
            trainer.load(self.weights)
            self.weights = None  # what is trained from here on is newer
        elif self.net.meta:
            for some in self.captured.first_numbers(self.seed if self.seed >= 0 else 1, trainer.context.rank == 0):
                trainer.set(some)
        elif trainer.context.size > 1:
            trainer.set_known({k: a for k, a in numbers.items() if self.net.weights[k].kind == PARAMETER})
        if self.moments:
            trainer.set(self.moments, "state")
        if self.made.class_weights is not None:
            name = next(k for k in trainer.tensors("fixed") if k.startswith("loss"))
            trainer.set({name: self.made.class_weights}, "fixed")
        if self.made.returns:
            if trainer.context.size > 1 or self.values is not None:
                self.captured.unwrap(self.get())
            self.values = None

    # ---- numbers

    def get(self) -> Arrays:
        """Weights and running statistics by name, as they are now, as exact as the device has them. Collective."""
        if self.trainer is not None:
            names = [k for k in self.trainer.tensors("value") if k in self.net.weights]
            return self.trainer.get("value", names, self.trainer.real)
        if self.values is None:
            return self.captured.state()
        return {k: a for k, a in self.values.items() if k in self.net.weights}

    def set(self, arrays: Mapping[str, Any]) -> None:
        """Rank 0's numbers become those of all ranks. Collective."""
        known = self.known(arrays)
        if self.trainer is not None:
            self.trainer.set_known(known)
        else:
            self.values = {**self.get(), **known}

    def read(self, path: str) -> Arrays:
        """The numbers of a file, which has all weights."""
        given = read_safetensors(path)
        given.pop(CLASS_WEIGHTS, None)
        known = self.known(given)
        missing = [k for k, w in self.net.weights.items() if is_real(w) and k not in known]
        if missing:
            raise ValueError(f"{len(missing)} weights of the model are not in {path}: {', '.join(missing[:3])}, ..")
        return known

    def known(self, arrays: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Of these numbers those that the network has, by its names. What it has as constants must be what the user's model has:
        nothing is dropped that would make a difference."""
        own, out, strange = own_tensors(self.captured.model), {}, []
        for given, array in arrays.items():
            name, array = self.net.aliases.get(given, given), data.to_array(array)
            if name in self.net.weights and is_real(self.net.weights[name]):
                out[name] = as_weight(name, array, self.net.weights[name])
            elif name in self.net.untouched:
                continue
            elif given in own:
                check_constant(given, array, own[given])
            else:
                strange.append(given)
        if strange:
            raise ValueError(f"{len(strange)} of the given names are not the model's: {', '.join(strange[:3])}, ..; it has "
                             f"{', '.join(list(self.net.weights)[:3])}, .. (get_weights() has all)")
        return out


# ---- numbers of the user

def own_tensors(model: Any) -> Dict[str, Any]:
    """All of the user's model, also those that the network has as constants, or not at all."""
    if hasattr(model, "named_buffers"):
        return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    return {v.path: v for v in model.variables}


def is_real(weight: Any) -> bool:
    """No counter, no table of indices, no number of the code."""
    return weight.kind != CONSTANT and "float" in weight.dtype


def extents(shape: Sequence[int]) -> Tuple[int, ...]:
    """Without those that order nothing."""
    return tuple(int(d) for d in shape if d != 1)


def as_weight(name: str, array: np.ndarray, weight: Any) -> np.ndarray:
    """Real numbers of the weight's shape; whole ones become real, and axes of one are as the weight has them."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"'{name}' is {array.dtype}, but weights are real numbers: give float32")
    if extents(array.shape) != extents(weight.shape):
        given, has = ("x".join(map(str, s)) or "one number" for s in (array.shape, weight.shape))
        raise ValueError(f"'{name}' is {given}, but the model has {has}: give numbers of the model's shape")
    return array.astype(array.dtype if array.dtype.kind == "f" else np.float32, copy=False).reshape(weight.shape)


def check_constant(name: str, array: np.ndarray, own: Any) -> None:
    """Numbers of a buffer are computed with when the model is captured: other ones would change nothing. Files of
    bfloat16 have rounded ones."""
    if name.rpartition(".")[2] in COUNTERS or getattr(own, "requires_grad", False) or getattr(own, "is_meta", False):
        return
    has = data.to_array(own.value if hasattr(own, "value") else own)
    slack = 2 ** -8 if has.dtype.kind == "f" else 0
    if array.shape != has.shape or not np.allclose(array, has, slack, 0, equal_nan=True):
        raise ValueError(f"'{name}' has other numbers than the model, where it is a constant of the network: put them into the "
                         "model before megalith.Model(net)")
