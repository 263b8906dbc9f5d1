"""Megalith: trains PyTorch and Keras models that are too large for one device, on one rank or many.

    >>> import megalith, torch
    >>> net, x, y = torch.nn.Linear(4, 3), torch.randn(64, 4), torch.arange(64) % 3
    >>> model = megalith.Model(net, example=x)          # a torch.nn.Module or a keras.Model
    >>> model.compile(optimizer="adamw", loss="cross_entropy")
    >>> history = model.fit(x, y, batch_size=16, epochs=3, verbose=0)
    >>> model.unwrap() is net                           # the same object, with the trained weights
    True

`megalith run -np 4 train.py` runs the same script on four ranks. docs/python.md is the guide.
"""
from . import callbacks, check
from ._library import BadData, Interrupted, MegalithError, NotFinite
from .context import init, rank, size
from .loaders import distribute
from .model import Model
from .net import CaptureError

__all__ = ["BadData", "CaptureError", "Interrupted", "MegalithError", "Model", "NotFinite", "callbacks", "check", "distribute",
           "init", "rank", "size"]
