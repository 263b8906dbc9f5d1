"""A torch.autograd.Function of the user's own: torch.export replaces its backward by that of its forward, without a word.

Whether a model has one is seen while it is captured. Then `fit` compares the first batch's gradients with PyTorch's, once
(check.py), and refuses a model where they differ.
"""
from __future__ import annotations

import inspect
import sys
from typing import Any, List, Optional

import numpy as np

from .context import current
from .net import CaptureError

LARGE = 200_000_000  # parameters: PyTorch's own step in double would need some GB more
SAMPLES = 8          # of the first batch that are compared


class Functions:
    """Inside of `with`, names of custom functions that are called. `wish`: True compares whatever was seen, False never."""

    def __init__(self, wish: Optional[bool] = None):
        self.wish, self.names, self.done, self.own = wish, [], False, None  # type: Any, List[str], bool, Any

    def __enter__(self) -> "Functions":
        torch = sys.modules.get("torch")
        if torch is None:
            return self
        self.own, names = torch.autograd.Function.__dict__["apply"], self.names

        def apply(cls: Any, *arguments: Any, **words: Any) -> Any:
            if cls.__module__.split(".")[0] != "torch" and cls.__name__ not in names:
                names.append(cls.__name__)
            return self.own.__get__(None, cls)(*arguments, **words)
        torch.autograd.Function.apply = classmethod(apply)
        return self

    def __exit__(self, *ignored: Any) -> None:
        if self.own is not None:
            sys.modules["torch"].autograd.Function.apply = self.own

    def of(self, captured: Any) -> None:
        if self.wish and hasattr(captured, "bindings"):
            raise CaptureError("check=True is for models of PyTorch: those of Keras have no backward of their own that a capture "
                               "would lose")

    def compare(self, captured: Any, batch: Any, loss: Any) -> None:
        """With PyTorch's own step on some samples, once. On many ranks only if asked: their modules may have other numbers."""
        if self.done or self.wish is False or not (self.wish or self.names):
            return
        self.done = True
        large = captured.net.meta or captured.net.parameters() > LARGE
        if not self.wish and (current().size > 1 or large or hasattr(captured, "bindings")):
            self._say()
        else:
            self._compare(captured, batch, loss)

    def _say(self, then: str = "megalith.check(net, x, y) compares them with PyTorch's") -> None:
        names = ", ".join(self.names)
        calls = f"the model calls {names} (autograd.Function), whose own backward no capture sees: " if names else ""
        if current().rank == 0:
            print(f"megalith: {calls}gradients are those of its forward; {then}", file=sys.stderr)

    def _compare(self, captured: Any, batch: Any, loss: Any) -> None:
        import torch

        from .check import Degenerate, Mismatch, NoJudge, check
        inputs, targets = ([torch.from_numpy(np.ascontiguousarray(a[:SAMPLES])) for a in arrays] for arrays in batch)
        names, taken = [p.name for p in captured.net.inputs], inspect.signature(captured.model.forward).parameters
        x: Any = dict(zip(names, inputs)) if len(inputs) > 1 and all(k in taken for k in names) else inputs
        try:
            check(captured.model, x[0] if len(inputs) == 1 else x, targets[0] if len(targets) == 1 else targets, loss)
        except (NoJudge, Degenerate) as e:
            self._say(f"they were not compared with PyTorch's: {e}")
        except Mismatch as e:
            why = f"it calls {', '.join(self.names)} (autograd.Function), whose own backward no capture sees. " if self.names else ""
            raise CaptureError(f"the model's gradients are not PyTorch's: {why}{e}. Write it with PyTorch's operators, or give "
                               "megalith.Model check=False to train with the gradients of what was captured") from None
