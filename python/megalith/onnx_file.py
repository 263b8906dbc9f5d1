"""Writes a captured network as an ONNX file that the C library reads (docs/onnx.md), without the package `onnx`.

It is standard ONNX, operator set 21, with two additions. The note ``megalith.kinds`` of the graph has a line for
each weight, "parameter * same fc.weight": its kind, its extents (*: those of the file), their order, its name.
Nodes are named after the module that called them ("layer1.0.conv1"), and may have notes of their own
(``megalith.running_var``). Weights of more than INSIDE bytes go to a second file, NAME.onnx.data.
"""
from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

import numpy as np

from .net import BUFFER, CONSTANT, PARAMETER, Net, Node, Port, Weight, itemsize

OPSET, IR = 21, 10
INSIDE = 64 << 20  # bytes of weights that stay in the file itself
ALIGN = 64

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
         "bfloat16": 16}
KIND_WORDS = {PARAMETER: "parameter", BUFFER: "fixed", CONSTANT: "constant"}


# ---- protobuf's wire format: fields are a number, a wire type, and a varint, four bytes, or bytes with a length

def varint(value: int) -> bytes:
    """
    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(int(value))


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def entry(field: int, key: str, value: str) -> bytes:
    """StringStringEntryProto: a note."""
    return message(field, text(1, key) + text(2, value))


# ---- tensors

def raw(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def tensor_head(name: str, shape: Tuple[int, ...], dtype: str) -> bytes:
    if dtype not in TYPES:
        raise ValueError(f"'{name}' is {dtype}, but a file can hold {', '.join(TYPES)}")
    return b"".join(integer(1, d) for d in shape) + integer(2, TYPES[dtype]) + text(8, name)


def tensor(name: str, array: np.ndarray) -> bytes:
    return tensor_head(name, array.shape, str(array.dtype)) + message(9, raw(array))


def tensor_outside(w: Weight, file: str, offset: int) -> bytes:
    length = int(np.prod(w.shape, dtype=np.int64)) * itemsize(w.dtype)
    return (tensor_head(w.name, w.shape, w.dtype) + entry(13, "location", file) + entry(13, "offset", str(offset))
            + entry(13, "length", str(length)) + integer(14, 1))


# ---- nodes

def attribute(name: str, value: Any) -> bytes:
    head = text(1, name)
    if isinstance(value, np.ndarray):
        return head + message(5, tensor("", value)) + integer(20, 4)
    if isinstance(value, str):
        return head + text(4, value) + integer(20, 3)
    if isinstance(value, (bool, int, np.integer)):
        return head + integer(3, int(value)) + integer(20, 2)
    if isinstance(value, (float, np.floating)):
        return head + real(2, float(value)) + integer(20, 1)
    if all(isinstance(v, (int, np.integer)) for v in value):
        return head + b"".join(integer(8, v) for v in value) + integer(20, 7)
    return head + b"".join(real(7, v) for v in value) + integer(20, 6)


def node(n: Node, name: str) -> bytes:
    return (b"".join(text(1, s) for s in n.inputs) + b"".join(text(2, s) for s in n.outputs) + text(3, name)
            + text(4, n.op) + b"".join(message(5, attribute(k, v)) for k, v in n.attributes.items())
            + (text(7, n.domain) if n.domain else b"") + b"".join(entry(9, k, v) for k, v in n.notes.items()))


def node_names(net: Net) -> List[str]:
    """The module's path, made unique: what messages, plans and levels of the C library call the layer.

    >>> net = Net()
    >>> for net.scope in ("a", "a", ""): _ = net.emit("Relu", ["x"])
    >>> node_names(net)
    ['a', 'a_2', 'relu_3']
    """
    seen, out = set(net.weights), []
    count: Dict[str, int] = {}
    for n in net.nodes:
        stem = n.scope or n.outputs[0]
        name = stem
        while name in seen:
            count[stem] = count.get(stem, 1) + 1
            name = f"{stem}_{count[stem]}"
        seen.add(name)
        out.append(name)
    return out


def port(p: Port, batch: int) -> bytes:
    """The batch is a symbol, or the number that stands for it in the network's shapes."""
    any_size = integer(1, batch) if batch else text(2, "batch")
    dims = b"".join(message(1, any_size if d is None else integer(1, d)) for d in p.shape)
    kind = integer(1, TYPES[p.dtype]) + (message(2, dims) if p.shape else b"")
    return text(1, p.name) + message(2, message(1, kind))


def kinds(net: Net) -> str:
    return "".join(f"{KIND_WORDS[w.kind]} * same {w.name}\n" for w in net.weights.values())


# ---- the file

def _outside(net: Net, inside: int) -> List[Weight]:
    """The weights that get a place in the second file: all, where they are many or have no numbers."""
    return [w for w in net.weights.values() if w.kind != CONSTANT] if net.bytes() > inside or net.meta else []


def _places(weights: List[Weight]) -> Tuple[Dict[str, int], int]:
    """Where each begins, and where all end."""
    places, at = {}, 0
    for w in weights:
        places[w.name] = at
        at += -(-int(np.prod(w.shape, dtype=np.int64)) * itemsize(w.dtype) // ALIGN) * ALIGN
    return places, at


def _write_data(out: BinaryIO, weights: List[Weight], places: Dict[str, int], end: int) -> None:
    """What has no numbers stays a hole in the file, which takes no place on the disk and reads as zeros."""
    for w in weights:
        if w.array is not None:
            out.seek(places[w.name])
            out.write(raw(w.array))
    out.truncate(end)


def write(net: Net, path: "str | os.PathLike[str]", inside: Optional[int] = None) -> None:
    """Writes `net` to `path` (NAME.onnx), and its weights to NAME.onnx.data where they are more than `inside` bytes."""
    path = os.fspath(path)
    outside = _outside(net, INSIDE if inside is None else inside)
    (places, end), data = _places(outside), os.path.basename(path) + ".data"
    graph = [message(1, node(n, name)) for n, name in zip(net.nodes, node_names(net))]
    graph.append(text(2, net.name))
    for w in net.weights.values():
        graph.append(message(5, tensor_outside(w, data, places[w.name]) if w.name in places else tensor(w.name, w.array)))
    graph += [message(11, port(p, net.batch)) for p in net.inputs] + [message(12, port(p, net.batch)) for p in net.outputs]
    graph.append(entry(16, "megalith.kinds", kinds(net)))
    if outside:
        with open(path + ".data", "wb") as out:
            _write_data(out, outside, places, end)
    with open(path, "wb") as out:
        out.write(integer(1, IR) + text(2, "megalith") + text(3, "python") + message(7, b"".join(graph))
                  + message(8, text(1, "") + integer(2, OPSET)) + message(8, text(1, "megalith") + integer(2, 1)))
