"""`megalith.Model`: a user's own PyTorch or Keras model, trained by the C library on one rank or many.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
    >>> model = Model(net, example=torch.zeros(1, 3, 8, 8))
    >>> model.compile(optimizer="sgd", loss="cross_entropy", lr=0.1)
    >>> history = model.fit(torch.randn(32, 3, 8, 8), torch.arange(32) % 2, batch_size=8, epochs=2, verbose=0)
    >>> sorted(history.history), len(history.epoch)
    (['accuracy', 'loss', 'lr'], 2)
    >>> model.predict(torch.zeros(5, 3, 8, 8)).shape
    (5, 2)
    >>> net = model.unwrap()                       # the same object, with the trained weights

A plan is for a number of samples per step, so graph, plan and trainer are made when `fit`, `evaluate` or `predict` know
it. Weights stay with the trainer until `unwrap` or `state_dict` ask for them.
"""
from __future__ import annotations

import itertools
import os
import sys
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from . import data, losses, optimizers
from ._library import AskedToStop, MegalithError, NotFinite
from .check import Step
from .callbacks import Callback, History, ModelCheckpoint, Progress, callback
from .capture.ids import check_ids
from .context import current, launched
from .custom import Functions
from .engine import Data, Plan, Trainer
from .interrupts import Interrupts, Stopped
from .net import CaptureError
from .own_loss import KerasLoss, TorchLoss, of_real_targets
from .own_optimizer import PLAN, KerasOptimizer, TorchOptimizer
from .session import Made, Session
from .steps import Steps, absolute_error, right

OTHERS = ": give all ranks the same batch"
INTERRUPTED = "interrupted.safetensors"
HINT = "megalith: one rank, all cores of this machine; `megalith run -np 4 {}` uses four"
SHARES = ("accuracy", "acc", "binary_accuracy", "sparse_categorical_accuracy", "categorical_accuracy")
METRICS = {**dict.fromkeys(SHARES, "accuracy"), **dict.fromkeys(("mae", "mean_absolute_error"), "mae")}  # what a name measures


def hint_once(context: Any) -> None:
    """How to use more than this process, for those who do not know."""
    if context.size == 1 and not launched() and not getattr(context, "hinted", False):
        context.hinted = True
        print(HINT.format(os.path.basename(sys.argv[0]) or "train.py"), file=sys.stderr)


