"""This process among those of the job. Opened when it is first needed, once: MPI can begin only once.

    >>> import megalith
    >>> context = megalith.init()             # before anything else: threads=4, log="info", if the defaults will not do
    >>> megalith.rank(), megalith.size()
    (0, 1)

Started by `megalith run -np 4 train.py` (or mpirun, srun) there are four such processes, each of which runs the whole
script; plain `python train.py` is one, with all cores.
"""
from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import time
import traceback
from typing import Any, Optional

from ._library import MegalithError, check, library, words
from .interrupts import Stopped, be_interrupted


SECONDS = 1.0  # that a rank waits with its traceback, for a lower one that may have the same, and end the job with it


class Context:
    """An open library: meg_context."""

    def __init__(self, comm: Any = None, **options: Any):
        self.handle = ctypes.c_void_p()
        self.options = options
        if comm is None:
            status = library().meg_open(words(**options), ctypes.byref(self.handle))
        else:
            status = library().meg_open_on(words(**options), comm.py2f(), ctypes.byref(self.handle))
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
    hook: Any = None  # of exceptions, as it was before
    code: Any = None  # that the script ends with, by sys.exit or another way


def _watch_exits() -> None:
    """Notes what the script ends with, by whatever way: sys.exit, exit, raise SystemExit. It may be caught; its code is asked for
    without any frame of Python below when nobody has, and the interpreter ends. Nothing else tells it before MPI is closed
    (sys.excepthook does not see SystemExit), so the attribute itself is looked at."""
    held = gc.get_referents(SystemExit.__dict__)[0]  # the dict behind the view
    own = held["code"]
    if isinstance(own, property):
        return

    def seen(e: SystemExit) -> Any:
        code = own.__get__(e)
        if sys._getframe().f_back is None:
            _Process.code = code
        return code
    held["code"] = property(seen, own.__set__, own.__delete__, own.__doc__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))  # which may have been looked up before
    if sys.version_info < (3, 12):
        _replace_exit()


def _exit(code: Any = None) -> None:
    raise SystemExit(code) if code is not None else SystemExit()


def _replace_exit() -> None:
    """Before Python 3.12 sys.exit makes no exception of its code until somebody catches it: one in Python does. Modules may have
    the other by a name of their own (from sys import exit)."""
    own = sys.exit
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        for name in [k for k, v in list(names.items()) if v is own] if isinstance(names, dict) else ():
            names[name] = _exit


def launched() -> bool:
    """Did a launcher of MPI start this process?"""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID")
    return any(n in os.environ for n in names)


MARKS = {"OMPI_COMM_WORLD_SIZE": "Open MPI", "PMI_RANK": "MPICH"}  # of launchers, as src/comm/open.c has them


def _check_mpi4py() -> None:
    """mpi4py that has begun another MPI than the launcher's would be alone, and so would we beside it."""
    MPI = sys.modules.get("mpi4py.MPI")
    wanted = next((name for mark, name in MARKS.items() if mark in os.environ), None)
    if MPI is None or wanted is None or "MEGALITH_MPI" in os.environ:
        return
    name = MPI.get_vendor()[0]
    if name in MARKS.values() and name != wanted:
        word, abi = (n.replace(" ", "").lower() for n in (name, wanted))
        raise MegalithError(f"mpi4py has loaded {name}, but {wanted}'s launcher started this job: set MPI4PY_MPIABI={abi}, or start it "
                            f"with {name}'s (megalith run --mpi {word})")


def init(comm: Any = None, **options: Any) -> Context:
    """Opens the library: device= (cpu, ref64), threads=, seed=, log= (quiet, warn, info), as in docs/cli.md. Nothing else
    need be called; without it the first model opens it with the defaults. `comm`: a communicator of mpi4py, whose ranks train
    together; without it, all do. MPI that mpi4py has begun is used, and left for it to end."""
    if _Process.context is not None:
        if options and options != _Process.context.options:
            raise MegalithError(f"already open, with {_Process.context.options}: call megalith.init before the first model")
        return _Process.context
    _check_mpi4py()
    _Process.context = Context(comm, **options)
    atexit.register(_close)
    _Process.hook, sys.excepthook = sys.excepthook, _end
    if _Process.context.size > 1:
        be_interrupted()
        _watch_exits()
    return _Process.context


def current() -> Context:
    """The context, opened if it is not yet."""
    return _Process.context or init()


def _close() -> None:
    """At the end of the script. MPI ends when all ranks end it; others, which may be in the middle of a step, would wait for one
    that has given up by sys.exit(1)."""
    context, _Process.context = _Process.context, None
    if context and _Process.code not in (None, 0) and context.size > 1:
        sys.stdout.flush()
        library().meg_abort(context.handle, f"a rank has ended the script by sys.exit({_Process.code!r})".encode())
    if context:
        context.close()


def _end(kind: Any, value: Any, trace: Any) -> None:
    """What nobody has caught. On many ranks an exception of one ends the whole job: others would wait for it for ever.
    After Ctrl-C, all ranks are here; a sentence will do."""
    sys.stdout.flush()
    context = _Process.context
    if isinstance(value, Stopped):
        if context is None or context.rank == 0:
            print(f"megalith: {value}", file=sys.stderr, flush=True)
        _close()
        os._exit(130)
    if context is None or context.size == 1:
        _Process.hook(kind, value, trace)
        return
    if isinstance(value, KeyboardInterrupt):
        os._exit(130)
    time.sleep(SECONDS * min(context.rank, 3))
    text = "".join(traceback.format_exception(kind, value, trace))
    library().meg_abort(context.handle, text.rstrip().encode())


def rank() -> int:
    """Of this process, from 0."""
    return current().rank


def size() -> int:
    """How many processes train together."""
    return current().size
