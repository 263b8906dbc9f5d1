"""U-Nets, ReLayNet and CosmoFlow in PyTorch: labels per pixel, real targets.

Written from the papers and from what src/zoo says of them, with its parameter names.
"""
import numpy
import torch
from torch import nn
from torch.nn import functional as F


def flag(word):
    return word in ("1", "yes", "true", "on")


def double_conv(space, channels, pad, bn):
    """conv, [bn,] relu, twice, with modules conv1 bn1 relu1 conv2 bn2 relu2."""
    conv = nn.Conv2d if space == 2 else nn.Conv3d
    norm = nn.BatchNorm2d if space == 2 else nn.BatchNorm3d
    m = nn.Sequential()
    for i in (1, 2):
        m.add_module(f"conv{i}", conv(channels[i - 1], channels[i], 3, padding=pad, bias=not bn))
        if bn:
            m.add_module(f"bn{i}", norm(channels[i]))
        m.add_module(f"relu{i}", nn.ReLU())
    return m


class Pixels(nn.Module):
    """Has a class for each pixel."""

    def example(self, batch):
        x = torch.randn(batch, *self.image)
        with torch.no_grad():
            extents = self.eval()(x[:1]).shape[2:]
        self.train()
        y = torch.randint(self.classes, (batch, *extents))
        return x.numpy(), y.numpy().astype(numpy.int32)


class UNet(Pixels):
    def __init__(self, space, image, o):
        super().__init__()
        self.image, self.classes = image, int(o["classes"])
        self.depth, width, self.up = int(o["depth"]), int(o["width"]), o["up"]
        pad, bn = 0 if flag(o["crop"]) else 1, flag(o["bn"])
        conv = nn.Conv2d if space == 2 else nn.Conv3d
        wide = [width << s for s in range(self.depth + 1)]
        cin = image[0]
        for s, w in enumerate(wide):
            name = f"enc{s + 1}" if s < self.depth else "mid"
            first = w if space == 2 else w // 2
            setattr(self, name, double_conv(space, (cin, first, w), pad, bn))
            cin = w
        for s in reversed(range(self.depth)):
            w = wide[s]
            if self.up != "transpose":
                up, risen = conv(2 * w, w, 1), w
            elif space == 2:
                up, risen = nn.ConvTranspose2d(2 * w, w, 2, 2), w
            else:
                up, risen = nn.ConvTranspose3d(2 * w, 2 * w, 2, 2, bias=False), 2 * w
            dec = double_conv(space, (w + risen, w, w), pad, bn)
            dec.add_module("up", up)
            setattr(self, f"dec{s + 1}", dec)
        self.head = conv(width, self.classes, 1)

    @staticmethod
    def twice(block, x):
        for name, m in block.named_children():
            x = x if name == "up" else m(x)
        return x

    def forward(self, x):
        pool = F.max_pool2d if len(self.image) == 3 else F.max_pool3d
        skips = []
        for s in range(self.depth):
            skips.append(self.twice(getattr(self, f"enc{s + 1}"), x))
            x = pool(skips[-1], 2)
        x = self.twice(self.mid, x)
        for s in reversed(range(self.depth)):
            dec = getattr(self, f"dec{s + 1}")
            if self.up == "transpose":
                x = dec.up(x)
            else:
                x = dec.up(F.interpolate(x, scale_factor=2, mode=self.up))
            skip = skips[s]
            for axis in range(2, x.dim()):
                cut = (skip.shape[axis] - x.shape[axis]) // 2
                skip = skip.narrow(axis, cut, x.shape[axis])
            x = self.twice(dec, torch.cat((skip, x), 1))
        return self.head(x)


class Block(nn.Module):
    """Of ReLayNet: conv 7x3, bn, prelu."""

    def __init__(self, cin, width):
        super().__init__()
        self.conv = nn.Conv2d(cin, width, (7, 3), padding=(3, 1))
        self.batchnorm = nn.BatchNorm2d(width)
        self.prelu = nn.PReLU()

    def forward(self, x):
        return self.prelu(self.batchnorm(self.conv(x)))


class ReLayNet(Pixels):
    def __init__(self, image, o):
        super().__init__()
        self.image, self.classes, width = image, int(o["classes"]), int(o["width"])
        for i in (1, 2, 3):
            setattr(self, f"encode{i}", Block(image[0] if i == 1 else width, width))
        self.bottleneck = Block(width, width)
        for i in (1, 2, 3):
            setattr(self, f"decode{i}", Block(2 * width, width))
        self.classifier = nn.Module()
        self.classifier.conv = nn.Conv2d(width, self.classes, 1)

    def forward(self, x):
        kept = []
        for encode in (self.encode1, self.encode2, self.encode3):
            skip = encode(x)
            x, places = F.max_pool2d(skip, 2, return_indices=True)
            kept.append((skip, places))
        x = self.bottleneck(x)
        for decode in (self.decode1, self.decode2, self.decode3):
            skip, places = kept.pop()
            x = F.max_unpool2d(x, places, 2, output_size=skip.shape[2:])
            x = decode(torch.cat((skip, x), 1))
        return self.classifier.conv(x)


