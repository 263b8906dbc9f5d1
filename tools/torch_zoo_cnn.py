"""AlexNet, Inception v3 (both torchvision's own) and AmoebaNet-D in PyTorch: see torch_models.py."""
import warnings

import torch
import torchvision
from torch import nn


class AlexNet(torchvision.models.AlexNet):
    def __init__(self, channels, classes, hidden, dropout):
        with torch.device("meta"):  # torchvision's own head is thrown away
            super().__init__()
        self.to_empty(device="cpu")
        if channels != 3:
            self.features[0] = nn.Conv2d(channels, 64, 11, 4, 2)
        for m in self.features:
            if hasattr(m, "reset_parameters"):
                m.reset_parameters()
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 36, hidden), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(True), nn.Linear(hidden, classes))


class Inception(torchvision.models.Inception3):
    """The loss is main + 0.4 auxiliary, as in torchvision's references/classification."""

    restless = True

    def __init__(self, channels, classes, aux, dropout):
        with warnings.catch_warnings():  # that starting weights will change one day
            warnings.simplefilter("ignore")
            super().__init__(num_classes=classes, aux_logits=aux, dropout=dropout,
                             init_weights=False)
        if channels != 3:
            self.Conv2d_1a_3x3 = torchvision.models.inception.BasicConv2d(
                channels, 32, kernel_size=3, stride=2)

    def loss(self, output, y):
        if not self.aux_logits:
            return nn.functional.cross_entropy(output, y.long())
        main, aux = (nn.functional.cross_entropy(x, y.long()) for x in output)
        return main + 0.4 * aux


# ---- AmoebaNet-D ----

class Convs(nn.Module):
    """relu, conv, bn, once per (cin, cout, kernel, stride)."""

    def __init__(self, *layers):
        super().__init__()
        self.count = len(layers)
        for i, (cin, cout, kernel, stride) in enumerate(layers, 1):
            padding = tuple(k // 2 for k in kernel)
            setattr(self, f"conv{i}", nn.Conv2d(cin, cout, kernel, stride, padding, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(cout))

    def forward(self, x):
        for i in range(1, self.count + 1):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x.relu()))
        return x


