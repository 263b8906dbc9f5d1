"""The rule by which our numbers are compared with a framework's; docs/style.md, 14, has it in words, and
tests/compare.h is its twin in C.

The framework in double judges. The error of a tensor is relative by norm; the denominator of a gradient is at
least 1e-3 of the largest parameter gradient, since a bias in front of a batch norm has a true gradient
of zero. Allowed are

    in double    1e-10
    in float     max(1e-4, 3 x own): own is the error of the framework's float against its double, the largest
                 over all tensors (a tensor of one number is one draw, and of two draws of the same kind
                 one is three times the other in one case of five) and over one and two threads

One seed, no second try: networks of comparisons in float have no kinks nearby (tools/torch_kinks.py).
"""
from __future__ import annotations

import numpy

DOUBLE, FLOAT, TIMES, NEGLIGIBLE = 1e-10, 1e-4, 3, 1e-3


def distance(a, b, least=0.0):
    """Relative by norm; not finite, or of another size: infinite."""
    a, b = (numpy.asarray(t, dtype=numpy.float64).ravel() for t in (a, b))
    if a.size != b.size or not numpy.isfinite(a).all():
        return float("inf")
    return float(numpy.linalg.norm(a - b) / max(numpy.linalg.norm(b), least, 1e-300))


def step_errors(got, judge):
    """[(error, name)] of loss, gradients and running statistics; got: a dict of all, with "loss"."""
    largest = max(numpy.linalg.norm(g) for g in judge[1].values())
    errors = [(distance(got["loss"], judge[0]), "loss")]
    for part, least in ((1, NEGLIGIBLE * largest), (2, 0.0)):
        for name, want in judge[part].items():
            error = distance(got[name], want, least) if name in got else float("inf")
            errors.append((error, name if name in got else name + ": there is none"))
    return errors


def compare_step(ours, judge, floats, tolerance):
    """ours: (loss, tensors); judge and each of the framework's floats (none in double): (loss, gradients,
    running). Returns [(error / allowed, error, text)]."""
    own = max([error for f in floats
               for error, _ in step_errors({"loss": f[0], **f[1], **f[2]}, judge)], default=0.0)
    allowed = max(tolerance, TIMES * own)
    of_own = f", the framework's float {own:.1e}" if floats else ""
    errors = [(error / allowed, error, f"{name}, allowed {allowed:.1e}{of_own}")
              for error, name in step_errors({"loss": ours[0], **ours[1]}, judge)]
    for name in sorted(ours[1].keys() - judge[1].keys() - judge[2].keys()):
        errors.append((float("inf"), float("inf"), name + ": the framework has none"))
    return errors
