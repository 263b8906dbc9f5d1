"""This process among those of the job. Opened when it is first needed, once: MPI can begin only once.

    import megalith
    megalith.init(threads=4, log="info")     # before anything else, if the defaults will not do
    print(megalith.rank(), megalith.size())

Started by `megalith run -np 4 train.py` (or mpirun, srun) there are four such processes, each of which runs the whole
script; plain `python train.py` is one, with all cores.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import sys
import traceback
from typing import Any, Dict, Optional

from . import _library
from ._library import MegalithError, check, library, words


class Context:
    """An open library: meg_context."""

    def __init__(self, **options: Any):
        self.handle = ctypes.c_void_p()
        self.options = options
        status = library().meg_open(words(**options), ctypes.byref(self.handle))
        try:
            check(self.handle, status)
        except MegalithError:
            self.close()
            raise

    @property
    def rank(self) -> int:
        return library().meg_rank(self.handle)

    @property
    def size(self) -> int:
        return library().meg_ranks(self.handle)

    def close(self) -> None:
        if self.handle:
            library().meg_close(self.handle)
            self.handle = ctypes.c_void_p()


class _Process:
    """The one context of this process."""

    context: Optional[Context] = None


def launched() -> bool:
    """Did a launcher of MPI start this process?"""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID")
    return any(n in os.environ for n in names)


def init(**options: Any) -> Context:
    """Opens the library: device= (cpu, ref64), threads=, seed=, log= (quiet, warn, info), as in docs/cli.md. Nothing else
    need be called; without it the first model opens it with the defaults."""
    if _Process.context is not None:
        if options and options != _Process.context.options:
            raise MegalithError(f"already open, with {_Process.context.options}: call megalith.init before the first model")
        return _Process.context
    _Process.context = Context(**options)
    atexit.register(_close)
    if _Process.context.size > 1:
        sys.excepthook = _end_job
    return _Process.context


def current() -> Context:
    """The context, opened if it is not yet."""
    return _Process.context or init()


def _close() -> None:
    context, _Process.context = _Process.context, None
    if context:
        context.close()


def _end_job(kind: Any, value: Any, trace: Any) -> None:
    """An exception on one rank ends the whole job: others would wait for it for ever. A launcher ends the other
    processes when one leaves with an error and without saying goodbye."""
    rank = _Process.context.rank if _Process.context else 0
    text = "".join(traceback.format_exception(kind, value, trace))
    sys.stdout.flush()
    if _Process.context and _library.has("meg_abort"):
        library().meg_abort(_Process.context.handle, text.rstrip().encode())
    sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.rstrip().splitlines()))
    sys.stderr.flush()
    os._exit(1)


def rank() -> int:
    """Of this process, from 0."""
    return current().rank


def size() -> int:
    """How many processes train together."""
    return current().size


def describe() -> Dict[str, Any]:
    """What is open, for messages."""
    c = current()
    return {"rank": c.rank, "size": c.size, "library": _library.library()._name, **c.options}
