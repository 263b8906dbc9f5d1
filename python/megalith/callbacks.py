"""What is told, and asked, while `fit` runs: Keras' own way. Every rank has its callbacks and calls them at the same time;
only rank 0 writes files.

    >>> class Mine(Callback):
    ...     def on_epoch_end(self, epoch, logs):
    ...         if logs["accuracy"] > 0.9:
    ...             self.model.stop_training = True
"""
from __future__ import annotations

import csv
import math
import os
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Optional

Logs = Dict[str, float]


class Callback:
    """Does nothing; `model` and `params` are set before training begins."""

    model: Any = None
    params: Dict[str, Any] = {}

    def on_train_begin(self, logs: Logs) -> None: ...
    def on_train_end(self, logs: Logs) -> None: ...
    def on_epoch_begin(self, epoch: int, logs: Logs) -> None: ...
    def on_epoch_end(self, epoch: int, logs: Logs) -> None: ...
    def on_test_begin(self, logs: Logs) -> None: ...  # of validation, and its numbers at the end
    def on_test_end(self, logs: Logs) -> None: ...
    def on_batch_begin(self, batch: int, logs: Logs) -> None: ...
    def on_batch_end(self, batch: int, logs: Logs) -> None: ...

    @property
    def first_rank(self) -> bool:
        from .context import rank
        return rank() == 0


def callback(given: Any) -> Callback:
    """Ours, or one of Keras, which is told in Keras' words."""
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(given, keras.callbacks.Callback):
        from .callbacks_keras import KerasCallback
        return KerasCallback(given)
    return given


class History(Callback):
    """What `fit` returns: a list of numbers for each name."""

    def __init__(self) -> None:
        self.epoch: List[int] = []
        self.history: Dict[str, List[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.epoch.append(epoch)
        for k, v in logs.items():
            self.history.setdefault(k, []).append(v)

    def __repr__(self) -> str:
        return f"History({self.history})"


def line(logs: Logs) -> str:
    """
    >>> line({"loss": 0.51234, "accuracy": 0.75})
    'loss: 0.5123 - accuracy: 0.7500'
    """
    return " - ".join(f"{k}: {v:.4f}" if abs(v) >= 1e-3 else f"{k}: {v:.2e}" for k, v in logs.items())


class Progress(Callback):
    """A bar on rank 0: 1 redraws it, 2 writes a line for each epoch."""

    def __init__(self, verbose: int = 1, out: Any = None):
        self.verbose, self.out, self.shown = verbose, out or sys.stdout, 0.0
        self.began, self.steps = 0.0, None

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        self.began = time.monotonic()
        self.steps = self.params.get("steps")
        if self.verbose and self.first_rank:
            print(f"Epoch {epoch + 1}/{self.params['epochs']}", file=self.out, flush=True)

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        now = time.monotonic()
        if self.verbose != 1 or not self.first_rank or now - self.shown < 0.2 or not self.out.isatty():
            return
        self.shown = now
        print(f"\r{batch + 1}/{self.steps or '?'} - {(now - self.began) / (batch + 1):.3f} s/step - {line(logs)}   ", end="",
              file=self.out, flush=True)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.verbose and self.first_rank:
            print(f"{chr(13) if self.out.isatty() else ''}{self.steps or ''} steps - {time.monotonic() - self.began:.1f} s - "
                  f"{line(logs)}   ", file=self.out, flush=True)


class Watcher(Callback):
    """Is the number that is watched better than before?"""

    def __init__(self, monitor: str = "val_loss", mode: str = "auto", min_delta: float = 0.0):
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode={mode!r}: use auto, min or max")
        self.monitor, self.min_delta = monitor, abs(min_delta)
        self.largest = mode == "max" or (mode == "auto" and ("acc" in monitor or monitor.endswith("auc")))
        self.begin()

    def begin(self) -> None:
        """Another training: what was best before does not count."""
        self.best = -math.inf if self.largest else math.inf

    def better(self, logs: Logs) -> bool:
        if self.monitor not in logs:
            raise KeyError(f"monitor={self.monitor!r} is not among {', '.join(logs)}: "
                           + ("give validation_data to fit" if self.monitor.startswith("val_") else "use one of them"))
        value = logs[self.monitor]
        ahead = value - self.best if self.largest else self.best - value
        if not ahead > self.min_delta:
            return False
        self.best = value
        return True


class EarlyStopping(Watcher):
    """Stops when `monitor` has not become better for `patience` epochs; for one, unless more are given."""

    def __init__(self, monitor: str = "val_loss", min_delta: float = 0.0, patience: int = 0, mode: str = "auto",
                 restore_best_weights: bool = False):
        super().__init__(monitor, mode, min_delta)
        self.patience, self.restore, self.waited, self.kept = patience, restore_best_weights, 0, None
        self.stopped_epoch = -1

    def on_train_begin(self, logs: Logs) -> None:
        self.begin()
        self.waited, self.kept, self.stopped_epoch = 0, None, -1

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.better(logs):
            self.waited = 0
            if self.restore:
                self.kept = self.model.get_weights()
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs) -> None:
        if self.restore and self.kept is not None:
            self.model.set_weights(self.kept)


class ModelCheckpoint(Watcher):
    """Writes the weights (safetensors) after each epoch: "ck/{epoch:02d}-{val_loss:.3f}.safetensors"; or, `save_freq` being a number,
    after so many batches."""

    def __init__(self, filepath: str, monitor: str = "val_loss", save_best_only: bool = False, mode: str = "auto",
                 save_weights_only: bool = True, save_freq: Any = "epoch"):
        super().__init__(monitor, mode)
        if not save_weights_only:
            raise ValueError("save_weights_only=False: weights alone are written while training runs; save model.unwrap() by its own "
                             "framework afterwards")
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(f"save_freq={save_freq!r}: use 'epoch', or a number of batches")
        self.filepath, self.best_only, self.every = os.fspath(filepath), save_best_only, save_freq
        self.epoch = self.batches = 0
        end = os.path.splitext(self.filepath)[1]
        if not end or "{" in end or "}" in end:  # a point within a number is no suffix
            self.filepath += ".safetensors"

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        self.epoch = epoch

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        self.batches += 1
        if self.every != "epoch" and self.batches % self.every == 0:
            self._save({"batch": batch + 1, **logs})

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.every == "epoch":
            self._save(logs)

    def _save(self, logs: Logs) -> None:
        if self.best_only and not self.better(logs):
            return
        path = self.filepath.format(epoch=self.epoch + 1, **logs)
        if self.first_rank and os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self.model.save_weights(path)


class LearningRateScheduler(Callback):
    """Sets the rate of each epoch: schedule(epoch, rate) -> rate."""

    def __init__(self, schedule: Callable[..., float]):
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        try:
            rate = self.schedule(epoch, self.model.lr)
        except TypeError:
            rate = self.schedule(epoch)
        self.model.lr = float(rate)


class TorchScheduler(Callback):
    """A schedule of torch.optim.lr_scheduler, stepped after each epoch, or each batch."""

    def __init__(self, scheduler: Any, every: str = "epoch"):
        if every not in ("epoch", "batch"):
            raise ValueError(f"every={every!r}: use epoch or batch")
        self.scheduler, self.every = scheduler, every

    def _step(self) -> None:
        self.scheduler.optimizer._opt_called = True  # steps are the library's: PyTorch need not warn of missing ones
        self.scheduler.step()
        self.model.lr = float(self.scheduler.get_last_lr()[0])

    def on_train_begin(self, logs: Logs) -> None:
        self.model.lr = float(self.scheduler.get_last_lr()[0])

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        if self.every == "batch":
            self._step()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.every == "epoch":
            self._step()


class ReduceLROnPlateau(Watcher):
    """Multiplies the rate by `factor` when `monitor` has not become better for `patience` epochs."""

    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10, mode: str = "auto",
                 min_delta: float = 1e-4, min_lr: float = 0.0):
        super().__init__(monitor, mode, min_delta)
        self.factor, self.patience, self.min_lr, self.waited = factor, patience, min_lr, 0

    def on_train_begin(self, logs: Logs) -> None:
        self.begin()
        self.waited = 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.better(logs):
            self.waited = 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.waited = 0
            self.model.lr = max(self.model.lr * self.factor, self.min_lr)


