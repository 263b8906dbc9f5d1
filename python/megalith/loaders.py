"""A user's loader on many ranks, for the user's own loop.

    for x, y in megalith.distribute(loader):
        loss = my_loss(model(x), y)

Every rank iterates the whole loader and gets the same batches, those of all ranks together: of a batch the library
takes on each rank the part that its plan gives to it. So that shuffling and augmentation are the same everywhere, the
random numbers of PyTorch, numpy and Python are seeded by (seed, epoch) whenever the loader is iterated, and so are the
loader's own generators.
"""
from __future__ import annotations

import random
import sys
from typing import Any, Iterator

import numpy as np

from ._library import BadData
from .context import size


def seed_all(*key: int) -> int:
    """Of Python, numpy and, where they are there, PyTorch and TensorFlow. Returns the seed."""
    number = int(np.random.SeedSequence(key).generate_state(1)[0])
    random.seed(number)
    np.random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)
    if hasattr(sys.modules.get("tensorflow"), "random"):  # it may be half imported
        sys.modules["tensorflow"].random.set_seed(number)
    return number


def check_whole(loader: Any) -> None:
    """A loader that deals its samples to ranks already gives each another batch, which would be wrong here."""
    sampler = getattr(loader, "sampler", None)
    dealt = getattr(sampler, "num_replicas", None)
    if dealt is not None:
        raise BadData(f"the loader deals its samples to {dealt} ranks ({type(sampler).__name__}), and this job has {size()}: leave the "
                      "sampler out (shuffle=True), with the batch size of all ranks together; each rank takes its part of the batch")


class Distributed:
    """What `distribute` gives: iterated anew for each epoch, it counts them."""

    def __init__(self, loader: Any, seed: int = 1):
        check_whole(loader)
        self.loader, self.seed, self.epoch = loader, seed, 0

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        """dataset, batch_size, ...: the loader's."""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch, for training that goes on from a file."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        number = seed_all(self.seed, self.epoch)
        for holder in (self.loader, getattr(self.loader, "sampler", None)):
            generator = getattr(holder, "generator", None)
            if hasattr(generator, "manual_seed"):
                generator.manual_seed(number)
        self.epoch += 1
        return iter(self.loader)


def distribute(loader: Any, seed: int = 1) -> Distributed:
    """The same batches, in the same order, on every rank: a DataLoader, or whatever can be iterated again and again.

    >>> batches = distribute([([1.0], [0]), ([2.0], [1])])
    >>> len(batches), [y for x, y in batches]
    (2, [[0], [1]])
    """
    return loader if isinstance(loader, Distributed) else Distributed(loader, seed)
