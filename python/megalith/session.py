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
from typing import Any, Dict, FrozenSet, Mapping, Optional, Tuple

import numpy as np

from . import onnx_file
from .context import current
from .engine import Announced, Graph, Plan, Trainer
from .net import PARAMETER

Arrays = Mapping[str, np.ndarray]


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

    def change(self, graph: Mapping[str, Any] = {}, plan: Mapping[str, Any] = {}) -> None:
        """Other words for what is being trained: all goes over to the next trainer."""
        new = {**self.made.graph, **graph}, {**self.made.plan, **plan}
        if new != (self.made.graph, self.made.plan):
            self.drop()
            self.made = dataclasses.replace(self.made, graph=new[0], plan=new[1])

    def drop(self) -> None:
        """No trainer any more: what it had is here, or in the user's own model."""
        if self.trainer is not None and self.made.returns:
            self.captured.unwrap(self.trainer.get(self.made.returns))
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
            if trainer.context.size > 1 or self.values is not None or self.weights is not None:
                self.captured.unwrap(trainer.get("value"))
            self.values = None

    # ---- numbers

    def get(self) -> Arrays:
        """Weights and running statistics by name, as they are now. Collective."""
        if self.trainer is not None:
            return self.trainer.get("value")
        return dict(self.values) if self.values is not None else self.captured.state()

    def set(self, arrays: Arrays) -> None:
        """Rank 0's numbers become those of all ranks. Collective."""
        if self.trainer is not None:
            self.trainer.set_known(arrays)
        else:
            self.values = {**self.get(), **{k: a for k, a in arrays.items() if k in self.net.weights}}
