"""Weights in safetensors files: a length, a JSON header, and the numbers."""
from __future__ import annotations

import json
from typing import Dict

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
         "BOOL": "?"}


def widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16 is the upper half of a float.

    >>> widened(np.array([0x3FC0], "<u2")).tolist()
    [1.5]
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path: str) -> Dict[str, np.ndarray]:
    """All tensors of a file; bfloat16 as float32, which numpy has."""
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        start, out = f.tell(), {}
        for name, t in head.items():
            if name == "__metadata__":
                continue
            if t["dtype"] not in TYPES:
                raise ValueError(f"{path}: '{name}' is {t['dtype']}, but {', '.join(TYPES)} are read")
            begin, end = t["data_offsets"]
            f.seek(start + begin)
            numbers = np.frombuffer(bytearray(f.read(end - begin)), TYPES[t["dtype"]])  # which may be written to
            out[name] = (widened(numbers) if t["dtype"] == "BF16" else numbers).reshape(t["shape"])
    return out
