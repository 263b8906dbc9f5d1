"""Attributes of operators as tools/torch_ops.py reads them, and what its files share."""
from torch.nn import functional as F


def words(attrs):
    """"kernel=3x5 bias=0" as a dictionary of strings."""
    return dict(word.partition("=")[::2] for word in (attrs or "").split())


def flag(a, word, initial=False):
    return a.get(word, str(int(initial))) in ("1", "yes", "true", "on", "")


def number(a, word, initial):
    return float(a.get(word, initial))


def numbers(a, word, initial=""):
    text = a.get(word, initial)
    return [int(v) for v in text.split("x")] if text else []


def axes(text, count):
    values = [int(v) for v in text.split("x")]
    return tuple(values * count if len(values) == 1 else values)


def pads(text, count):
    """[(before, after)] per spatial axis."""
    parts = [part.split(":") for part in text.split("x")]
    pairs = [(int(p[0]), int(p[-1])) for p in parts]
    return pairs * count if len(pairs) == 1 else pairs


def padded(x, pairs, value):
    """F.pad wants the last axis first."""
    return F.pad(x, [side for pair in reversed(pairs) for side in pair], value=value)


def over_channels(t, like):
    return t.reshape(-1, t.shape[-1], *[1] * (like.dim() - 2))