def capture(model: Any, example: Any = None) -> Any:
    """A model of either framework, captured: see capture/torch.py, capture/keras."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module) and not hasattr(model, "get_config"):
        from .capture.torch import Captured
        return Captured(model, example)
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.Model):
        from .capture import keras as captures
        return captures.capture(model)
    raise CaptureError(f"a {type(model).__name__} is neither a torch.nn.Module nor a keras.Model")


class Model:
    """Captures `model`; nothing is computed yet.

    `example`: a batch as the model's forward takes it; only shapes count (Keras models know them). `plan`: "auto", the quickest
    plan that fits; words, {"stages": 2, "micro": 4}; or the path of a file that `model.plan.save(path)` or `megalith plan` has
    written. `seed`: of shuffling, dropout, and of the first numbers of a model on the meta device; without it 1, and for dropout that
    of megalith.init. `weights`: a safetensors file to begin with. `check`: compares the first batch's gradients with PyTorch's
    in `fit`; without it this is done where the model has an autograd.Function of its own, whose backward no capture sees.
    """

    def __init__(self, model: Any, example: Any = None, plan: Any = None, seed: Optional[int] = None, weights: Any = None,
                 check: Optional[bool] = None):
        self.functions = Functions(check)
        with self.functions:
            self.captured = capture(model, example)
        self.net, self.keras = self.captured.net, hasattr(self.captured, "bindings")
        self.functions.of(self.captured)
        self.seed, self.stop_training = 1 if seed is None else seed, False
        self.session = Session(self.captured, plan, -1 if seed is None else seed, None if weights is None else os.fspath(weights))
        self.loss: Optional[losses.Loss] = None
        self.optimizer: Optional[optimizers.Optimizer] = None
        self.steps: Optional[Steps] = None
        self._given_loss: Any = None
        self._threshold: Optional[float] = None  # of an output that says yes or no
        self._logits = False                     # which are logits
        self._lr: Optional[float] = None
        self._uncounted = 0  # steps that the user's model does not know of yet

    # ---- what is trained, and how

    def compile(self, optimizer: Any = "sgd", loss: Any = "cross_entropy", metrics: Sequence[str] = (),
                lr: Optional[float] = None) -> None:
        """Optimizer and loss: strings, or objects of PyTorch or Keras. Objects that the library does not have, and functions,
        run in Python, with a line that says so. Metrics: accuracy, mean absolute error of real targets; without them whichever the
        library has for the loss."""
        self.take(optimizer, loss, metrics, lr)
        if current().rank == 0:
            self._announce()

    def take(self, optimizer: Any, loss: Any, metrics: Sequence[str] = (), lr: Optional[float] = None) -> None:
        """`compile`, without a word about what runs where."""
        for m in metrics:
            if m not in METRICS:
                raise ValueError(f"metrics={m!r} is not known: use accuracy, or mae")
        wanted = {METRICS[m] for m in metrics}
        own_loss = self._take_loss(loss, wanted)
        own_optimizer, fixed = self._take_optimizer(optimizer, lr)
        self._given_loss, self._lr = loss, None
        self.steps = Steps(self.net.outputs if own_loss else self.net.outputs[:1], own_loss, own_optimizer,
                           {k: f for k, f in (("accuracy", self._right), ("mae", self._error)) if k in wanted})
        assert self.loss is not None and self.optimizer is not None
        graph = {"loss": self.loss.text}
        if len(self.net.outputs) > 1 and not own_loss:
            graph["output"] = self.net.outputs[0].name
        if len(self.net.outputs[0].shape) > 2 and self.loss.target:
            graph["classes_at"] = "last" if self.keras else "first"
        plan = {**self.optimizer.words, **({"keep_grads": 1} if own_optimizer else {})}
        made = Made(graph, plan, fixed, bool(own_loss), "value" if own_optimizer else "", self.loss.class_weights)
        self.session.use(made, 0.0 if own_optimizer else self.lr)

    def _announce(self) -> None:
        assert self.steps is not None
        self.steps.announce()
        if len(self.net.outputs) > len(self.steps.outputs):
            print(f"megalith: the model has {len(self.net.outputs)} outputs, and the loss is of the first alone: for a loss of all of "
                  "them give a function, loss(outputs, targets)", file=sys.stderr)

    def _take_loss(self, loss: Any, wanted: Set[str]) -> Any:
        """Returns a loss that runs in Python, if the library does not have it, or not what is to be measured beside it."""
        if getattr(self.captured, "masked", False):
            raise losses.UnknownLoss("the output carries a mask of tokens, by which Keras weighs its loss, and here nobody would: end "
                                     "the model with an operation that carries none (outputs + 0.0), and leave padded tokens out by "
                                     "their labels (ignore_class of the loss)")
        own, self._threshold, self._logits = KerasLoss if self.keras else TorchLoss, 0.5 if self.keras else None, False
        try:
            self.loss = losses.to_words(loss)
            if not self.keras:
                losses.check_head(self.loss, self._torch_end())
        except losses.UnknownLoss:
            function = self._function(loss)
            if function is None or isinstance(loss, str) and loss in losses.NAMES:
                raise
            self.loss = losses.OUTSIDE
            return own(function)
        if self.keras:
            losses.check_head(self.loss, self.captured.end)
        if "mae" in wanted and self.loss.target != losses.REAL:
            raise ValueError("mae is of real targets, and this loss compares classes: leave it out of metrics=")
        if "accuracy" not in wanted or self.loss.target != losses.REAL:
            return None
        found, self.loss = own(self._beside_accuracy(loss, self.loss.text)), losses.OUTSIDE
        found.name += " with accuracy"
        return found

    def _function(self, loss: Any) -> Any:
        """A loss that the library does not have as a function; None: there is none."""
        if isinstance(loss, str):
            return losses.of_keras(loss) if self.keras else None
        return loss if callable(loss) else None

    def _beside_accuracy(self, loss: Any, text: str) -> Any:
        """The function for a loss of real targets that the library has, but without accuracy. Keras calls yes what is more than one
        half, of whatever the model gives; a name that is the library's own means chances."""
        if not self.keras and text != "bce_logits":
            raise ValueError(f"accuracy is of classes, or of yes and no, and {text} compares neither: leave it out of metrics=, or use "
                             "mae")
        end = self.captured.end if self.keras else None
        self._logits = text == "bce_logits" and end != "Sigmoid"
        found = self._function(loss)
        if self._logits and found is None or not self.keras:
            self._threshold = 0.0
        found = losses.by_framework(text, end) if found is None else found
        return found if self.keras else of_real_targets(found)

    def _torch_end(self) -> str:
        """LogSoftmax over what PyTorch takes for classes is the one end that a loss of PyTorch asks for."""
        port = self.net.outputs[0]
        maker = {name: n for n in self.net.nodes for name in n.outputs}
        node = maker.get(port.name)
        while node is not None and node.op == "Identity":
            node = maker.get(node.inputs[0])
        if node is None or node.op != "LogSoftmax":
            return ""
        return "LogSoftmax" if node.attributes.get("axis", -1) % len(port.shape) == 1 else ""

    def _right(self, y: np.ndarray, target: np.ndarray) -> Optional[float]:
        return right(y, target, self.keras, self._threshold)

    def _error(self, y: np.ndarray, target: np.ndarray) -> Optional[float]:
        return absolute_error(y, target, self._logits)

    def _take_optimizer(self, optimizer: Any, lr: Optional[float]) -> Tuple[Any, FrozenSet[str]]:
        """(An optimizer that runs in Python, if the library does not have it; parameters that it leaves as they are.)"""
        trained = {k for k, w in self.net.weights.items() if w.kind == "parameter"}
        of_torch = not self.keras and hasattr(optimizer, "param_groups")
        held, others = optimizers.held_by(optimizer, self.captured.model) if of_torch else (trained, False)
        if of_torch and not held:
            raise ValueError(f"{type(optimizer).__name__} has no parameter of this model: make it of net.parameters(), with the net that "
                             "was given to megalith.Model")
        try:
            self.optimizer = optimizers.to_words(optimizer, lr)
            if not others:
                return None, frozenset(trained - held)
        except optimizers.UnknownOptimizer:
            wanted = "apply" if self.keras else "param_groups"
            if not hasattr(optimizer, wanted) or self.net.meta:  # it would have nothing to update
                raise
        self.optimizer, own = PLAN, (KerasOptimizer if self.keras else TorchOptimizer)(optimizer, self.captured)
        if lr is not None:
            own.lr = lr
        return own, frozenset()

    @property
    def lr(self) -> float:
        """The learning rate of the steps to come; may be set at any time, on all ranks alike."""
        if self.steps is not None and self.steps.own_optimizer is not None:
            return self.steps.own_optimizer.lr
        if self._lr is not None:
            return self._lr
        given = self.optimizer.lr if self.optimizer else None
        if given is not None:
            return given
        return 0.1 if self.optimizer is None or self.optimizer.words["optimizer"] == "sgd" else 0.001

    @lr.setter
    def lr(self, rate: float) -> None:
        if self.steps is not None and self.steps.own_optimizer is not None:
            self.steps.own_optimizer.lr = float(rate)
            return
        self._lr = float(rate)
        self.session.set_lr(self._lr, self.optimizer is not None and self.optimizer.inside)

    @property
    def plan(self) -> Plan:
        """The plan of the last `fit`, `evaluate` or `predict`."""
        if self.session.plan is None:
            raise RuntimeError("there is no plan yet: it is made when fit, evaluate or predict know the batch")
        return self.session.plan

    def summary(self) -> str:
        """Layers, parameters and, once there is one, the plan; printed on rank 0."""
        layers = self.net.layers()
        wide = max([len(name) for name, _, _ in layers] + [5])
        lines = [f"{self.net.name}: {len(self.net.nodes)} operators, {self.net.parameters():,} parameters that are trained",
                 f"{'layer':{wide}}  {'operators':24}  parameters"]
        lines += [f"{name:{wide}}  {', '.join(ops):24}  {count:,}" for name, ops, count in layers]
        if self.session.plan is not None:
            lines.append(self.session.plan.text("summary"))
        if current().rank == 0:
            print("\n".join(lines))
        return "\n".join(lines)

    # ---- batches

    def _ready(self) -> Session:
        if self.steps is None:
            raise RuntimeError("call compile(optimizer=.., loss=..) first")
        hint_once(current())
        return self.session

    def _source(self, x: Any, y: Any, shuffle: bool = False) -> data.Source:
        return data.source(x, y, shuffle, self.seed, [p.name for p in self.net.inputs])

    def _named(self, inputs: List[np.ndarray], targets: List[np.ndarray]) -> Dict[str, np.ndarray]:
        """A batch by the names that the network has."""
        assert self.loss is not None
        if len(inputs) != len(self.net.inputs):
            raise data.BadData(f"{len(inputs)} inputs, but the model takes {len(self.net.inputs)}: "
                               + ", ".join(p.name for p in self.net.inputs))
        named = self.captured.input_arrays(inputs if len(inputs) > 1 else inputs[0])
        out = {p.name: data.as_input(named[p.name], p.name, p.dtype) for p in self.net.inputs}
        for p in self.net.inputs:
            if out[p.name].shape[1:] != tuple(p.shape[1:]):
                raise data.BadData(f"samples of '{p.name}' are {'x'.join(map(str, out[p.name].shape[1:]))}, but the model was "
                                   f"captured for {'x'.join(map(str, p.shape[1:]))}: give such an example=")
        check_ids(self.captured.rows, out)
        if self.loss.target and targets:
            if len(targets) > 1:
                raise data.BadData(f"{len(targets)} targets, but this loss compares one output with one target: for several give a function, "
                                   + ("loss(targets, outputs)" if self.keras else "loss(outputs, targets)"))
            out[self.loss.target] = self._target(data.as_target(self.loss.targets(data.to_array(targets[0])), self.loss.target))
        return out

    def _target(self, t: np.ndarray) -> np.ndarray:
        """As the library compares it with the output."""
        assert self.loss is not None
        shape = self.net.outputs[0].shape
        if self.loss.target == losses.REAL:
            if t.ndim == len(shape) - 1 and shape[-1] == 1 and (self.keras or t.ndim == 1):
                t = t[..., None]
            return np.ascontiguousarray(np.moveaxis(t, -1, 1) if self.keras and t.ndim > 2 else t)
        if len(shape) < 2:
            return t
        axis = losses.class_axis(shape, t.shape, self.keras)
        if t.ndim == len(shape) and t.shape[axis] == 1:
            t = np.squeeze(t, axis)
        data.check_labels(t, shape[axis] or 0, self.loss.ignored)
        return np.ascontiguousarray(t)

    def _settle(self, targets: List[np.ndarray]) -> None:
        """Which axis has the classes, where there are more than two: the graph is read for it."""
        assert self.loss is not None
        shape = self.net.outputs[0].shape
        if self.loss.target != losses.CLASSES or len(shape) < 3 or not targets:
            return
        axis = losses.class_axis(shape, np.shape(targets[0]), self.keras)
        self.session.change(graph={"classes_at": "first" if axis == 1 else "last"})

    # ---- training

    def fit(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None, epochs: int = 1,
            validation_data: Any = None, callbacks: Sequence[Any] = (), shuffle: bool = True, verbose: int = 1,
            initial_epoch: int = 0, steps_per_epoch: Optional[int] = None, validation_split: float = 0.0) -> History:
        """Trains. `batch_size` is that of all ranks together. Callbacks are ours, or Keras'. Returns what was measured, epoch by
        epoch."""
        if validation_split:
            (x, y), validation_data = data.split(x, y, validation_split)
        source = self._source(x, y, shuffle)
        batch, first = self._first(source, batch_size, initial_epoch)
        self._begin(source, batch, first)
        history = History()
        told = [history, *map(callback, callbacks), *([Progress(verbose)] if verbose else [])]
        for c in told:
            c.model, c.params = self, {"epochs": epochs, "steps": steps_per_epoch or source.steps(batch), "batch_size": batch}
        self.stop_training = False
        self._tell(told, "on_train_begin", logs={})
        with Interrupts(current().rank == 0) as asked:
            try:
                for epoch in range(initial_epoch, epochs):
                    logs = self._epoch(source, batch, epoch, (told, steps_per_epoch, asked))
                    if validation_data is not None:
                        self._tell(told, "on_test_begin", logs={})
                        found = self._validate(validation_data, batch)
                        self._tell(told, "on_test_end", logs=found)
                        logs.update({"val_" + k: v for k, v in found.items()})
                    logs["lr"] = self.lr
                    self._tell(told, "on_epoch_end", epoch, logs)
                    if self.stop_training:
                        break
            except AskedToStop:
                raise self._stopped(told) from None
        self._tell(told, "on_train_end", logs={})
        return history

    def _stopped(self, told: Sequence[Callback]) -> Stopped:
        """After Ctrl-C: weights go to a file, beside those of a ModelCheckpoint if there is one."""
        folder = next((os.path.dirname(c.filepath) for c in told if isinstance(c, ModelCheckpoint)), "")
        if folder and current().rank == 0:
            os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, INTERRUPTED)
        self.save_weights(path)
        self._tell(told, "on_train_end", logs={})
        return Stopped(f"training was stopped after a whole step; the weights are in {path}: model.load_weights({path!r}) takes them up")

    def _first(self, source: data.Source, given: Optional[int], epoch: int) -> Tuple[int, data.Batch]:
        """Samples of a batch, and the first one: whole on many ranks, which compare it."""
        several = current().size > 1
        first = source.first(source.batch or given or 32, epoch, lambda i: several or i == 0)
        if first is None or not len(first[0][0]):
            raise data.BadData("there is no batch in the data")
        told = given or (len(first[0][0]) if source.batch is None and source.count is None else None)
        return self._batch_size(source, told), first

    def _batch_size(self, source: data.Source, given: Optional[int]) -> int:
        batch = source.batch or given or 32
        if given and source.batch and given != source.batch:
            raise data.BadData(f"batch_size={given}, but the loader makes batches of {source.batch}: leave batch_size out")
        if source.count is not None:
            batch = min(batch, source.count)
        if batch < current().size and not self.session.chosen:
            raise data.BadData(f"a batch of {batch} samples on {current().size} ranks: give at least one to each, or a plan with "
                               "stages or a mesh")
        return batch

    def _begin(self, source: data.Source, batch: int, first: data.Batch) -> None:
        """The trainer for the batches of a source; what is looked at once, before training begins."""
        session = self._ready()
        self._settle(first[1])
        sample = self._named(*first)
        trainer = session.make(batch, source.count % batch if source.count else 0, sample)
        self._compare_ranks(trainer, sample)
        self.functions.compare(self.captured, first, self._given_loss)

    def _compare_ranks(self, trainer: Trainer, sample: Mapping[str, np.ndarray]) -> None:
        """Where samples were drawn without a seed, ranks have others: the library compares some numbers of the first batch
        before it looks at it."""
        assert self.steps is not None
        if current().size == 1:
            return
        batch = Data(sample, name="the first batch")
        try:
            if self.steps.own_loss:
                trainer.predict(batch, self.net.outputs[0])
            else:
                trainer.evaluate(batch)
        except NotFinite:
            pass  # the first step will say so
        except MegalithError as e:
            raise data.BadData(f"{e}{OTHERS if 'samples to' in str(e) else ''}") from None

    def _tell(self, told: Sequence[Callback], event: str, *arguments: Any, logs: Optional[Dict[str, float]] = None) -> None:
        for c in told:
            getattr(c, event)(*arguments, *([logs] if logs is not None else []))

    def _epoch(self, source: data.Source, batch: int, epoch: int,
               how: Tuple[Sequence[Callback], Optional[int], Interrupts]) -> Dict[str, float]:
        told, most, asked = how
        sums: Dict[str, float] = {}
        count = 0
        self._tell(told, "on_epoch_begin", epoch, logs={})
        for i, (inputs, targets) in enumerate(itertools.islice(source.batches(batch, epoch, self._wanted), most)):
            self._tell(told, "on_batch_begin", i, logs={})
            size = len(inputs[0])
            for k, v in self._step(inputs, targets, asked).items():
                sums[k] = sums.get(k, 0.0) + v * size
            count += size
            self._tell(told, "on_batch_end", i, logs={k: v / count for k, v in sums.items()})
            if self.stop_training:
                break
        if not count:
            raise data.BadData(f"there is no batch left for epoch {epoch + 1}: a generator gives each of its batches once; give a list "
                               "or a DataLoader, which can be iterated again, or steps_per_epoch=")
        return {k: v / count for k, v in sums.items()}

    def _step(self, inputs: List[np.ndarray], targets: List[np.ndarray], asked: Optional[Interrupts] = None) -> Dict[str, float]:
        assert self.steps is not None
        named = self._named(inputs, targets)
        trainer = self.session.ready(len(inputs[0]), named)
        if asked is not None and asked.seen:
            trainer.ask_to_stop(named, self.steps.outputs if self.steps.own_loss else ())
        logs = self.steps.train(trainer, named, targets)
        self.session.steps += 1
        self._uncounted += 1
        return logs

    def _wanted(self, index: int) -> bool:
        """A loss in Python looks at all samples on all ranks."""
        return self.session.plan is None or self.loss is losses.OUTSIDE or self.session.plan.reads(index)

    def train_step(self, x: Any, y: Any) -> Dict[str, float]:
        """One step on one batch, of any size: the library makes plans for two, and another one where a third comes."""
        inputs, targets = data.to_arrays(x, [p.name for p in self.net.inputs]), data.to_arrays(y)
        self._ready()
        self._settle(targets)
        return self._step(inputs, targets)

    # ---- looking at it

    def _validate(self, given: Any, batch: int) -> Dict[str, float]:
        """(x, y), or a list of batches, or whatever `fit` takes."""
        batches = isinstance(given, list) and all(isinstance(b, (tuple, list)) for b in given)
        x, y = given if isinstance(given, (tuple, list)) and len(given) == 2 and not batches else (given, None)
        return self.evaluate(x, y, batch_size=batch)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None, verbose: int = 0,
                 return_dict: bool = True) -> Any:
        """Loss and accuracy, in evaluation mode; without `return_dict` a list, as Keras has it. `verbose` is for scripts of Keras."""
        source, session = self._source(x, y), self._ready()
        assert self.steps is not None
        whole = source.count if isinstance(source, data.ArraySource) else None  # arrays: all samples at once
        first = source.first(whole or session.batch or batch_size or 32, 0, lambda i: True)
        if first is None or not len(first[0][0]):
            raise data.BadData("there is no batch in the data: a generator gives each of its batches once")
        self._settle(first[1])
        trainer = session.make(session.batch or self._batch_size(source, batch_size))
        sums: Dict[str, float] = {}
        count = 0
        for inputs, targets in source.batches(whole or session.batch, 0, lambda i: True):
            size = len(inputs[0])
            for k, v in self.steps.evaluate(trainer, self._named(inputs, targets), targets).items():
                sums[k] = sums.get(k, 0.0) + v * size
            count += size
        logs = {k: v / count for k, v in sums.items()}
        return logs if return_dict else list(logs.values())

    def predict(self, x: Any, batch_size: Optional[int] = None, verbose: int = 0) -> Optional[np.ndarray]:
        """What the network makes of the samples, in evaluation mode; on rank 0 (others get None). Of a Dataset or a loader
        targets are left out."""
        session, found = self._ready(), []
        for arrays in data.without_targets(x, batch_size or session.batch or 32, [p.name for p in self.net.inputs]):
            trainer = session.make(session.batch or min(batch_size or 32, len(arrays[0])))
            found.append(trainer.predict(Data(self._named(arrays, [])), self.net.outputs[0]))
        if not found:
            raise data.BadData("there is no batch in the data")
        if found[0] is None:
            return None
        y = found[0] if len(found) == 1 else np.concatenate(found)
        assert self.loss is not None
        return self.captured.predicted(y, self.loss.text) if self.keras else y

    # ---- weights

    def get_weights(self) -> Dict[str, np.ndarray]:
        """Weights and running statistics by name, as they are now, and stay here when training goes on. Collective."""
        found = self.session.get()
        return dict(found) if self.session.trainer is not None else {k: np.array(a) for k, a in found.items()}

    def set_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Rank 0's numbers become those of all ranks; names are those of get_weights, or of the framework. Collective."""
        self.session.set(arrays)
        if self.session.trainer is not None and self.session.made.returns:
            self.captured.unwrap(self.session.get())

    def unwrap(self) -> Any:
        """The user's own object, with the trained weights and statistics. Collective."""
        model = self.captured.unwrap(self.get_weights())
        if self._uncounted and hasattr(self.captured, "count_batches"):
            self.captured.count_batches(self._uncounted)
        self._uncounted = 0
        return model

    def state_dict(self) -> Dict[str, Any]:
        """As the framework's own: names, shapes, types. Collective."""
        return self.captured.state_dict(self.get_weights())

    def save_weights(self, path: Any) -> None:
        """A safetensors file. Collective."""
        if self.session.trainer is None:
            raise RuntimeError("nothing was trained yet: save the model by its own framework")
        self.session.trainer.save(os.fspath(path))

    def load_weights(self, path: Any) -> None:
        """From a safetensors file, of Megalith or of the framework. Collective."""
        if self.session.trainer is None and self.net.meta:
            self.session.weights, self.session.values = os.fspath(path), None
            return
        self.set_weights(self.session.read(os.fspath(path)))

    def one_step(self, inputs: List[np.ndarray], targets: List[np.ndarray]) -> Step:
        """What a step on this batch computes, of a plan with keep_grads: see check.py. Collective."""
        self._ready()
        self._settle(targets)
        named = self._named(inputs, targets)
        trainer = self.session.make(len(inputs[0]))
        assert self.steps is not None
        logs = self.steps.train(trainer, named, targets)
        return Step(logs["loss"], trainer.get("gradient"), trainer.get("statistic"))
