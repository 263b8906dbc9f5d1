"""Losses, metrics and their parts of src/ops in PyTorch: see tools/torch_ops.py."""
import torch
from torch.nn import functional as F

from torch_words import flag, over_channels


def ignored(a, labels):
    """Which labels do not count; cross_entropy wants one number for all of them."""
    return (labels < 0) | (labels == int(a.get("ignore", "-1")))


def label_count(a, x, w, training):
    if x[0].is_floating_point():
        return (~x[0].isnan()).sum()
    kept = x[0][~ignored(a, x[0])].long()
    return x[1].flatten()[kept].sum() if len(x) > 1 else kept.numel() * torch.ones(())


def correct(a, x, w, training):
    best = x[0].argmax(1) if x[0].shape[1] > 1 else x[0][:, 0] > 0
    return ((best == x[1]) & ~ignored(a, x[1])).sum()


def absolute_error(a, x, w, training):
    return ((x[0].sigmoid() if flag(a, "sigmoid") else x[0]) - x[1]).abs().sum() / x[2]


def top(a, x, w, training):
    return x[0].amax(1, keepdim=True)


def expsum(a, x, w, training):
    return (x[0] - x[1].reshape(x[0].shape[0], 1, *x[0].shape[2:])).exp().sum(1, keepdim=True)


def expdiv(a, x, w, training):
    tops, z = (t.reshape(x[0].shape[0], 1, *x[0].shape[2:]) for t in x[1:])
    return (x[0] - tops).exp() / z


def xent(a, x, w, training):
    logits, tops, z, labels, count = x[:5]
    classes, smoothing = logits.shape[1], float(a.get("smoothing", "0"))
    kept = ~ignored(a, labels)
    aim = F.one_hot(labels.long().clamp(min=0), classes).movedim(-1, 1).to(logits.dtype)
    aim = (1 - smoothing) * aim + smoothing / classes
    aim = aim * kept[:, None] * (over_channels(x[5], logits) if len(x) > 5 else 1)
    pixel = (logits.shape[0], 1, *logits.shape[2:])
    return (aim * (z.log().reshape(pixel) - logits + tops.reshape(pixel))).sum() / count


def softmax_xent(a, x, w, training):
    labels = x[1].long()
    labels = labels.masked_fill(ignored(a, labels), -100)
    count = x[2] if len(x) > 2 else (labels >= 0).sum()
    weight = x[3].flatten() if len(x) > 3 else None
    return F.cross_entropy(x[0], labels, weight, ignore_index=-100, reduction="sum",
                           label_smoothing=float(a.get("smoothing", "0"))) / count


def mse(a, x, w, training):
    return F.mse_loss(x[0], x[1], reduction="sum") / x[2]


def bce_logits(a, x, w, training):
    weight = over_channels(x[3].reshape(1, -1), x[0]) if len(x) > 3 else None
    return F.binary_cross_entropy_with_logits(x[0], x[1], reduction="sum", pos_weight=weight) / x[2]


def overlap(a, x, w, training):
    kept = ~ignored(a, x[1])[:, None]
    classes = x[0].shape[1]
    aim = F.one_hot(x[1].long().clamp(min=0), max(classes, 2)).movedim(-1, 1) * kept
    aim = aim[:, 1:] if classes == 1 else aim  # one logit tells label 1 from 0
    share = x[0] * kept
    count = kept.expand_as(x[0])
    sums = [t.reshape(*x[0].shape[:2], -1).sum(2) for t in (share * aim, share + aim, count)]
    return torch.stack(sums, 2)[:, :, None, None]


def dice_mean(a, x, w, training):
    both, total, count = x[0].flatten(2).unbind(2)
    epsilon = float(a.get("epsilon", "1e-5"))
    each = 1 - (2 * both + epsilon) / (total + epsilon)
    return (each * count).sum() / (x[1] * each.shape[1])


def dice(a, x, w, training):
    chance = x[0].sigmoid() if a.get("mode") == "sigmoid" else x[0].softmax(1)
    return dice_mean(a, [overlap(a, [chance, x[1]], w, training), x[2]], w, training)


OPS = {f.__name__: f for f in (label_count, correct, absolute_error, top, expsum, expdiv, xent,
                               softmax_xent, mse, bce_logits, overlap, dice_mean, dice)}