class CSVLogger(Callback):
    """A line for each epoch."""

    def __init__(self, filename: str, separator: str = ",", append: bool = False):
        self.filename, self.separator, self.append = os.fspath(filename), separator, append
        self.keys: Optional[List[str]] = None

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if not self.first_rank:
            return
        begins = self.keys is None
        self.keys = self.keys or list(logs)
        fresh = begins and not (self.append and os.path.exists(self.filename))
        with open(self.filename, "w" if fresh else "a", newline="") as f:
            writer = csv.writer(f, delimiter=self.separator)
            if fresh:
                writer.writerow(["epoch", *self.keys])
            writer.writerow([epoch, *[logs.get(k, "") for k in self.keys]])


# ---- TensorBoard: records with checksums, of protobuf messages; without the package

def _crc_table() -> List[int]:
    out = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        out.append(i)
    return out


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, turned and shifted as TFRecord files have it.

    >>> hex(masked_crc(b"123456789"))
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for b in data:
        crc = _TABLE[(crc ^ b) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class TensorBoard(Callback):
    """Numbers of each epoch as an event file: `tensorboard --logdir logs`."""

    def __init__(self, log_dir: str = "logs"):
        self.log_dir, self.file = os.fspath(log_dir), None

    def _write(self, event: bytes) -> None:
        assert self.file is not None
        length = struct.pack("<Q", len(event))
        self.file.write(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))
        self.file.flush()

    def on_train_begin(self, logs: Logs) -> None:
        from .onnx_file import text
        if not self.first_rank:
            return
        os.makedirs(self.log_dir, exist_ok=True)
        self.file = open(os.path.join(self.log_dir, f"events.out.tfevents.{int(time.time())}.megalith.{os.getpid()}"), "wb")
        self._write(b"\x09" + struct.pack("<d", time.time()) + text(3, "brain.Event:2"))

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        from .onnx_file import integer, message, real, text
        if self.file is None:
            return
        values = b"".join(message(1, text(1, k) + real(2, float(v))) for k, v in logs.items())
        self._write(b"\x09" + struct.pack("<d", time.time()) + integer(2, epoch) + message(5, values))

    def on_train_end(self, logs: Logs) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
