"""Callbacks of Keras in `fit`: they are told in Keras' words, of a model that looks like the one that they know.

    keras.callbacks.EarlyStopping(..)   ->  self.model.stop_training, get_weights, set_weights
    keras.callbacks.ModelCheckpoint(..) ->  self.model.save, save_weights: collective, rank 0 writes
    keras.callbacks.LearningRateScheduler, ReduceLROnPlateau  ->  self.model.optimizer.learning_rate

Every rank has its own and calls it at the same time. Those that write files of their own are there on rank 0 alone.
"""
from __future__ import annotations

import sys
import types
from typing import Any, Dict, List

from .callbacks import Callback, Logs
from .context import rank

WRITE = ("CSVLogger", "RemoteMonitor", "ProgbarLogger")
INSTEAD = {"TensorBoard": "megalith.callbacks.TensorBoard", "BackupAndRestore": "megalith.callbacks.ModelCheckpoint, and load_weights",
           "SwapEMAWeights": "an own loop (megalith.torch.Module)"}
NEVER = ("on_test_batch_begin", "on_test_batch_end")  # arrays are validated at once


class _Rate:
    """optimizer.learning_rate"""

    def __init__(self, model: Any):
        object.__setattr__(self, "_model", model)

    @property
    def learning_rate(self) -> float:
        return self._model.lr

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("learning_rate", "lr"):
            raise AttributeError(f"optimizer.{name} cannot be set while megalith trains: learning_rate can")
        self._model.lr = float(value)


class KerasView:
    """A megalith.Model as callbacks of Keras see it; what is not here is the user's own model's."""

    def __init__(self, model: Any):
        self.ours, self.optimizer = model, _Rate(model)

    def __getattr__(self, name: str) -> Any:
        if name in ("ours", "optimizer"):
            raise AttributeError(name)
        return getattr(self.ours.captured.model, name)

    @property
    def stop_training(self) -> bool:
        return self.ours.stop_training

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        self.ours.stop_training = bool(stop)

    @property
    def metrics(self) -> List[Any]:
        """Which way is better, for those who ask."""
        return [types.SimpleNamespace(name="accuracy", _direction="up"), types.SimpleNamespace(name="mae", _direction="down")]

    def get_weights(self) -> Dict[str, Any]:
        return self.ours.get_weights()

    def set_weights(self, weights: Dict[str, Any]) -> None:
        self.ours.set_weights(weights)

    def save(self, path: Any, *arguments: Any, **words: Any) -> None:
        model = self.ours.unwrap()
        if rank() == 0:
            model.save(path, *arguments, **words)

    def save_weights(self, path: Any, *arguments: Any, **words: Any) -> None:
        model = self.ours.unwrap()
        if rank() == 0:
            model.save_weights(path, *arguments, **words)


class KerasCallback(Callback):
    """One of Keras, told what ours are told."""

    def __init__(self, given: Any):
        name = type(given).__name__
        if name in INSTEAD and type(given).__module__.startswith("keras."):
            raise ValueError(f"keras.callbacks.{name} looks into Keras' own training, which does not run here: use {INSTEAD[name]}")
        self.given, self.silent = given, name in WRITE and rank() > 0
        never = [k for k in NEVER if not str(getattr(getattr(given, k), "__module__", "")).startswith("keras.")]
        if never and rank() == 0:
            print(f"megalith: {name}.{', '.join(never)}: never called, since arrays are validated at once; on_test_begin and on_test_end are",
                  file=sys.stderr)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "model":
            self.given.set_model(KerasView(value))
        if name == "params":
            self.given.set_params(dict(value))

    def _tell(self, event: str, *arguments: Any) -> None:
        if not self.silent:
            getattr(self.given, event)(*arguments)

    def on_train_begin(self, logs: Logs) -> None:
        self._tell("on_train_begin", logs)

    def on_train_end(self, logs: Logs) -> None:
        self._tell("on_train_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        self._tell("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._tell("on_epoch_end", epoch, logs)

    def on_test_begin(self, logs: Logs) -> None:
        self._tell("on_test_begin", logs)

    def on_test_end(self, logs: Logs) -> None:
        self._tell("on_test_end", logs)

    def on_batch_begin(self, batch: int, logs: Logs) -> None:
        self._tell("on_train_batch_begin", batch, logs)

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        self._tell("on_train_batch_end", batch, logs)
