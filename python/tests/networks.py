"""Networks that captures are tried with: those of tools/onnx_nets.py, where each thing that an importer can get wrong
has a small one, and whole ones of torchvision and of the literature. At the smallest images that work."""
from __future__ import annotations

import os
import sys
from typing import Any, List, Tuple

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools"))

import onnx_nets  # noqa: E402
from onnx_nets import CLASSES, VOCABULARY, Net, vision  # noqa: E402


class UNet(nn.Module):
    """Two levels, transposed convolutions, biases in front of batch normalisation, whose true gradient is zero."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.down1, self.down2 = self.block(3, width), self.block(width, 2 * width)
        self.bottom = self.block(2 * width, 4 * width)
        self.lift2, self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), self.block(4 * width, 2 * width)
        self.lift1, self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2), self.block(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                             nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        y = self.bottom(functional.max_pool2d(b, 2))
        y = self.up2(torch.cat([self.lift2(y), b], 1))
        return self.head(self.up1(torch.cat([self.lift1(y), a], 1)))


class Cosmo(nn.Module):
    """CosmoFlow's way: convolutions of volumes, leaky rectifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.LeakyReLU(0.3), nn.MaxPool3d(2),
                                  nn.Conv3d(4, 8, 3, padding=1), nn.LeakyReLU(0.3), nn.MaxPool3d(2))
        self.head = nn.Sequential(nn.Linear(64, 16), nn.LeakyReLU(0.3), nn.Dropout(0.0), nn.Linear(16, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


class Frozen(nn.Module):
    """A normalisation that stays in eval(), and a layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.second, self.fc = nn.Conv2d(6, 6, 3), nn.Linear(6, CLASSES)
        self.first.requires_grad_(False)

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.second(torch.relu(self.norm(self.first(x))))).mean((2, 3)))


class InPlace(nn.Module):
    """Operators that change their operand, which is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.fc = nn.Conv2d(3, 6, 3, padding="same"), nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        functional.relu_(y)
        z = self.second(y)
        z += y
        z.mul_(0.5)
        return self.fc(z.mean((2, 3)))


class Twice(nn.Module):
    """A layer that is used twice, and a head that shares its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.again(torch.tanh(self.again(torch.tanh(self.first(x)))))))


class Einsum(nn.Module):
    """Attention as einsum writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.fc = (nn.Linear(8, n) for n in (8, 8, 8, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("btc,bsc->bts", self.q(x), self.k(x)) / 8 ** 0.5
        return self.fc(torch.einsum("bts,bsc->btc", scores.softmax(-1), self.v(x)).mean(1))


def shuffled() -> nn.Module:
    """Pixels out of channels, and back."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.PixelShuffle(2), nn.Tanh(), nn.PixelUnshuffle(4),
                         nn.Conv2d(32, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Bert(nn.Module):
    """Ids, a mask of what is padding, and segments; attention as `kind` writes it; a head on the first token."""

    def __init__(self, kind: str, width: int = 16, tokens: int = 6):
        super().__init__()
        self.kind = kind
        self.word, self.position, self.segment = nn.Embedding(VOCABULARY, width), nn.Embedding(tokens, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(BertBlock(width) for _ in range(2))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, VOCABULARY)

    def hidden(self, mask: torch.Tensor) -> torch.Tensor:
        wide = mask[:, None, None, :]
        if self.kind == "add":
            return (1.0 - wide.to(torch.get_default_dtype())) * -10000.0
        return wide == 0 if self.kind == "where" else wide.bool()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        x = self.word(ids) + self.position(torch.arange(ids.shape[1])) + self.segment(segments)
        x, hidden = self.drop(self.norm(x)), self.hidden(mask)
        for block in self.blocks:
            x = block(x, hidden, self.kind)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class BertBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(3)), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: torch.Tensor, hidden: torch.Tensor, kind: str) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = (f(x).view(n, t, 2, c // 2).transpose(1, 2) for f in self.qkv)
        if kind == "fused":
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        else:
            scores = q @ k.transpose(-1, -2) / (c // 2) ** 0.5
            scores = scores + hidden if kind == "add" else scores.masked_fill(hidden, -float("inf"))
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x: torch.Tensor, hidden: torch.Tensor, kind: str) -> torch.Tensor:
        x = self.first(x + self.attend(x, hidden, kind))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class Recurrent(nn.Module):
    """Reads ids; classes by the mean of all states and the last ones."""

    def __init__(self, kind: Any, **words: Any):
        super().__init__()
        self.wte, self.cell = nn.Embedding(VOCABULARY, 12), kind(12, 7, batch_first=True, **words)
        self.ways = 2 if words.get("bidirectional") else 1
        self.head = nn.Linear(14 * self.ways, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y, last = self.cell(self.wte(ids))
        last = last[0] if isinstance(last, tuple) else last
        return self.head(torch.cat([y.mean(1), *[last[-1 - i] for i in range(self.ways)]], 1))


class Pair(nn.Module):
    """Steps in front, and a second layer that begins where the first one ended."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.goes_on, self.head = nn.GRU(8, 6), nn.GRU(8, 6), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(0, 1)
        _, state = self.reads(x)
        y, _ = self.goes_on(x.flip(0), state)
        return self.head(y.transpose(0, 1))


def normed(norm: Any) -> nn.Module:
    """Layers of all kinds with normalised weights."""
    return nn.Sequential(norm(nn.Conv2d(3, 6, 3, padding=1)), nn.Tanh(), norm(nn.ConvTranspose2d(6, 4, 2, 2)), nn.Tanh(),
                         norm(nn.Conv2d(4, 6, 3, groups=2, bias=False)), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         norm(nn.Linear(6, CLASSES)))


class Code(nn.Module):
    """What a function of the module makes of a dense layer's output, (n, 8)."""

    def __init__(self, function: Any):
        super().__init__()
        self.fc, self.head, self.function = nn.Linear(8, 8), nn.Linear(8, CLASSES), function
        self.register_buffer("kept", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.function(self, self.fc(x)))


def code(function: Any, **words: Any) -> Net:
    return Net(lambda: Code(function), (4, 8), **words)


def zeroed(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    y[:, 0] = 0
    return y


def masked(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    y[y > 0.25] = 0.5
    return y


def scaled(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    z = y.view(-1, 4, 2)
    z[:, 0].mul_(2)
    z[:, 2:, :1] += z[:, 1:3, 1:]
    return z.reshape(-1, 8)


def collected(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    y = y.view(-1, 4, 2)
    out = torch.ones_like(y)
    out[:, 0] = y[:, 1] * 3
    out[:, 2:] = y[:, :2]
    return out.view(-1, 8)


def reshaped(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    y.view(-1, 2, 4)[:, 1, 2:] = m.kept[:2] + 1
    return y


def rewritten(m: nn.Module, y: torch.Tensor) -> torch.Tensor:
    """Numbers that are known, read, changed and read again."""
    table = torch.zeros(8)
    y = y + table
    table[1:3] = 2
    return y * 2 + table


def unbiased(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Swin's second version: keys have no bias."""
    bias = bias.clone()
    bias[2:5].zero_()
    return x + bias


def at_bounds(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Between numbers the gradient of clamp does not pass there, between tensors half of it."""
    return x + (0 * x + a).clamp(min=0) + (0 * x + a).clamp(max=torch.tensor(0.0)) + (x + a).clamp(-0.1, 0.2)


class Extractor(nn.Module):
    """Features without a gradient, of layers that are frozen; their normalisation still counts."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.body(x.detach()).mean((2, 3))
        return self.head(y)


def amoebanet() -> nn.Module:
    from torch_zoo_cnn import AmoebaNet
    return AmoebaNet(3, CLASSES, 3, 32, "max")


IMAGE = onnx_nets.SMALL
TEXT = ((4, 6), "classes", VOCABULARY)
WHOLE = {
    "resnet18": Net(vision("resnet18"), IMAGE),
    "resnet50": Net(vision("resnet50"), IMAGE),
    "vgg11": Net(vision("vgg11"), (2, 3, 32, 32)),
    "alexnet": Net(vision("alexnet"), (2, 3, 63, 63)),
    "vit": Net(lambda: torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=CLASSES), (3, 3, 32, 32)),
    "inception_v3": Net(vision("inception_v3", init_weights=False, aux_logits=False), (4, 3, 75, 75)),
    "swin_t": Net(vision("swin_t"), (2, 3, 32, 32)),
    "einsum": Net(Einsum, (3, 5, 8)),
    "pixel_shuffle": Net(shuffled, (3, 3, 8, 8)),
    "unet": Net(UNet, (2, 3, 16, 16), "pixels"),
    "cosmoflow": Net(Cosmo, (2, 2, 8, 8, 8)),
    "frozen": Net(Frozen, (4, 3, 8, 8)),
    "in_place": Net(InPlace, (4, 3, 8, 8)),
    "twice": Net(Twice, (4, 8)),
    "vgg19": Net(vision("vgg19"), (2, 3, 32, 32)),
    "vit_b_16": Net(vision("vit_b_16", image_size=32), (2, 3, 32, 32)),
    "amoebanet": Net(amoebanet, (4, 3, 64, 64)),
    **{f"bert_{kind}": Net(lambda kind=kind: Bert(kind), *TEXT) for kind in ("add", "where", "fused")},
    "lstm": Net(lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), *TEXT),
    "lstm_plain": Net(lambda: Recurrent(nn.LSTM, bias=False), *TEXT),
    "gru": Net(lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), *TEXT),
    "gru_pair": Net(Pair, (3, 5, 8), "tokens"),
    "weight_norm": Net(lambda: normed(weight_norm), (4, 3, 8, 8)),
    "weight_norm_hook": Net(lambda: normed(nn.utils.weight_norm), (3, 3, 8, 8)),
    "spectral_norm": Net(lambda: normed(spectral_norm), (4, 3, 8, 8)),
    "spectral_norm_twice": onnx_nets.tokens(lambda: spectral_norm(nn.Linear(12, 12), n_power_iterations=2)),
    "weight_norm_tokens": onnx_nets.tokens(lambda: weight_norm(nn.Linear(12, 12))),
    "bicubic": onnx_nets.small(lambda: nn.Upsample(scale_factor=2, mode="bicubic")),
    "bicubic_corners": onnx_nets.small(lambda: nn.Upsample((5, 9), mode="bicubic", align_corners=True)),
    "zeroed": code(zeroed), "scaled": code(scaled), "collected": code(collected), "reshaped": code(reshaped),
    "rewritten": code(rewritten), "masked": code(masked),
    "same_tensor": code(lambda m, y: functional.relu_(functional.dropout(y, 0.5, training=False)) + y),
    "unbiased": onnx_nets.tokens(lambda: onnx_nets.Apply(unbiased, {"bias": torch.randn(12)})),
    "softplus_threshold": onnx_nets.small(lambda: nn.Softplus(beta=2.0, threshold=0.5)),
    "clamp_bounds": onnx_nets.small(lambda: onnx_nets.Apply(at_bounds, {"a": torch.zeros(6, 1, 1)}), as_made=True),
    "extractor": Net(Extractor, (4, 3, 8, 8)),
    "class_token": onnx_nets.tokens(lambda: onnx_nets.Apply(
        lambda x, t: torch.cat((t.expand(x.shape[0], -1).unsqueeze(1), x), 1)[:, :-1], {"token": torch.randn(12)})),
    "interleaved": onnx_nets.small(lambda: onnx_nets.Apply(lambda x: x.repeat_interleave(3, dim=2).repeat_interleave(2, -1), {})),
}
onnx_nets.NETS.update(WHOLE)
NETS = onnx_nets.NETS


def batch(name: str) -> Tuple[List[torch.Tensor], torch.Tensor]:
    """Inputs as forward takes them, and labels."""
    x, y = onnx_nets.batches(name, 1)
    if not name.startswith("bert"):
        return [x], y
    tokens = torch.arange(x.shape[1])
    lengths = torch.tensor([6, 4, 5, 3])[:, None]
    return [x, (tokens < lengths).long(), (tokens >= 2).long().expand(len(x), -1).contiguous()], y


__all__ = ["NETS", "VOCABULARY", "batch", "onnx_nets"]
