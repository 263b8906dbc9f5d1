"""Transformers: the language model of src/zoo/gpt.c, written out, and torchvision's vision
transformers, with the parameter names and shapes that src/zoo gives them."""
import numpy
import torch
import torchvision
from torch import nn


class Rows(nn.Module):
    """A row for each position, added to every sample."""

    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(1, rows, width))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for t in self.c_attn(x).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Perceptron(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class Gpt(nn.Module):
    def __init__(self, tokens, classes, layers, heads, width, dropout):
        super().__init__()
        self.tokens = tokens
        self.wte = nn.Embedding(classes, width)
        self.wpe = Rows(tokens, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, ids):
        x = self.drop(self.wpe(self.wte(ids.long())))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def example(self, batch):
        """Rows of ids, and what follows each of them."""
        ids = torch.randint(self.wte.num_embeddings, (batch, self.tokens + 1)).numpy()
        return ids[:, :-1].astype(numpy.int32), ids[:, 1:].astype(numpy.int32)

    @staticmethod
    def loss(output, y):
        return nn.functional.cross_entropy(output.transpose(1, 2), y.long())


SIZES = {"vit_b_16": (16, 12, 12, 768, 3072), "vit_b_32": (32, 12, 12, 768, 3072),
         "vit_l_16": (16, 24, 16, 1024, 4096)}


def unsettle(model):
    """Moves what starts at 0 or 1, where much goes unnoticed: norms, class tokens, a head of zeros,
    behind which no gradient passes."""
    for m in model.modules():
        if isinstance(m, nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.2)
    for name, p in model.named_parameters():
        if name in ("heads.head.weight", "class_token"):
            nn.init.normal_(p, 0, 0.1)
    return model


def make_gpt(name, tokens, o):
    layers, heads, width = (int(o[k]) for k in ("layers", "heads", "width"))
    return unsettle(Gpt(tokens[0], int(o["classes"]), layers, heads, width, float(o["dropout"])))


def make_vit(name, image, o):
    words = ("patch", "layers", "heads", "width", "mlp")
    patch, layers, heads, width, mlp = (int(o[k]) or size for k, size in zip(words, SIZES[name]))
    model = torchvision.models.VisionTransformer(image[1], patch, layers, heads, width, mlp,
                                                 dropout=float(o["dropout"]),
                                                 num_classes=int(o["classes"]))
    if image[0] != 3:
        model.conv_proj = nn.Conv2d(image[0], width, patch, patch)
    return unsettle(model)


VIT = {"image": "3x224x224", "classes": "1000", "dropout": "0", "patch": "0", "layers": "0",
       "heads": "0", "width": "0", "mlp": "0"}

FAMILIES = {"gpt": ({"tokens": "128", "classes": "50257", "layers": "12", "heads": "12",
                     "width": "768", "dropout": "0.1"}, make_gpt),
            **{name: (VIT, make_vit) for name in SIZES}}

# model, options, batch, devices
CASES = [
    ("gpt", "tokens=9 classes=23 layers=2 heads=3 width=24 dropout=0", 3, ("cpu", "ref64")),
    ("gpt", "tokens=150 classes=67 layers=1 heads=2 width=32 dropout=0", 2, ("cpu", "ref64")),
    ("vit_b_16", "image=3x32x32 classes=10 patch=8 layers=2 heads=3 width=24 mlp=48", 3,
     ("cpu", "ref64")),
    ("vit_b_32", "image=1x64x64 classes=7 layers=1 heads=2 width=32 mlp=40", 2, ("cpu", "ref64")),
    ("vit_l_16", "image=3x48x48 classes=5 layers=2 heads=2 width=24 mlp=40", 2, ("cpu", "ref64")),
]

CURVES = [
    ("gpt", "tokens=9 classes=23 layers=2 heads=3 width=24 dropout=0", 3,
     {"sgd": 1e-2, "adam": 1e-3}),
    ("vit_b_16", "image=3x32x32 classes=10 patch=8 layers=2 heads=3 width=24 mlp=48", 3,
     {"sgd": 1e-2, "adam": 1e-3}),
    ("vit_b_32", "image=3x64x64 classes=10 heads=3 width=24 mlp=48", 3,
     {"sgd": 1e-2, "adam": 3e-4}),
    ("vit_l_16", "image=3x48x48 classes=10 heads=4 width=32 mlp=64", 3,
     {"sgd": 1e-2, "adam": 1e-3}),
]
