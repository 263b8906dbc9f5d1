"""libmegalith.so: where it is, and its calls as Python functions that raise.

It lies beside this file (a wheel), in the build tree of the repository, or where the system looks;
MEGALITH_LIBRARY=PATH decides otherwise. ctypes gives up the GIL during a call, so that other threads of Python go on.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
from typing import Any, List, Sequence

import numpy as np

from . import _c


class MegalithError(RuntimeError):
    """The library said no. The message says what was wrong and what would be right."""


class Interrupted(MegalithError):
    """Asked to stop (Ctrl-C); the trainer is at a whole step."""


class BadData(ValueError):
    """Data that the network cannot take; the message says what it wants."""


class AskedToStop(MegalithError):
    """A rank was asked to stop, and said so in place of a step: nothing was done."""


class NotFinite(MegalithError):
    """The loss is no number any more."""


def candidates() -> List[str]:
    """Paths, the best first."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    given = os.environ.get("MEGALITH_LIBRARY")
    if given:
        return [given]
    return [os.path.join(here, "lib", "libmegalith.so"), os.path.join(here, "libmegalith.so"),
            os.path.join(root, "build", "libmegalith.so"), "libmegalith.so.0",
            ctypes.util.find_library("megalith") or "libmegalith.so"]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded once."""
    tried = []
    for path in candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(path)
            continue
        try:
            found = ctypes.CDLL(path)
        except OSError as e:
            tried.append(f"{path} ({e})")
            continue
        try:
            _c.declare(found)
        except AttributeError as e:
            raise MegalithError(f"{path} is of another version than this package ({e}): build it anew (./do build)") from None
        return found
    raise MegalithError("libmegalith.so is not here: build it (./do build), install it, or set MEGALITH_LIBRARY to its path; "
                        "tried " + ", ".join(tried))


STOP = "(asked to stop)"  # the name of an array that no network takes: all ranks are told of it
KINDS = {"MEG_EINTERRUPTED": Interrupted, "MEG_ENAN": NotFinite}


def check(context: Any, status: int) -> None:
    """Raises what the library says, if it failed."""
    if status == 0:
        return
    text = (library().meg_message(context) or b"").decode(errors="replace") or f"error {_c.STATUS[status]}"
    if STOP in text:
        raise AskedToStop("asked to stop")
    raise KINDS.get(_c.STATUS[status], MegalithError)(text)


# ---- words

def words(**options: Any) -> bytes:
    """Options as the library reads them; None is left out.

    >>> words(batch=8, nesterov=True, loss="softmax_xent ignore=3", plan=None)
    b"batch=8 nesterov=1 loss='softmax_xent ignore=3'"
    """
    out = []
    for key, value in options.items():
        if value is None:
            continue
        text = str(int(value)) if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)
        if any(c in text for c in " \t'\"") or not text:
            if "'" in text:
                raise ValueError(f"{key}={text}: a quote cannot be part of it")
            text = f"'{text}'"
        out.append(f"{key}={text}")
    return " ".join(out).encode()


# ---- tensors

def as_tensor(name: str, array: np.ndarray) -> _c.Tensor:
    """An array as the library sees it. It must be contiguous, and live as long as the call."""
    dtype = str(array.dtype)
    if dtype not in _c.DTYPES:
        raise TypeError(f"'{name}' is {dtype}: {', '.join(_c.DTYPES)} are supported")
    if array.ndim > _c.RANK:
        raise TypeError(f"'{name}' has {array.ndim} axes: {_c.RANK} at most are supported")
    if not array.flags.c_contiguous:
        raise TypeError(f"'{name}' is not contiguous: numpy.ascontiguousarray makes it so")
    shape = (ctypes.c_int64 * _c.RANK)(*array.shape)
    return _c.Tensor(name.encode(), array.ctypes.data, _c.DTYPES.index(dtype), array.ndim, shape)


def tensor_array(tensors: Sequence[_c.Tensor]) -> Any:
    return (_c.Tensor * len(tensors))(*tensors)
