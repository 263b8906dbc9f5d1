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

import os
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import data, losses, onnx_file, optimizers
from ._library import AskedToStop
from .callbacks import Callback, History, ModelCheckpoint, Progress
from .context import current, launched
from .engine import Announced, Data, Graph, Plan, Trainer
from .interrupts import Interrupts, Stopped
from .net import CaptureError
from .own_loss import KerasLoss, TorchLoss
from .own_optimizer import PLAN, KerasOptimizer, TorchOptimizer
from .steps import Steps

INTERRUPTED = "interrupted.safetensors"
HINT = "megalith: one rank, all cores of this machine; `megalith run -np 4 {}` uses four"


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

    `example`: a batch as the model's forward takes it; only shapes count (Keras models know them). `plan`: words of the
    plan as a dict, {"stages": 2, "micro": 4}; None: the quickest plan that fits is chosen. `seed`: of shuffling, dropout, and
    of the first numbers of a model on the meta device. `weights`: a safetensors file to begin with.
    """

    def __init__(self, model: Any, example: Any = None, plan: Optional[Mapping[str, Any]] = None, seed: int = 1,
                 weights: Optional[str] = None):
        self.captured = capture(model, example)
        self.net = self.captured.net
        self.plan_words = dict(plan or {})
        self.seed, self.stop_training = seed, False
        self._weights = os.fspath(weights) if weights is not None else None
        self.loss: Optional[losses.Loss] = None
        self.optimizer: Optional[optimizers.Optimizer] = None
        self.steps: Optional[Steps] = None
        self._lr: Optional[float] = None
        self._folder = tempfile.mkdtemp(prefix="megalith-")
        self._trainer: Optional[Trainer] = None
        self._plan: Optional[Plan] = None
        self._graph: Optional[Graph] = None
        self._batch, self._count = 0, 0  # samples of a step, and of an epoch, that the plan was made for
        self._uncounted = 0              # steps that the user's model does not know of yet
        self._state: Optional[Dict[str, np.ndarray]] = None  # newer than the model's, from a trainer that is gone

    def __del__(self) -> None:
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)

    # ---- what is trained, and how

    def compile(self, optimizer: Any = "sgd", loss: Any = "cross_entropy", metrics: Sequence[str] = (),
                lr: Optional[float] = None) -> None:
        """Optimizer and loss: strings, or objects of PyTorch or Keras. Objects that the library does not have, and functions,
        run in Python, with a line that says so. Metrics: accuracy of classes, mean absolute error of real targets, whichever
        the loss has."""
        known = ("accuracy", "acc", "mae", "mean_absolute_error", "sparse_categorical_accuracy")
        for m in metrics:
            if m not in known:
                raise ValueError(f"metrics={m!r} is not known: use accuracy, or mae")
        self._drop_trainer()
        keras = hasattr(self.captured, "bindings")
        own_loss, own_optimizer = self._take_loss(loss, keras), self._take_optimizer(optimizer, lr, keras)
        self._lr = None
        self.steps = Steps(self.net.outputs[0], own_loss, own_optimizer, (-1 if keras else 1) if metrics else None)
        if current().rank == 0:
            self.steps.announce()

    def _take_loss(self, loss: Any, keras: bool) -> Any:
        """Returns a loss that runs in Python, if the library does not have it."""
        try:
            self.loss = losses.to_words(loss)
        except losses.UnknownLoss:
            if isinstance(loss, str) or not callable(loss):
                raise
            self.loss = losses.OUTSIDE
            return (KerasLoss if keras else TorchLoss)(loss)
        if keras:
            losses.check_head(self.loss, self.captured.end)
        return None

    def _take_optimizer(self, optimizer: Any, lr: Optional[float], keras: bool) -> Any:
        try:
            self.optimizer = optimizers.to_words(optimizer, lr)
        except optimizers.UnknownOptimizer:
            wanted = "apply" if keras else "param_groups"
            if not hasattr(optimizer, wanted) or self.net.meta:  # it would have nothing to update
                raise
            self.optimizer, own = PLAN, (KerasOptimizer if keras else TorchOptimizer)(optimizer, self.captured)
            if lr is not None:
                own.lr = lr
            return own
        return None

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
        if self._trainer is not None:
            self._trainer.set_lr(self._lr)

    # ---- the library's objects

    def _drop_trainer(self) -> None:
        if self._trainer is not None:
            self._state = self._trainer.get("value")
            for held in (self._trainer, self._plan, self._graph):
                assert held is not None
                held.close()
        self._trainer = self._plan = self._graph = None

    def _write(self) -> str:
        """The network as a file, with the newest weights."""
        path = os.path.join(self._folder, "network.onnx")
        if self._graph is None:
            onnx_file.write(self.net, path)
        return path

    def _make(self, batch: int, first: Optional[data.Batch] = None, count: Optional[int] = None) -> Trainer:
        """The trainer for so many samples per step, and in all, if their number is known: batches that are smaller than
        the others are planned for."""
        if self.loss is None or self.optimizer is None or self.steps is None:
            raise RuntimeError("call compile(optimizer=.., loss=..) first")
        if self._trainer is not None and self._batch == batch and count in (None, self._count):
            return self._trainer
        self._drop_trainer()
        context = current()
        hint_once(context)
        output = {"output": self.net.outputs[0].name} if len(self.net.outputs) > 1 else {}
        self._graph = Graph(self._write(), context, loss=self.loss.text, **output)
        own = self.steps.own_optimizer
        words = {**self.optimizer.words, "batch": batch, "predict": 1, **({"keep_grads": 1} if own else {}), **self.plan_words}
        samples = Announced(self._named(*first), count, context) if first and count and count % batch else None
        self._plan = Plan(self._graph, samples, **words)
        self._trainer = Trainer(self._plan, None, lr=0.0 if own else self.lr)
        self._batch, self._count = batch, count or 0
        self._fill(self._trainer)
        if own:  # it updates the user's own model, which must have the newest numbers
            self.captured.unwrap(self._trainer.get("value"))
        if self.loss.class_weights is not None:
            name = next(k for k in self._trainer.tensors("fixed") if k.startswith("loss"))
            self._trainer.set({name: self.loss.class_weights}, "fixed")
        return self._trainer

    def _fill(self, trainer: Trainer) -> None:
        """The newest numbers: of a trainer before this one, of a file, drawn; else those of the network's file."""
        if self._state is not None:
            trainer.set(self._state)
        elif self._weights is not None:
            trainer.load(self._weights)
        elif self.net.meta:
            for some in self.captured.first_numbers(self.seed, current().rank == 0):
                trainer.set(some)

    @property
    def plan(self) -> Plan:
        """The plan of the last `fit`, `evaluate` or `predict`."""
        if self._plan is None:
            raise RuntimeError("there is no plan yet: it is made when fit, evaluate or predict know the batch")
        return self._plan

    def summary(self) -> str:
        """Layers, parameters and, once there is one, the plan; printed on rank 0."""
        text = f"{self.net.name}: {len(self.net.nodes)} operators, {self.net.parameters():,} parameters that are trained"
        if self._plan is not None:
            text += "\n" + self._plan.text("summary")
        if current().rank == 0:
            print(text)
        return text

    # ---- batches

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
        for t in targets[:1] if self.loss.target else ():
            t = data.as_target(self.loss.targets(data.to_array(t)), self.loss.target)
            if self.loss.target == losses.REAL and hasattr(self.captured, "target_array"):
                t = self.captured.target_array(t)
            out[self.loss.target] = self._target(t)
        return out

    def _target(self, t: np.ndarray) -> np.ndarray:
        shape = self.net.outputs[0].shape
        if self.loss is not None and self.loss.target == "target" and t.ndim == 1 and len(shape) == 2:
            t = t[:, None]
        if self.loss is not None and self.loss.target == "label" and t.ndim > 1 and t.ndim == len(shape) and t.shape[1] == 1:
            t = t[:, 0]
        if self.loss is not None and self.loss.target == "label" and len(shape) > 1:
            data.check_labels(t, shape[-1 if hasattr(self.captured, "bindings") else 1] or 0, self.loss.ignored)
        return np.ascontiguousarray(t)

    # ---- training

    def fit(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None, epochs: int = 1,
            validation_data: Any = None, callbacks: Sequence[Callback] = (), shuffle: bool = True, verbose: int = 1,
            initial_epoch: int = 0, steps_per_epoch: Optional[int] = None) -> History:
        """Trains. `batch_size` is that of all ranks together. Returns what was measured, epoch by epoch."""
        source = data.source(x, y, shuffle, self.seed)
        batch = self._batch_size(source, batch_size)
        trainer = self._make(batch, next(iter(source.batches(batch, 0, lambda i: i == 0)), None), source.count)
        history = History()
        told = [history, *callbacks, Progress(verbose)] if verbose else [history, *callbacks]
        steps = steps_per_epoch or source.steps(batch)
        for c in told:
            c.model, c.params = self, {"epochs": epochs, "steps": steps, "batch_size": batch}
        self.stop_training = False
        self._tell(told, "on_train_begin", logs={})
        with Interrupts(current().rank == 0) as asked:
            try:
                for epoch in range(initial_epoch, epochs):
                    logs = self._epoch(trainer, source, batch, epoch, (told, steps_per_epoch, asked))
                    if validation_data is not None:
                        logs.update({"val_" + k: v for k, v in self._validate(validation_data, batch).items()})
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

    def _batch_size(self, source: data.Source, given: Optional[int]) -> int:
        batch = source.batch or given or 32
        if given and source.batch and given != source.batch:
            raise data.BadData(f"batch_size={given}, but the loader makes batches of {source.batch}: leave batch_size out")
        if source.count is not None:
            batch = min(batch, source.count)
        if batch < current().size and not self.plan_words:
            raise data.BadData(f"a batch of {batch} samples on {current().size} ranks: give at least one to each, or a plan with "
                               "stages or a mesh")
        return batch

    def _tell(self, told: Sequence[Callback], event: str, *arguments: Any, logs: Optional[Dict[str, float]] = None) -> None:
        for c in told:
            getattr(c, event)(*arguments, *([logs] if logs is not None else []))

    def _epoch(self, trainer: Trainer, source: data.Source, batch: int, epoch: int,
               how: Tuple[Sequence[Callback], Optional[int], Interrupts]) -> Dict[str, float]:
        assert self.steps is not None
        told, most, asked = how
        sums: Dict[str, float] = {}
        count = 0
        self._tell(told, "on_epoch_begin", epoch, logs={})
        for i, (inputs, targets) in enumerate(source.batches(batch, epoch, self._wanted)):
            if most is not None and i >= most:
                break
            self._tell(told, "on_batch_begin", i, logs={})
            size, named = len(inputs[0]), self._named(inputs, targets)
            if asked.seen:
                trainer.ask_to_stop(named, self.steps.output if self.steps.own_loss else None)
            for k, v in self.steps.train(trainer, named, targets).items():
                sums[k] = sums.get(k, 0.0) + v * size
            count += size
            self._uncounted += 1
            self._tell(told, "on_batch_end", i, logs={k: v / count for k, v in sums.items()})
            if self.stop_training:
                break
        if not count:
            raise data.BadData("there is no batch in the data")
        return {k: v / count for k, v in sums.items()}

    def _wanted(self, index: int) -> bool:
        """A loss in Python looks at all samples on all ranks."""
        return self._plan is None or self.loss is losses.OUTSIDE or self._plan.reads(index)

    def train_step(self, x: Any, y: Any) -> Dict[str, float]:
        """One step on one batch."""
        inputs, targets = data.to_arrays(x), data.to_arrays(y)
        trainer = self._make(len(inputs[0]))
        assert self.steps is not None
        self._uncounted += 1
        return self.steps.train(trainer, self._named(inputs, targets), targets)

    # ---- looking at it

    def _validate(self, given: Any, batch: int) -> Dict[str, float]:
        x, y = given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, None)
        return self.evaluate(x, y, batch_size=batch)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: Optional[int] = None) -> Dict[str, float]:
        """Loss and accuracy, in evaluation mode."""
        source = data.source(x, y, False, self.seed)
        trainer = self._make(self._batch or self._batch_size(source, batch_size))
        assert self.steps is not None
        sums: Dict[str, float] = {}
        count = 0
        whole = source.count if isinstance(source, data.ArraySource) else None  # arrays: all samples at once
        for inputs, targets in source.batches(whole or self._batch, 0, lambda i: True):
            size = len(inputs[0])
            for k, v in self.steps.evaluate(trainer, self._named(inputs, targets), targets).items():
                sums[k] = sums.get(k, 0.0) + v * size
            count += size
        return {k: v / max(count, 1) for k, v in sums.items()}

    def predict(self, x: Any, batch_size: Optional[int] = None) -> np.ndarray:
        """What the network makes of the samples, in evaluation mode; on rank 0 (others get None)."""
        arrays = data.to_arrays(x)
        trainer = self._make(self._batch or min(batch_size or 32, len(arrays[0])))
        y = trainer.predict(Data(self._named(arrays, [])), self.net.outputs[0])
        if y is None or self.loss is None or not hasattr(self.captured, "predicted"):
            return y
        return self.captured.predicted(y, self.loss.text)

    # ---- weights

    def get_weights(self) -> Dict[str, np.ndarray]:
        """Weights and running statistics by name, as they are now. Collective."""
        if self._trainer is not None:
            return self._trainer.get("value")
        return dict(self._state) if self._state is not None else self.captured.state()

    def set_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Rank 0's numbers become those of all ranks. Collective."""
        if self._trainer is not None:
            self._trainer.set({k: a for k, a in arrays.items() if k in self._trainer.tensors("value")})
            if self.steps is not None and self.steps.own_optimizer is not None:
                self.captured.unwrap(self._trainer.get("value"))
        else:
            self._state = {**self.get_weights(), **arrays}

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

    def save_weights(self, path: str) -> None:
        """A safetensors file. Collective."""
        if self._trainer is None:
            raise RuntimeError("nothing was trained yet: save the model by its own framework")
        self._trainer.save(os.fspath(path))

    def load_weights(self, path: str) -> None:
        """From a safetensors file, of Megalith or of the framework. Collective."""
        from .check import read_safetensors
        self.set_weights({k: v for k, v in read_safetensors(os.fspath(path)).items()})
