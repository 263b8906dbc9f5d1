"""Keeps networks off their kinks, for comparisons in float.

A rectifier whose input lies within rounding of zero, or a max-pool whose two largest do so, goes the other
way in another float, and moves gradients by up to a percent, though nobody erred. So

    batch norms      get a bias of 4 deviations: rectifiers behind them pass nearly all they get
    convolutions,    biases move so that, of the numbers of a channel, none is near zero: zero comes to
    dense layers     lie in the widest gap nearby
    batches          the first, of those of seeds 1, 2, ..., where PyTorch in double finds nothing within
                     NEAR of a kink. It looks at the judge alone: no comparison has a second try.

What this does not cover: a rectifier or a max-pool that errs within NEAR of its kink. Networks as they are
are compared in double.
"""
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

BIAS = 4.0     # of batch norms, in deviations
NEAR = 3e-6    # of the deviation; float has some 1e-7, Winograd's convolutions 1e-6
SEEDS = 40
NEARBY = 0.05  # where a gap is looked for, in deviations

RECTIFIERS = ("relu", "leaky_relu", "_prelu_kernel", "hardtanh")


def gap(pools, x, kernel, stride=(), padding=0, dilation=1, ceil=False):
    """The least distance of a window's two largest; windows of zeros, of dead units, do not count."""
    axes = x.dim() - 2

    def each(given):
        given = [given] if isinstance(given, int) else list(given)
        return given * axes if len(given) == 1 else given

    kernel = each(kernel)
    stride, padding = each(stride) if stride else kernel, each(padding)
    assert not ceil and each(dilation) == [1] * axes, pools
    x = nn.functional.pad(x, [p for pad in reversed(padding) for p in (pad, pad)],
                          value=-float("inf"))
    for i in range(axes):
        x = x.unfold(2 + i, kernel[i], stride[i])
    two = x.flatten(2 + axes).topk(2, -1).values
    apart = (two[..., 0] - two[..., 1])[two[..., 0] != 0]
    return float(apart.min()) if apart.numel() else float("inf")


class Kinks(TorchDispatchMode):
    """Finds `margin`, how near the nearest number is to a kink, in deviations of its tensor."""

    def __init__(self):
        super().__init__()
        self.margin = float("inf")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.split("::")[1].rstrip("_")
        if name in RECTIFIERS or name.startswith("max_pool"):
            x = args[0].detach()
            near = gap(name, *args) if name.startswith("max_pool") else float(x.abs().min())
            self.margin = min(self.margin, near / max(float(x.std()), 1e-300))
        return function(*args, **(kwargs or {}))


def widest_gap(values):
    """The middle of the widest gap near zero of each column."""
    ordered = values.sort(0).values
    reach = NEARBY * values.std(0, keepdim=True)
    width = (ordered[1:] - ordered[:-1]).where(ordered[1:].abs() <= reach, 0)
    at = width.argmax(0, keepdim=True)
    middle = (ordered[1:].gather(0, at) + ordered[:-1].gather(0, at)) / 2
    return middle.where(width.gather(0, at) > 0, 0)[0]


def settle(module, _, y):
    """A hook of layers with a bias: moves it, and what was made with it."""
    axis = 1 if y.dim() > 2 else -1
    columns = y.detach().movedim(axis, -1).flatten(0, -2)
    if columns.shape[0] < 2 or columns.shape[-1] != module.bias.numel():
        return None
    # as float has it: both sides read the same weights
    shift = -widest_gap(columns)
    moved = (module.bias.data + shift).float().to(module.bias.dtype)
    shift, module.bias.data = moved - module.bias.data, moved
    return y + shift.reshape([-1] + [1] * (y.dim() - 2)) if axis == 1 else y + shift


def keep_off(build, state, x):
    """Weights (numpy) that differ from `state` in biases only, and the margin that is left."""
    model = build().double()
    model.load_state_dict({k: torch.tensor(t) for k, t in state.items()}, strict=False)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.bias.data = (m.bias.data + BIAS * m.weight.data.abs()).float().double()
    hooks = [m.register_forward_hook(settle) for m in model.modules()
             if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd)) and m.bias is not None
             and not isinstance(m, nn.modules.conv._ConvTransposeNd)]
    running = {k: t.clone() for k, t in model.named_buffers()}
    x = torch.tensor(x)
    x = x.double() if x.is_floating_point() else x
    with torch.no_grad():
        model(x)
        for hook in hooks:
            hook.remove()
        for k, t in model.named_buffers():
            t.copy_(running[k])
        with Kinks() as kinks:
            model(x)
    settled = {k: p.detach().float().numpy() for k, p in model.named_parameters()}
    return {k: settled.get(k, t) for k, t in state.items()}, kinks.margin