class CosmoFlow(nn.Module):
    FILTERS = (16, 32, 64, 128, 256, 256, 128)
    KERNELS = (3, 3, 3, 3, 2, 2, 2)
    STRIDED = {"128": -1, "256": 3, "512": 2}

    def __init__(self, image, o):
        super().__init__()
        bias, self.image, self.pools = flag(o["bias"]), image, int(o["pools"])
        self.padded = o["form"] != "512"
        cin = image[0]
        for i, (filters, kernel) in enumerate(zip(self.FILTERS, self.KERNELS)):
            stride = 2 if self.STRIDED[o["form"]] == i else 1
            setattr(self, f"conv{i + 1}", nn.Conv3d(cin, filters, kernel, stride, bias=bias))
            cin = filters
        with torch.no_grad():
            voxels = self.features(torch.zeros(1, *image)).shape[1]
        self.fc1 = nn.Linear(voxels, 2048, bias)
        self.fc2 = nn.Linear(2048, 256, bias)
        self.fc3 = nn.Linear(256, int(o["targets"]), bias)
        self.dropout = nn.Dropout(float(o["dropout"]))

    def features(self, x):
        for i, kernel in enumerate(self.KERNELS):
            if self.padded and i + 1 < len(self.KERNELS):
                x = F.pad(x, (1 if kernel == 3 else 0, 1) * 3)
            x = F.leaky_relu(getattr(self, f"conv{i + 1}")(x), 0.2)
            if i < self.pools:
                x = F.avg_pool3d(x, 2)
        return x.flatten(1)

    def forward(self, x):
        x = self.dropout(F.leaky_relu(self.fc1(self.features(x)), 0.2))
        x = self.dropout(F.leaky_relu(self.fc2(x), 0.2))
        return self.fc3(x)

    def example(self, batch):
        return (torch.randn(batch, *self.image).numpy(),
                torch.randn(batch, self.fc3.out_features).numpy())

    @staticmethod
    def loss(output, y):
        return F.mse_loss(output, y)


def unet_defaults(image, depth, bn):
    return {"image": image, "classes": "2", "width": "64", "depth": depth, "bn": bn, "crop": "0",
            "up": "transpose"}


FAMILIES = {
    "unet": (unet_defaults("3x512x512", "4", "0"), lambda name, image, o: UNet(2, image, o)),
    "unet3d": (unet_defaults("1x64x64x64", "3", "1"), lambda name, image, o: UNet(3, image, o)),
    "relaynet": ({"image": "1x512x64", "classes": "10", "width": "64"},
                 lambda name, image, o: ReLayNet(image, o)),
    "cosmoflow": ({"image": "4x128x128x128", "targets": "4", "form": "128", "pools": "6",
                   "bias": "1", "dropout": "0"}, lambda name, image, o: CosmoFlow(image, o)),
}

CASES = [
    ("unet", "image=3x48x80 width=8", 2, ("cpu", "winograd", "ref64")),
    ("unet", "image=1x44x60 width=12 depth=2 crop=1 classes=3", 2, ("cpu", "winograd", "ref64")),
    ("unet", "image=2x40x24 width=16 depth=3 bn=1 up=nearest", 2, ("cpu", "ref64")),
    ("unet", "image=3x20x36 width=8 depth=2 bn=1 up=bilinear", 3, ("cpu", "ref64")),
    ("unet3d", "image=1x16x24x8 width=8", 2, ("cpu", "ref64")),
    ("unet3d", "image=2x44x52x44 width=4 depth=2 crop=1 bn=0 classes=3", 1, ("cpu", "ref64")),
    ("unet3d", "image=1x12x20x8 width=8 depth=2 up=trilinear", 2, ("cpu", "ref64")),
    ("relaynet", "image=1x40x29 width=16", 2, ("cpu", "ref64")),
    ("relaynet", "image=3x35x18 classes=2 width=8", 3, ("cpu", "ref64")),
    ("cosmoflow", "image=4x18x21x16 pools=3", 3, ("cpu", "ref64")),
    ("cosmoflow", "image=4x37x32x33 form=256 pools=3 bias=0", 2, ("ref64",)),
    ("cosmoflow", "image=4x21x20x19 form=256 pools=2 bias=0", 2, ("cpu",)),
    ("cosmoflow", "image=3x58x60x61 form=512 pools=2 targets=3", 2, ("cpu", "ref64")),
]

CURVES = [
    ("unet", "image=3x48x80 width=8 bn=1", 2, {"sgd": 1e-2, "adam": 3e-4}),
    ("unet3d", "image=1x16x24x8 width=8", 2, {"sgd": 1e-2, "adam": 3e-4}),
    ("relaynet", "image=1x40x29 width=16", 2, {"sgd": 1e-2, "adam": 3e-4}),
    ("cosmoflow", "image=4x18x21x16 pools=3", 3, {"sgd": 1e-2, "adam": 1e-3}),
]