class FactorizedReduce(nn.Module):
    """Two 1x1 convolutions at stride 2, the second of the image shifted by (1, 1)."""

    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout // 2, 1, 2, bias=False)
        self.conv2 = nn.Conv2d(cin, cout // 2, 1, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)

    def forward(self, x):
        x = x.relu()
        shifted = nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.bn1(torch.cat([self.conv1(x), self.conv2(shifted)], 1))


def make_operation(name, c, stride, pool):
    if name == "none":
        return nn.Identity()
    if name == "max3" and pool == "max":
        return nn.MaxPool2d(3, stride, 1)
    if name in ("max3", "avg3"):
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name == "max2":
        return nn.MaxPool2d(2, stride)
    inside = c // 4
    return Convs(*{"1x1": [(c, c, (1, 1), stride)],
                   "3x3": [(c, inside, (1, 1), 1), (inside, inside, (3, 3), stride),
                           (inside, c, (1, 1), 1)],
                   "1x7": [(c, inside, (1, 1), 1), (inside, inside, (1, 7), (1, stride)),
                           (inside, inside, (7, 1), (stride, 1)), (inside, c, (1, 1), 1)]}[name])


# (state, operation) in pairs that are summed, and the states that make the output
NORMAL = ("1 1x1, 1 max3, 1 none, 0 1x7, 0 1x1, 0 1x7, 2 max3, 2 none, 1 avg3, 5 1x1", (0, 3, 4, 6))
REDUCTION = ("0 max2, 0 max3, 2 none, 1 3x3, 2 1x7, 2 max3, 3 none, 1 max2, 2 avg3, 3 1x1",
             (4, 5, 6))


class Cell(nn.Module):
    def __init__(self, older, last, c, reduces, reduced, pool):
        """older, last: channels of the two cells before; reduced: the last one was a reduction."""
        super().__init__()
        steps, self.out = REDUCTION if reduces else NORMAL
        self.reduce1 = Convs((last, c, (1, 1), 1))
        self.reduce2 = nn.Identity()
        if reduced:
            self.reduce2 = FactorizedReduce(older, c)
        elif older != c:
            self.reduce2 = Convs((older, c, (1, 1), 1))
        self.states, self.ops = [], nn.ModuleList()
        for step in steps.split(", "):
            state, name = step.split()
            self.states.append(int(state))
            stride = 2 if reduces and int(state) < 2 else 1
            self.ops.append(make_operation(name, c, stride, pool))

    def forward(self, older, last):
        states = [self.reduce1(last), self.reduce2(older)]
        for i in range(0, len(self.ops), 2):
            states.append(self.ops[i](states[self.states[i]]) +
                          self.ops[i + 1](states[self.states[i + 1]]))
        return torch.cat([states[i] for i in self.out], 1)


class AmoebaNet(nn.Module):
    restless = True

    def __init__(self, channels, classes, layers, filters, pool):
        super().__init__()
        c = older = last = filters // 4
        reduced = False
        self.stem = Convs((channels, c, (3, 3), 2))
        self.cells = nn.ModuleList()
        for reduces in [True] + 3 * ([True] + layers // 3 * [False]):
            c *= 2 if reduces else 1
            self.cells.append(Cell(older, last, c, reduces, reduced, pool))
            older, last, reduced = last, c * len(self.cells[-1].out), reduces
        self.fc = nn.Linear(last, classes)

    def forward(self, x):
        older = last = self.stem(x)
        for cell in self.cells:
            older, last = last, cell(older, last)
        return self.fc(last.mean((2, 3)))


def make_alexnet(name, image, o):
    return AlexNet(image[0], int(o["classes"]), int(o["hidden"]), float(o["dropout"]))


def make_inception(name, image, o):
    aux = o["aux"] in ("1", "yes", "true", "on")
    return Inception(image[0], int(o["classes"]), aux, float(o["dropout"]))


def make_amoebanet(name, image, o):
    return AmoebaNet(image[0], int(o["classes"]), int(o["layers"]), int(o["filters"]), o["pool"])


FAMILIES = {
    "alexnet": ({"image": "3x224x224", "classes": "1000", "dropout": "0.5", "hidden": "4096"},
                make_alexnet),
    "inception-v3": ({"image": "3x299x299", "classes": "1000", "aux": "1", "dropout": "0.5"},
                     make_inception),
    "amoebanet-d": ({"image": "3x224x224", "classes": "1000", "layers": "18", "filters": "208",
                     "pool": "max"}, make_amoebanet),
}

CASES = [
    ("alexnet", "image=3x63x95 classes=10 hidden=64 dropout=0", 2, ("cpu", "winograd", "ref64")),
    ("alexnet", "image=1x224x224 classes=10 hidden=64 dropout=0", 2, ("cpu", "winograd")),
    ("inception-v3", "image=3x75x91 classes=10 dropout=0 aux=0", 4, ("cpu", "winograd", "ref64")),
    # With two losses images must have 299 pixels: then some activation of every batch is near a kink in float.
    # Its 20 steps, below, are compared in float.
    ("inception-v3", "classes=10 dropout=0", 2, ("ref64",)),
    ("amoebanet-d", "image=3x64x64 classes=10 layers=3 filters=56 pool=avg", 8,
     ("cpu", "winograd", "ref64")),
    ("amoebanet-d", "image=3x64x32 classes=10 layers=6 filters=32", 4,
     ("cpu", "winograd", "ref64")),
]

CURVES = [
    ("alexnet", "image=3x63x95 classes=10 hidden=64 dropout=0", 2,
     {"sgd": 1e-2, "adam": 1e-3}),
    ("inception-v3", "image=3x107x107 classes=10 dropout=0 aux=0", 4, {"sgd": 1e-4, "adam": 3e-6}),
    ("inception-v3", "classes=10 dropout=0", 2, {"sgd": 3e-5, "adam": 3e-6}),
    ("amoebanet-d", "image=3x64x64 classes=10 layers=3 filters=32 pool=avg", 8,
     {"sgd": 1e-3, "adam": 3e-5}),
]
