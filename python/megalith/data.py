"""What users give to `fit` as batches: numpy arrays, torch tensors, Dataset, DataLoader, tf.data, PyDataset, anything that
can be iterated.

A batch is the whole one of all ranks; each rank reads what its part of the plan asks for. A map-style Dataset is read
sample by sample, only those that this rank wants, with the random numbers of PyTorch, numpy and Python seeded by (seed,
epoch, sample): augmentations are the same on every rank, under every plan. A DataLoader is iterated on all ranks, with
the same seeds.
"""
from __future__ import annotations

import itertools
import math
import sys
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


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def to_arrays(value: Any, names: Sequence[str] = ()) -> List[np.ndarray]:
    """One array or several; of a dict in the order of the `names`, which are those of the network's inputs.

    >>> [a.tolist() for a in to_arrays({"b": [1], "a": [2]}, ["a", "b"])], [a.tolist() for a in to_arrays([3, 4])]
    ([[2], [1]], [[3, 4]])
    """
    if value is None:
        return []
    if isinstance(value, dict):
        if names and set(value) != set(names):
            raise BadData(f"the data has {', '.join(map(repr, value))}, but the model takes {', '.join(map(repr, names))}: "
                          "give each by its name")
        return [to_array(value[k]) for k in names or value]
    several = isinstance(value, (tuple, list)) and any(is_array(v) and len(v.shape) for v in value)
    return [to_array(v) for v in value] if several else [to_array(value)]


WIDER = {"float16": np.float32, "int8": np.int32, "int16": np.int32, "uint16": np.int32, "uint32": np.int64, "uint64": np.int64}


