"""The zoo's networks in PyTorch, with the parameter names that src/zoo gives them.

build("resnet-cifar", "depth=110 version=2") returns an nn.Module and the shape of one sample;
model names, options and defaults are those of `megalith list models`. ResNets and VGGs for
ImageNet are torchvision's own. A family lives here or in a file torch_zoo_*.py of its own, which has
FAMILIES = {family: (defaults, maker)}; maker(name, image, options) returns the module, and
CASES = [(model, options, batch, devices)] and CURVES = [(model, options, batch, {optimizer: rate})]
for torch_compare.py: single steps and trainings.

A module may have
    example(batch) -> x, y      a random batch (numpy), where it is not images and one class each
    loss(output, y)             where it is not cross entropy
    restless = True             where trainings need calm() of torch_compare.py
"""
import glob
import importlib
import os

import numpy
import torch
import torchvision
from torch import nn

COMMON = {"resnet": {"image": "3x224x224", "classes": "1000"},
          "vgg": {"image": "3x224x224", "classes": "1000", "bn": "0", "dropout": "0.5",
                  "hidden": "4096"},
          "resnet-cifar": {"image": "3x32x32", "classes": "10", "depth": "20", "version": "1",
                           "width": "16"},
          "cnn": {"image": "1x28x28", "classes": "10", "width": "16", "dropout": "0.25"}}


class PopulationNorm(nn.BatchNorm2d):
    """Batch norm whose running variance takes the population variance, as Keras has it: the step
    that PyTorch made with the unbiased one is scaled back, which costs nothing per pixel."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        mean, var = self.running_mean.clone(), self.running_var.clone()
        y = nn.functional.batch_norm(x, mean, var, self.weight, self.bias, True, self.momentum,
                                     self.eps)
        with torch.no_grad():
            kept = (1 - self.momentum) * self.running_var
            count = x.numel() / x.shape[1]
            self.running_var.copy_(kept + (var - kept) * (count - 1) / count)
            self.running_mean.copy_(mean)
        return y


class BasicBlock(nn.Module):
    """Version 1: conv, bn, relu, conv, bn, and the sum rectified."""

    def __init__(self, cin, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or cin != width:
            self.downsample = nn.Sequential(nn.Conv2d(cin, width, 1, stride, bias=False),
                                            nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class PreBlock(nn.Module):
    """Version 2: three times bn, relu, conv; the network's first block begins with its conv."""

    def __init__(self, cin, inside, outside, stride, first, project):
        super().__init__()
        self.bn1 = None if first else PopulationNorm(cin, 1e-3, 0.01)
        self.conv1 = nn.Conv2d(cin, inside, 1, stride)
        self.bn2 = PopulationNorm(inside, 1e-3, 0.01)
        self.conv2 = nn.Conv2d(inside, inside, 3, 1, 1)
        self.bn3 = PopulationNorm(inside, 1e-3, 0.01)
        self.conv3 = nn.Conv2d(inside, outside, 1)
        self.downsample = nn.Conv2d(cin, outside, 1, stride) if project else None

    def forward(self, x):
        y = x if self.bn1 is None else self.bn1(x).relu()
        y = self.conv1(y)
        y = self.conv2(self.bn2(y).relu())
        y = self.conv3(self.bn3(y).relu())
        return (x if self.downsample is None else self.downsample(x)) + y


class ResNetCifar(nn.Module):
    def __init__(self, channels, classes, depth, version, width):
        super().__init__()
        convs = 3 * (version + 1)
        if depth < convs + 2 or (depth - 2) % convs:
            raise ValueError(f"depth={depth}, but version {version} has {convs}n+2 layers")
        blocks = (depth - 2) // convs
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=version == 2)
        self.bn1 = nn.BatchNorm2d(width) if version == 1 else PopulationNorm(width, 1e-3, 0.01)
        group = self.basic if version == 1 else self.bottlenecks
        cin = width
        for s in range(3):
            layers, cin = group(s, cin, width, blocks)
            setattr(self, f"layer{s + 1}", nn.Sequential(*layers))
        self.bn2 = None if version == 1 else PopulationNorm(cin, 1e-3, 0.01)
        self.fc = nn.Linear(cin, classes)

    @staticmethod
    def basic(s, cin, width, blocks):
        outside = width << s
        layers = [BasicBlock(cin, outside, 2 if s else 1)]
        layers += [BasicBlock(outside, outside, 1) for _ in range(blocks - 1)]
        return layers, outside

    @staticmethod
    def bottlenecks(s, cin, width, blocks):
        inside, outside = (cin, 2 * cin) if s else (width, 4 * width)
        layers = [PreBlock(cin, inside, outside, 2 if s else 1, s == 0, True)]
        layers += [PreBlock(outside, inside, outside, 1, False, False) for _ in range(blocks - 1)]
        return layers, outside

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        if self.bn2 is not None:
            x = self.bn2(x).relu()
        return self.fc(x.mean((2, 3)))


