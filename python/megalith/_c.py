"""The C interface, include/megalith.h, for ctypes: types and signatures, nothing else.

`tests/test_library.py` compares them with the header, so that neither can change alone.
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int64, c_void_p

STATUS = ("MEG_OK", "MEG_EARG", "MEG_EIO", "MEG_EDATA", "MEG_ENOMEM", "MEG_EBUDGET", "MEG_ENAN", "MEG_EINTERRUPTED",
          "MEG_EUNSUPPORTED", "MEG_EPEER")
DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")  # meg_dtype, in its order
RANK = 8


class Report(Structure):
    """meg_report"""

    _fields_ = [("step", c_int64), ("loss", c_double), ("accuracy", c_double), ("seconds_per_step", c_double),
                ("images_per_second", c_double), ("predicted_seconds_per_step", c_double),
                ("predicted_peak_bytes", c_int64), ("measured_peak_bytes", c_int64), ("peak_rss_bytes", c_int64),
                ("absolute_error", c_double)]


class Tensor(Structure):
    """meg_tensor: a tensor in the caller's memory, row-major without gaps."""

    _fields_ = [("name", c_char_p), ("data", c_void_p), ("dtype", c_int), ("rank", c_int), ("shape", c_int64 * RANK)]


Read = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_int, POINTER(Tensor))  # meg_read


class Lazy(Structure):
    """meg_lazy: who reads samples when they are wanted."""

    _fields_ = [("read", Read), ("user", c_void_p)]


Status, Handle, Out = c_int, c_void_p, POINTER(c_void_p)
Tensors, Reports = POINTER(Tensor), POINTER(Report)

# name: (what it returns, what it takes)
SIGNATURES = {
    "meg_open": (Status, [c_char_p, Out]),
    "meg_open_on": (Status, [c_char_p, c_int, Out]),
    "meg_close": (None, [Handle]),
    "meg_abort": (None, [Handle, c_char_p]),
    "meg_rank": (c_int, [Handle]),
    "meg_ranks": (c_int, [Handle]),
    "meg_message": (c_char_p, [Handle]),
    "meg_list": (c_bool, [c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p)]),
    "meg_graph_load": (Status, [Handle, c_char_p, c_char_p, Out]),
    "meg_graph_model": (Status, [Handle, c_char_p, c_char_p, Out]),
    "meg_graph_parameters": (c_int64, [Handle]),
    "meg_graph_free": (None, [Handle]),
    "meg_data_open": (Status, [Handle, c_char_p, Out]),
    "meg_data_memory": (Status, [Handle, c_int, Tensors, c_char_p, Out]),
    "meg_data_lazy": (Status, [Handle, c_int, Tensors, POINTER(Lazy), Out]),
    "meg_data_count": (c_int64, [Handle]),
    "meg_data_free": (None, [Handle]),
    "meg_plan_new": (Status, [Handle, Handle, c_char_p, Out]),
    "meg_plan_bytes": (c_int64, [Handle]),
    "meg_plan_seconds": (c_double, [Handle]),
    "meg_plan_reads": (c_bool, [Handle, c_int64]),
    "meg_plan_save": (Status, [Handle, c_char_p]),
    "meg_plan_load": (Status, [Handle, Handle, c_char_p, c_char_p, Out]),
    "meg_plan_print": (Status, [Handle, c_char_p, c_void_p]),
    "meg_plan_free": (None, [Handle]),
    "meg_trainer_new": (Status, [Handle, Handle, c_char_p, Out]),
    "meg_train": (Status, [Handle, c_int64, Reports]),
    "meg_evaluate": (Status, [Handle, Handle, Reports]),
    "meg_step": (Status, [Handle, c_int, Tensors, Reports]),
    "meg_outputs": (c_int, [Handle]),
    "meg_output_at": (c_bool, [Handle, c_int, Tensors]),
    "meg_predict": (Status, [Handle, Handle, Tensors]),
    "meg_forward": (Status, [Handle, c_int, Tensors, c_int, Tensors]),
    "meg_backward": (Status, [Handle, c_int, Tensors]),
    "meg_input_gradient": (Status, [Handle, Tensors]),
    "meg_trainer_lr": (None, [Handle, c_double]),
    "meg_trainer_go_on": (None, [Handle, c_int64, c_int64]),
    "meg_trainer_save": (Status, [Handle, c_char_p]),
    "meg_trainer_load": (Status, [Handle, c_char_p]),
    "meg_trainer_checkpoint": (Status, [Handle]),
    "meg_trainer_export": (Status, [Handle, c_char_p]),
    "meg_trainer_free": (None, [Handle]),
    "meg_tensors": (c_int, [Handle, c_char_p]),
    "meg_tensor_at": (c_bool, [Handle, c_char_p, c_int, Tensors]),
    "meg_trainer_get_many": (Status, [Handle, c_char_p, c_int, Tensors]),
    "meg_trainer_set_many": (Status, [Handle, c_char_p, c_int, Tensors]),
}


def declare(library: ctypes.CDLL) -> None:
    """Gives all functions their types."""
    for name, (result, arguments) in SIGNATURES.items():
        f = getattr(library, name)
        f.restype, f.argtypes = result, arguments