def as_input(array: np.ndarray, name: str, dtype: str) -> np.ndarray:
    """Of a type that the library reads; whole numbers must stay whole."""
    wants_whole = dtype.startswith(("int", "uint")) or dtype == "bool"
    if wants_whole and array.dtype.kind == "f":
        raise BadData(f"the input '{name}' takes whole numbers (ids), but got {array.dtype}: give int32 or int64")
    if not wants_whole and array.dtype.kind in "iub":
        raise BadData(f"the input '{name}' takes real numbers, but got {array.dtype}: convert them, e.g. x.float() / 255")
    if array.dtype.kind not in "fiub":
        raise BadData(f"the input '{name}' takes {dtype}, but got {array.dtype}: give numbers")
    narrow = wants_whole and str(array.dtype) in ("uint8", "bool")
    return np.ascontiguousarray(array, np.int32 if narrow else WIDER.get(str(array.dtype)))


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

    def first(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Optional[Batch]:
        """The epoch's first batch, before the epoch begins; None: there is none."""
        return next(self.batches(batch, epoch, wanted), None)


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
        if not self.inputs or any(a.ndim == 0 for a in [*self.inputs, *self.targets]):
            raise BadData("samples are missing, or are one number: give arrays whose first axis are the samples")
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

    def __init__(self, dataset: Any, order: Order, names: Sequence[str] = ()):
        self.dataset, self.order, self.count, self.names = dataset, order, len(dataset), names
        self.shapes: Optional[List[np.ndarray]] = None

    def _sample(self, index: int, epoch: int) -> List[np.ndarray]:
        seed_all(self.order.seed, epoch, index)
        sample = self.dataset[index]
        if not isinstance(sample, (tuple, list)) or len(sample) < 2:
            raise BadData("a sample of the data set must be (input, target)")
        return [a for v in sample[:-1] for a in to_arrays(v, self.names)] + [to_array(sample[-1])]

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        order = self.order.of(self.count or 0, epoch)
        if self.shapes is None:
            self.shapes = [np.zeros_like(a) for a in self._sample(int(order[0]), epoch)]
        for at in range(0, len(order), batch):
            rows = order[at:at + batch]
            samples = [self._sample(int(i), epoch) if wanted(k) else self.shapes for k, i in enumerate(rows)]
            columns = [np.stack([np.asarray(s[c]) for s in samples]) for c in range(len(samples[0]))]
            yield columns[:-1], columns[-1:]


def pair(item: Any, names: Sequence[str] = ()) -> Batch:
    """A batch of a loader: (inputs, targets), (input, input, targets)."""
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise BadData("a batch of the loader must be (inputs, targets)")
    return [a for v in item[:-1] for a in to_arrays(v, names)], to_arrays(item[-1])


def samples_of(loader: Any) -> Optional[int]:
    """How many an epoch of a DataLoader has; None: nobody knows. A sampler may take a part of the data set."""
    batch, sampler = getattr(loader, "batch_size", None), getattr(loader, "sampler", None)
    if batch is None or not hasattr(sampler, "__len__"):
        return None
    count = len(sampler)
    return count - count % batch if getattr(loader, "drop_last", False) else count


class LoaderSource(Source):
    """Anything that gives (inputs, targets), batch by batch, each time it is iterated: DataLoader, tf.data, a list. What
    can be iterated once only, a generator, goes on from epoch to epoch."""

    def __init__(self, loader: Any, seed: int, names: Sequence[str] = ()):
        self.loader, self.seed, self.names = distribute(loader, seed), seed, names
        self.once = isinstance(self.loader.loader, Iterator)
        self.batch = getattr(loader, "batch_size", None)
        self.batch = self.batch if isinstance(self.batch, int) else None
        self.count = samples_of(loader)
        self.begun: Optional[Tuple[int, Iterator[Any]]] = None  # the epoch, and what is left of it

    def steps(self, batch: int) -> Optional[int]:
        try:
            return len(self.loader)
        except TypeError:
            return None

    def _begin(self, epoch: int) -> Iterator[Any]:
        if self.begun is not None and (self.once or self.begun[0] == epoch):
            return self.begun[1]
        self.loader.set_epoch(epoch)
        return iter(self.loader)

    def first(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Optional[Batch]:
        """It is not lost: the epoch goes on with what was begun here."""
        items = self._begin(epoch)
        item = next(items, None)
        if item is None:
            return None
        self.begun = epoch, itertools.chain([item], items)
        return pair(item, self.names)

    def batches(self, batch: int, epoch: int, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        items = self._begin(epoch)
        self.begun = (epoch, items) if self.once else None
        for item in items:
            yield pair(item, self.names)


class Batches:
    """A keras.utils.PyDataset, whose items are batches already."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self.dataset)):
            yield self.dataset[i]
        self.dataset.on_epoch_end()


def is_keras_dataset(x: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(x, keras.utils.PyDataset)


def source(x: Any, y: Any = None, shuffle: bool = True, seed: int = 1, names: Sequence[str] = ()) -> Source:
    """What the user gave, as a Source. `names` are those of the network's inputs, for dicts.

    >>> s = source(np.zeros((5, 2), "f4"), np.zeros(5, int), shuffle=False)
    >>> [len(a[0]) for a, b in s.batches(2, 0, lambda i: True)]
    [2, 2, 1]
    """
    if isinstance(x, Source):
        return x
    order = Order(shuffle, seed)
    if y is not None:
        return ArraySource(to_arrays(x, names), to_arrays(y), order)
    if isinstance(x, (np.ndarray, dict)) or (hasattr(x, "detach") and hasattr(x, "shape")):
        raise BadData("y= is missing: give the targets of these samples")
    if is_keras_dataset(x):
        return LoaderSource(Batches(x), seed, names)
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, (list, tuple, str)):
        return DatasetSource(x, order, names)
    if hasattr(x, "__iter__") and not isinstance(x, str):
        return LoaderSource(x, seed, names)
    raise BadData(f"a {type(x).__name__} is no data: give arrays (x, y), a Dataset, a DataLoader, or something that gives "
                  "(inputs, targets)")


def split(x: Any, y: Any, share: float) -> Tuple[Tuple[Any, Any], Tuple[Any, Any]]:
    """Arrays to train with, and the last `share` of them to validate with, as Keras has it: before they are shuffled.

    >>> [len(part[0]) for part in split(np.zeros((10, 2)), np.zeros(10), 0.2)]
    [8, 2]
    """
    if y is None:
        raise BadData("validation_split= is of arrays, fit(x, y): give validation_data= beside a Dataset or a loader")
    count = len(to_arrays(y)[0])
    at = int(count * (1 - share))
    if not 0 < at < count:
        raise BadData(f"validation_split={share} of {count} samples leaves none for one of both")

    def part(value: Any, low: int, high: int) -> Any:
        if isinstance(value, dict):
            return {k: to_array(v)[low:high] for k, v in value.items()}
        arrays = [a[low:high] for a in to_arrays(value)]
        return arrays[0] if len(arrays) == 1 else arrays
    first, last = [(part(x, *cut), part(y, *cut)) for cut in ((0, at), (at, count))]
    return first, last


def without_targets(x: Any, batch: int, names: Sequence[str] = ()) -> Iterator[List[np.ndarray]]:
    """Inputs to predict, batch by batch: arrays all at once; of a Dataset or a loader the targets, if it has them, are left out."""
    if is_array(x) or isinstance(x, dict) or isinstance(x, (list, tuple)) and all(is_array(v) for v in x):
        yield to_arrays(x, names)
        return
    if is_keras_dataset(x):
        x = Batches(x)
    elif hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, (list, tuple, str)):
        x = _stacked(x, batch, names)
    elif not hasattr(x, "__iter__") or isinstance(x, str):
        raise BadData(f"a {type(x).__name__} is no data: give arrays, a Dataset, a DataLoader, or something that gives inputs")
    for item in x:
        given = item if isinstance(item, (tuple, list)) else [item]
        arrays = [a for v in given for a in to_arrays(v, names)]
        yield arrays[:len(names) or None]


def _stacked(dataset: Any, batch: int, names: Sequence[str]) -> Iterator[List[np.ndarray]]:
    for at in range(0, len(dataset), batch):
        rows = [_row(dataset[i], names) for i in range(at, min(at + batch, len(dataset)))]
        yield [np.stack(column) for column in zip(*rows)]


def _row(sample: Any, names: Sequence[str]) -> List[np.ndarray]:
    return [a for v in (sample if isinstance(sample, (tuple, list)) else [sample]) for a in to_arrays(v, names)]
