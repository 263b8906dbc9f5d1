"""What users give to `fit` as batches: numpy arrays, torch tensors, Dataset, DataLoader, tf.data, anything that can be
iterated.

A batch is the whole one of all ranks; each rank reads what its part of the plan asks for. A map-style Dataset is read
sample by sample, only those that this rank wants, with the random numbers of PyTorch, numpy and Python seeded by (seed,
epoch, sample): augmentations are the same on every rank, under every plan. A DataLoader is iterated on all ranks, with
the same seeds.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ._library import BadData
from .loaders import distribute, seed_all

Arrays = Dict[str, np.ndarray]
Batch = Tuple[List[np.ndarray], List[np.ndarray]]  # inputs, targets


NO_LABEL = -100  # PyTorch's own: where no class counts


# ---- arrays

def to_array(value: Any) -> np.ndarray:
    """Without a copy where memory is the host's: numpy, torch, TensorFlow, lists."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        return value.numpy()
    if hasattr(value, "numpy") and not isinstance(value, np.ndarray):
        return value.numpy()
    return np.asarray(value)


def to_arrays(value: Any) -> List[np.ndarray]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [to_array(v) for v in value.values()]
    return [to_array(v) for v in value] if isinstance(value, (tuple, list)) else [to_array(value)]


WIDER = {"float16": np.float32, "int8": np.int32, "int16": np.int32, "uint16": np.int32, "uint32": np.int64, "uint64": np.int64}


def as_input(array: np.ndarray, name: str, dtype: str) -> np.ndarray:
    """Of a type that the library reads; whole numbers must stay whole."""
    wants_whole = dtype.startswith("int") or dtype == "bool"
    if wants_whole and array.dtype.kind == "f":
        raise BadData(f"the input '{name}' takes whole numbers (ids), but got {array.dtype}: give int32 or int64")
    if not wants_whole and array.dtype.kind in "iub":
        raise BadData(f"the input '{name}' takes real numbers, but got {array.dtype}: convert them, e.g. x.float() / 255")
    if array.dtype.kind not in "fiub":
        raise BadData(f"the input '{name}' takes {dtype}, but got {array.dtype}: give numbers")
    return np.ascontiguousarray(array, WIDER.get(str(array.dtype)))


def as_target(array: np.ndarray, kind: str) -> np.ndarray:
    """Classes are whole numbers, real targets real ones."""
    if kind == "label":
        if array.dtype.kind not in "iub":
            raise BadData(f"labels are classes, whole numbers, but got {array.dtype}: give int64, or a loss of real targets "
                          "(mse)")
        return np.ascontiguousarray(array, np.int32)
    if array.dtype.kind not in "fiub":
        raise BadData(f"targets are real numbers, but got {array.dtype}: give float32")
    return np.ascontiguousarray(array, np.float64 if array.dtype == np.float64 else np.float32)


def check_labels(labels: np.ndarray, classes: int, ignored: int) -> None:
    """Classes are 0 to classes - 1; `ignored` may stand where none counts.

    >>> check_labels(np.array([0, 2, -100]), 3, -100)
    """
    bad = labels[((labels < 0) | (labels >= classes)) & (labels != ignored)]
    if bad.size:
        raise BadData(f"a label is {int(bad[0])}, but the model has {classes} classes: labels are 0 to {classes - 1}"
                      + (f", or {ignored} where none counts" if ignored != NO_LABEL else ""))


# ---- sources

class Source:
    """Batches of one epoch after the other."""

    batch: Optional[int] = None  # samples of a batch, where the source knows
    count: Optional[int] = None  # samples of an epoch, where it knows

    def steps(self, batch: int) -> Optional[int]:
        return math.ceil(self.count / batch) if self.count is not None else None

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        raise NotImplementedError


