"""The command of the Python package: `megalith trace`, which needs Python, and all others, which are those of C.

    python -m megalith trace mymodule:build --input 1,3,224,224 -o net.onnx
    python -m megalith run -np 4 train.py
"""
from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any, List

from . import onnx_file


def command() -> str:
    """The command of C: in a wheel, in the build tree, or in the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    for path in (os.path.join(here, "bin", "megalith"), os.path.join(root, "build", "megalith")):
        if os.path.exists(path):
            return path
    return "megalith"


def built(factory: str) -> Any:
    """What `module:function` makes; the current folder's modules come first."""
    name, _, function = factory.partition(":")
    if not function:
        raise SystemExit(f"megalith trace: {factory!r} is no factory: write MODULE:FUNCTION, e.g. torchvision.models:resnet18")
    sys.path.insert(0, os.getcwd())
    return getattr(importlib.import_module(name), function)()


def example(text: str) -> Any:
    """
    >>> example("2,3,8,8").shape, example("1,16:int64").dtype
    (torch.Size([2, 3, 8, 8]), torch.int64)
    """
    import torch
    shape, _, dtype = text.partition(":")
    return torch.zeros([int(d) for d in shape.split(",")], dtype=getattr(torch, dtype or "float32"))


def trace(arguments: List[str]) -> None:
    parser = argparse.ArgumentParser(prog="megalith trace", description="captures a PyTorch or Keras model as an ONNX file")
    parser.add_argument("factory", help="MODULE:FUNCTION, which makes the model")
    parser.add_argument("--input", action="append", default=[], help="shape of an input, 1,3,224,224 or 1,128:int64; once for each")
    parser.add_argument("-o", "--output", required=True, help="the file, NAME.onnx")
    words = parser.parse_args(arguments)
    from .model import capture
    model = built(words.factory)
    inputs = tuple(example(t) for t in words.input) or None
    net = capture(model, inputs).net
    onnx_file.write(net, words.output)
    print(f"{words.output}: {net.name}, {len(net.nodes)} operators, {net.parameters():,} parameters that are trained")


def main() -> None:
    if sys.argv[1:2] == ["trace"]:
        trace(sys.argv[2:])
        return
    path = command()
    os.environ.setdefault("MEGALITH_PYTHON", sys.executable)  # `run train.py`: where the package is
    os.execvp(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
