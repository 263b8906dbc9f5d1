"""Ctrl-C while `fit` runs: the step is done to its end, weights are saved, then the script ends.

A signal may reach the ranks of a job in different steps. One that was asked to stop says so in place of its next step
(engine.Trainer.ask_to_stop), which all ranks then hear of in theirs. A second Ctrl-C ends the process at once, also in
the middle of a step.
"""
from __future__ import annotations

import signal
import sys
import threading
from typing import Any, Dict

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # the last is what `megalith run` sends to ranks


class Stopped(KeyboardInterrupt):
    """Training was asked to stop; the model is at a whole step, its weights are saved."""


def be_interrupted() -> None:
    """Ctrl-C reaches the ranks of `megalith run` as SIGUSR1, since launchers answer others with their own idea of an end:
    outside of `fit`, too, it shall be what Ctrl-C is in Python."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.default_int_handler)


class Interrupts:
    """Watches for signals inside of `with`. Only in the main thread, as Python has it; elsewhere nothing is watched."""

    def __init__(self, speaks: bool = True):
        self.speaks, self.seen, self.before = speaks, False, {}  # type: bool, bool, Dict[int, Any]

    def _see(self, number: int, frame: Any) -> None:
        self.seen = True
        if number == signal.SIGUSR1:
            return
        signal.signal(number, signal.SIG_DFL)  # once more ends at once
        if self.speaks:
            print("megalith: stopping after this step; once more to end at once", file=sys.stderr, flush=True)

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for s in SIGNALS:
                if signal.getsignal(s) is not signal.SIG_IGN:
                    self.before[s] = signal.signal(s, self._see)
        return self

    def __exit__(self, *ignored: Any) -> None:
        for s, handler in self.before.items():
            signal.signal(s, handler if handler is not None else signal.SIG_DFL)
        if self.seen and signal.SIGUSR1 in self.before:  # whoever asks again has nothing to wait for
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
