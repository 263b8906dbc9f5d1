"""Networks that captures are tried with: those of tools/onnx_nets.py, where each thing that an importer can get wrong
has a small one, and whole ones of torchvision and of the literature. At the smallest images that work."""
from __future__ import annotations

import os
import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional

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


IMAGE = onnx_nets.SMALL
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
}
onnx_nets.NETS.update(WHOLE)
NETS = onnx_nets.NETS
__all__ = ["NETS", "VOCABULARY", "onnx_nets"]