class Cnn(nn.Module):
    def __init__(self, image, classes, width, dropout):
        super().__init__()
        channels, height, across = image
        for i, (cin, cout) in enumerate([(channels, width), (width, width), (width, 2 * width),
                                         (2 * width, 2 * width)], 1):
            setattr(self, f"conv{i}", nn.Conv2d(cin, cout, 3, 1, 1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(cout))
        pixels = (height // 2 // 2) * (across // 2 // 2)
        self.fc1 = nn.Linear(2 * width * pixels, 8 * width)
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = nn.functional.max_pool2d(self.bn2(self.conv2(x)).relu(), 2)
        x = self.bn3(self.conv3(x)).relu()
        x = nn.functional.max_pool2d(self.bn4(self.conv4(x)).relu(), 2)
        return self.fc2(self.dropout(self.fc1(x.flatten(1)).relu()))


def make_resnet(name, image, o):
    model = torchvision.models.get_model(name, num_classes=int(o["classes"]))
    if image[0] != 3:
        model.conv1 = nn.Conv2d(image[0], 64, 7, 2, 3, bias=False)
    model.restless = isinstance(model.layer1[0], torchvision.models.resnet.Bottleneck)
    return model


def make_vgg(name, image, o):
    """Without adaptive pooling: the first dense layer fits the image, as in src/zoo/vgg.c."""
    hidden, classes, rate = int(o["hidden"]), int(o["classes"]), float(o["dropout"])
    bn = o["bn"] in ("1", "yes", "true", "on")
    with torch.device("meta"):  # torchvision's own head is thrown away
        shape = torchvision.models.get_model(name + "_bn" if bn else name)
    model = shape.to_empty(device="cpu")
    if image[0] != 3:
        model.features[0] = nn.Conv2d(image[0], 64, 3, 1, 1)
    for m in model.features:
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
    model.avgpool = nn.Identity()
    pixels = (image[1] >> 5) * (image[2] >> 5)
    model.classifier = nn.Sequential(
        nn.Linear(512 * pixels, hidden), nn.ReLU(True), nn.Dropout(rate),
        nn.Linear(hidden, hidden), nn.ReLU(True), nn.Dropout(rate), nn.Linear(hidden, classes))
    return model


def make_resnet_cifar(name, image, o):
    depth, version, width = (int(o[k]) for k in ("depth", "version", "width"))
    return ResNetCifar(image[0], int(o["classes"]), depth, version, width)


def make_cnn(name, image, o):
    return Cnn(image, int(o["classes"]), int(o["width"]), float(o["dropout"]))


# model, options, batch, devices
CASES = [
    ("cnn", "dropout=0", 4, ("cpu", "winograd", "ref64")),
    ("resnet-cifar", "", 4, ("cpu", "winograd", "ref64")),
    ("resnet-cifar", "version=2 image=1x28x28", 4, ("cpu", "winograd", "ref64")),
    ("resnet-cifar", "depth=110 version=2", 2, ("cpu", "winograd", "ref64")),
    ("resnet18", "image=3x64x64 classes=10", 4, ("cpu", "winograd", "ref64")),
    ("resnet34", "image=3x64x64 classes=10", 4, ("cpu", "winograd")),
    ("resnet34", "image=3x32x64 classes=10", 3, ("ref64",)),
    ("resnet50", "image=3x64x64 classes=10", 4, ("cpu", "winograd")),
    ("resnet50", "image=3x32x64 classes=10", 3, ("ref64",)),
    ("resnet101", "image=3x64x64 classes=10", 4, ("cpu", "winograd")),
    ("resnet101", "image=3x32x64 classes=10", 3, ("ref64",)),
    ("resnet152", "image=3x64x64 classes=10", 4, ("cpu", "winograd")),
    ("resnet152", "image=3x32x64 classes=10", 3, ("ref64",)),
    ("vgg11", "image=3x32x32 classes=10 hidden=64 dropout=0", 4, ("cpu", "winograd", "ref64")),
    ("vgg13", "image=3x32x32 classes=10 hidden=64 dropout=0", 3, ("cpu", "ref64")),
    ("vgg16", "image=3x32x32 classes=10 hidden=64 dropout=0", 3, ("cpu", "ref64")),
    ("vgg19", "image=3x32x32 classes=10 hidden=64 dropout=0", 3, ("cpu", "ref64")),
    ("vgg11", "image=3x64x32 classes=10 hidden=64 dropout=0 bn=1", 4, ("cpu", "winograd")),
    ("vgg11", "image=3x32x32 classes=10 hidden=64 dropout=0 bn=1", 3, ("ref64",)),
]

CURVES = [
    ("cnn", "dropout=0", 4, {"sgd": 3e-3, "adam": 1e-3}),
    ("resnet-cifar", "depth=8 image=3x16x16", 8, {"sgd": 1e-2, "adam": 3e-4}),
    ("resnet-cifar", "depth=11 version=2 image=1x16x16", 8,
     {"sgd": 1e-2, "adam": 2e-4}),
    ("resnet18", "image=3x64x64 classes=10", 8, {"sgd": 3e-5, "adam": 1e-5}),
    ("resnet34", "image=3x64x64 classes=10", 8, {"sgd": 1e-6, "adam": 1e-6}),
    ("resnet50", "image=3x64x64 classes=10", 8, {"sgd": 3e-5, "adam": 3e-6}),
    ("resnet101", "image=3x64x64 classes=10", 4, {"sgd": 1e-5, "adam": 1e-6}),
    ("resnet152", "image=3x64x64 classes=10", 4, {"sgd": 1e-5, "adam": 1e-6}),
    ("vgg11", "image=3x32x32 classes=10 hidden=64 dropout=0", 4,
     {"sgd": 1e-2, "adam": 3e-3}),
    ("vgg13", "image=3x32x32 classes=10 hidden=64 dropout=0", 4,
     {"sgd": 1e-2, "adam": 3e-4}),
    ("vgg16", "image=3x32x32 classes=10 hidden=64 dropout=0", 4,
     {"sgd": 1e-2, "adam": 2e-4}),
    ("vgg19", "image=3x32x32 classes=10 hidden=64 dropout=0", 4,
     {"sgd": 1e-2, "adam": 3e-4}),
]

MAKERS = {"resnet-cifar": make_resnet_cifar, "cnn": make_cnn, "resnet": make_resnet,
          "vgg": make_vgg}

for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "torch_zoo_*.py"))):
    more = importlib.import_module(os.path.basename(path)[:-3])
    CASES += more.CASES
    CURVES += more.CURVES
    for known, (defaults, maker) in more.FAMILIES.items():
        COMMON[known], MAKERS[known] = defaults, maker


def family(name):
    found = name if name in MAKERS else name.rstrip("0123456789")
    if found not in MAKERS:
        raise ValueError(f"unknown model '{name}'; known families: {' '.join(MAKERS)}")
    return found


def build(name, options=""):
    """The network in float, in training mode, and the shape of one sample, (c, h, w)."""
    o = dict(COMMON[family(name)])
    for word in options.split():
        key, _, value = word.partition("=")
        if key not in o:
            raise ValueError(f"{name}: unknown word '{key}'; known: {' '.join(o)}")
        o[key] = value
    image = tuple(int(extent) for extent in o.get("image", o.get("tokens")).split("x"))
    return MAKERS[family(name)](name, image, o).train(), image


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def classes(model):
    return [m for m in model.modules() if isinstance(m, nn.Linear)][-1].out_features


def example(model, image, batch):
    """A random batch and its labels, drawn by torch's generator."""
    if hasattr(model, "example"):
        return model.example(batch)
    y = torch.randint(classes(model), (batch,)).numpy().astype(numpy.int32)
    return torch.randn(batch, *image).numpy(), y


def loss(model, output, y):
    if hasattr(model, "loss"):
        return model.loss(output, y)
    return nn.functional.cross_entropy(output, y.long())