class Order:
    """The samples' order in each epoch, the same on all ranks."""

    def __init__(self, shuffle: bool, seed: int):
        self.shuffle, self.seed = shuffle, seed

    def of(self, count: int, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(count)
        return np.random.default_rng((self.seed, epoch)).permutation(count)


class ArraySource(Source):
    """Arrays whose first axis are the samples."""

    def __init__(self, inputs: Sequence[np.ndarray], targets: Sequence[np.ndarray], order: Order):
        self.inputs, self.targets, self.order = list(inputs), list(targets), order
        self.count = len(self.inputs[0])
        for a in [*self.inputs, *self.targets]:
            if len(a) != self.count:
                raise BadData(f"arrays of {self.count} and {len(a)} samples: all must have as many")

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        order = self.order.of(self.count or 0, epoch)
        for at in range(0, len(order), batch):
            rows = order[at:at + batch]
            whole = not self.order.shuffle
            take = (lambda a: a[at:at + batch]) if whole else (lambda a: a[rows])
            yield [take(a) for a in self.inputs], [take(a) for a in self.targets]


class DatasetSource(Source):
    """dataset[i] -> (inputs.., target), read by those ranks that want sample i."""

    def __init__(self, dataset: Any, order: Order):
        self.dataset, self.order, self.count = dataset, order, len(dataset)
        self.shapes: Optional[List[np.ndarray]] = None

    def _sample(self, index: int, epoch: int) -> List[np.ndarray]:
        seed_all(self.order.seed, epoch, index)
        sample = self.dataset[index]
        if not isinstance(sample, (tuple, list)) or len(sample) < 2:
            raise BadData("a sample of the data set must be (input, target)")
        return [to_array(v) for v in sample]

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        order = self.order.of(self.count or 0, epoch)
        if self.shapes is None:
            self.shapes = [np.zeros_like(a) for a in self._sample(int(order[0]), epoch)]
        for at in range(0, len(order), batch):
            rows = order[at:at + batch]
            samples = [self._sample(int(i), epoch) if wanted(k) else self.shapes for k, i in enumerate(rows)]
            columns = [np.stack([np.asarray(s[c]) for s in samples]) for c in range(len(samples[0]))]
            yield columns[:-1], columns[-1:]


class LoaderSource(Source):
    """Anything that gives (inputs, targets), batch by batch, each time it is iterated: DataLoader, tf.data, a list."""

    def __init__(self, loader: Any, seed: int):
        self.loader, self.seed = distribute(loader, seed), seed
        self.batch = getattr(loader, "batch_size", None)
        dataset = getattr(loader, "dataset", None)
        if dataset is not None and hasattr(dataset, "__len__"):
            self.count = len(dataset)

    def steps(self, batch: int) -> Optional[int]:
        try:
            return len(self.loader)
        except TypeError:
            return None

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        self.loader.set_epoch(epoch)
        for item in self.loader:
            if not isinstance(item, (tuple, list)) or len(item) < 2:
                raise BadData("a batch of the loader must be (inputs, targets)")
            inputs = [a for v in item[:-1] for a in to_arrays(v)]
            yield inputs, to_arrays(item[-1])


def source(x: Any, y: Any = None, shuffle: bool = True, seed: int = 1) -> Source:
    """What the user gave, as a Source.

    >>> s = source(np.zeros((5, 2), "f4"), np.zeros(5, int), shuffle=False)
    >>> [len(a[0]) for a, b in s.batches(2, 0, lambda i: True)]
    [2, 2, 1]
    """
    if isinstance(x, Source):
        return x
    order = Order(shuffle, seed)
    if y is not None:
        return ArraySource(to_arrays(x), to_arrays(y), order)
    if isinstance(x, np.ndarray) or (hasattr(x, "detach") and hasattr(x, "shape")):
        raise BadData("y= is missing: give the targets of these samples")
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, (list, tuple)):
        return DatasetSource(x, order)
    if hasattr(x, "__iter__"):
        return LoaderSource(x, seed)
    raise BadData(f"a {type(x).__name__} is no data: give arrays (x, y), a Dataset, a DataLoader, or something that gives "
                  "(inputs, targets)")
