"""Makes tests/golden/imports: small networks as both exporters of PyTorch write them, a batch, and the
losses of five steps of SGD that PyTorch has in double.

    python3 tools/make_imports.py [NAME...]        (needs torch, torchvision, onnx, numpy, safetensors)

Per network NAME: NAME-x.npy, NAME-y.npy, NAME.safetensors (losses), and NAME-EXPORTER.onnx with the
exporters raw (dynamo, optimize=False), dynamo and script, each in training mode. Files that no test
reads (encoder-*-random, sums-dynamo, sums-script, windows-script, ...) are not kept.
"""
import math
import os
import sys
import warnings

import numpy
import onnx
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.ops import StochasticDepth

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      "tests", "golden", "imports")
CLASSES, BATCH, FILE_BATCH, STEPS, LR = 5, 4, 2, 5, 0.1
WORDS, TOKENS, WIDTH = 11, 6, 8


class Logs(nn.Module):
    """Ends with logarithms of probabilities: its loss is the negative one of the label."""
    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(12, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        return F.log_softmax(self.head(torch.tanh(self.hidden(x.flatten(1)))), 1)


class Lone(nn.Module):
    """Layer normalisation without a bias, over features and over all of a sample."""
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.LayerNorm(6, bias=False)
        self.whole, self.head = nn.LayerNorm([3, 6], bias=False), nn.Linear(18, CLASSES)

    def forward(self, x):
        return self.head(self.whole(torch.relu(self.norm(self.first(x)))).flatten(1))


class Places(nn.Module):
    """Learned positions, all of which are taken."""
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(18, CLASSES)
        self.position = nn.Parameter(torch.randn(1, 3, 6))

    def forward(self, x):
        return self.head(torch.relu(self.first(x) + self.position[:, :x.size(1)]).flatten(1))


class Sums(nn.Module):
    """Weights that go through arithmetic before they meet data, buffers that do, too (exactly)."""
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, CLASSES)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))
        self.low, self.high = (nn.Parameter(torch.randn(4, 1, 1)) for _ in range(2))
        self.gain, self.gate = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.randn(1, 4, 1, 1))
        self.register_buffer("centre", torch.randn(3, 1, 1))
        self.register_buffer("spread", torch.tensor([3, 0.5625, 1.25]).view(3, 1, 1))

    def forward(self, x):
        x = self.conv((x - self.centre) / (self.spread + 1).sqrt())
        x = torch.tanh(x * torch.tanh(self.scale) + (self.high - self.low))
        x = x * (1 + self.gain) * torch.sigmoid(self.gate)
        return self.head(x.mean((2, 3)))


class Masks(nn.Module):
    """Random masks of all kinds; with all rates 0 there are none."""
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.row, self.all = StochasticDepth(rate, "row"), StochasticDepth(rate, "batch")
        self.plain, self.head = nn.Dropout(rate), nn.Linear(4, CLASSES)

    def path(self, x):
        """As older transformers have it."""
        if self.rate == 0:
            return x
        keep = 1 - self.rate
        random = (keep + torch.rand(x.shape[0], 1, 1, 1)).floor()
        return x.div(keep) * random

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = x + self.row(torch.tanh(self.second(x)))
        x = x + self.all(torch.tanh(self.second(x)))
        x = x + self.path(torch.tanh(self.second(x)))
        return self.head(self.plain(x.mean((2, 3))))


class Block(nn.Module):
    """nanoGPT's: one matrix for q, k and v, a buffer of ones below the diagonal, masked_fill."""
    def __init__(self, rate):
        super().__init__()
        self.attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(rate)
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.register_buffer("bias", torch.tril(torch.ones(TOKENS, TOKENS))
                             .view(1, 1, TOKENS, TOKENS))

    def forward(self, x):
        n, t, c = x.size()
        q, k, v = (part.view(n, t, 2, c // 2).transpose(1, 2)
                   for part in self.attn(self.ln1(x)).split(c, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = self.drop(F.softmax(att, dim=-1)) @ v
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(n, t, c)))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList([Block(rate) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(0, ids.size(1), dtype=torch.long))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    def __init__(self, rate, causal):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=rate, batch_first=True,
                                           norm_first=causal,
                                           activation="gelu" if causal else "relu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.causal, self.head = causal, nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)) if self.causal else None
        return self.head(self.encoder(x, mask=mask, is_causal=self.causal).mean(1))


class Functions(nn.Module):
    """Functions of one input, and a number less or divided by data."""
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(3, 4, 1) for _ in range(12))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        a = [part(x) for part in self.parts]
        y = F.hardswish(4 * a[0]) + F.hardsigmoid(4 * a[1]) + F.elu(a[2], 0.7) + F.celu(a[3], 1.3)
        y = y + F.selu(a[4]) + F.softplus(a[5]) + F.mish(a[6]) + torch.exp(-a[7].abs())
        y = y + torch.log(a[8] ** 2 + 1) + torch.sqrt(a[9].pow(2) + 0.5) - a[10] ** 3
        return self.head((y + (1 - a[11]) * (2 / (3 + a[11].abs()))).mean((2, 3)))


class Choices(nn.Module):
    """Masks of data and of a buffer, and the larger and smaller of two."""
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, CLASSES)
        self.register_buffer("seen", torch.tril(torch.ones(1, 1, 5, 5)), persistent=False)

    def forward(self, x):
        a, b = self.first(x), self.second(x)
        y = torch.maximum(a, b) - torch.minimum(a, 0.5 * b) + torch.where(a > b, a, 2 * b)
        y = y + a.masked_fill((a <= 0.1) | ~(b > 0), -0.3) + a * (b > 0.2).float()
        y = y.masked_fill(self.seen == 0, -math.inf).softmax(-1) * b
        return self.head(y.sum((2, 3)))


class Reductions(nn.Module):
    """Along channels, pixels and both, keeping axes or not."""
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        a, b = self.first(x), self.second(x)
        y = a / (1 + a.norm(dim=1, keepdim=True)) + b * b.pow(2).sum((1, 3), keepdim=True)
        y = y * torch.logsumexp(a, (2, 3), keepdim=True) + b.abs().sum(3).unsqueeze(3)
        return self.head(y.amax((2, 3)) - a.amin(3).amax(2) + torch.logsumexp(b, 3).sum(2))


class Windows(nn.Module):
    """A block of a Swin transformer of shifted windows, which are joined to the batch: a table of relative positions,
    lengths of queries (its second version); then products by letters, and pixels out of channels."""
    def __init__(self, side=6, window=3, width=8, heads=2):
        super().__init__()
        self.window, self.heads, self.shift = window, heads, 1
        self.patches, self.norm = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix, self.head = nn.Linear(width, width), nn.Linear(side * side * width, CLASSES)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij")).flatten(1)
        far = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("index", (far[0] * (2 * window - 1) + far[1]).flatten())
        part = torch.zeros(side, side)
        for i, rows in enumerate((slice(0, -window), slice(-window, -1), slice(-1, None))):
            for k, columns in enumerate((slice(0, -window), slice(-window, -1), slice(-1, None))):
                part[rows, columns] = 3 * i + k
        part = self.cut(part[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (part[:, None, :] != part[:, :, None]).float() * -100)

    def cut(self, x):
        n, h, w, c = x.shape
        x = x.view(n, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window ** 2, c)

    def attend(self, x):
        t, c = x.shape[1:]
        three = self.qkv(x).reshape(-1, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = three[0], three[1], three[2]
        scores = F.normalize(q, dim=-1) @ k.transpose(-2, -1)
        bias = self.table.index_select(0, self.index).view(t, t, -1).permute(2, 0, 1).unsqueeze(0)
        scores = (scores + bias).view(-1, self.mask.shape[0], self.heads, t, t)
        scores = (scores + self.mask[None, :, None]).view(-1, self.heads, t, t).softmax(-1)
        return self.proj((scores @ v).transpose(1, 2).reshape(-1, t, c))

    def forward(self, x):
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        n, h, w, c = x.shape
        y = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        y = self.attend(self.cut(y)).view(n, h // self.window, w // self.window, self.window, self.window, c)
        y = x + torch.roll(y.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c), (self.shift, self.shift), (1, 2))
        y = y.reshape(n, h * w, 2, c // 2)
        both = torch.einsum("nihd,njhd->nhij", y, y).softmax(-1)
        y = torch.einsum("nhij,njhd->nihd", both, y).reshape(n, h, w, c)
        return self.head(F.pixel_shuffle(self.mix(y).permute(0, 3, 1, 2), 2).flatten(1))


def convnext(rate):
    net = ConvNeXt([CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 1)], stochastic_depth_prob=rate,
                   num_classes=CLASSES)
    for name, value in net.named_parameters():
        if name.endswith("layer_scale"):
            nn.init.uniform_(value, 0.5, 1.5)
    return net


IMAGE, VECTORS = (3, 16, 16), (TOKENS, WIDTH)
NETS = {  # shape of a sample (None: ids), what makes the net of a rate, rate of the file with masks
    "convnext": (IMAGE, convnext, 0.5),
    "windows": ((3, 12, 12), lambda rate: Windows(), None),
    "logs": ((3, 4), lambda rate: Logs(), None),
    "lone": ((3, 4), lambda rate: Lone(), None),
    "places": ((3, 4), lambda rate: Places(), None),
    "sums": ((3, 5, 6), lambda rate: Sums(), None),
    "masks": ((3, 5, 6), Masks, 0.4),
    "gpt": (None, Gpt, 0.2),
    "encoder": (VECTORS, lambda rate: Encoder(rate, False), None),
    "causal": (VECTORS, lambda rate: Encoder(rate, True), None),
    "functions": ((3, 5, 5), lambda rate: Functions(), None),
    "choices": ((3, 5, 5), lambda rate: Choices(), None),
    "reductions": ((3, 5, 5), lambda rate: Reductions(), None),
}


def build(make, rate):
    torch.manual_seed(3)
    net = make(rate).float()
    for value in net.parameters():  # no bias and no scale is what it begins with by default
        value.data += 0.05 * torch.randn_like(value)
    return net.train()


def strip(path):
    """Takes away what tells of this machine, or is long: traces of calls, code."""
    m = onnx.load(path)
    for node in m.graph.node:
        node.doc_string = ""
        kept = [p for p in node.metadata_props
                if p.key in ("pkg.torch.onnx.name_scopes", "pkg.onnxscript.rewriter.rule_name")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(m, path)


def export(net, sample, path, kind):
    x = sample[:FILE_BATCH]
    if kind == "script":
        torch.onnx.export(net, (x,), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, opset_version=17)
    else:
        torch.onnx.export(net, (x,), path, dynamo=True, optimize=kind == "dynamo",
                          external_data=False, verbose=False)
    strip(path)


def losses(net, x, y):
    """Of five steps, in double, on one batch."""
    net = net.double()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    found = []
    for _ in range(STEPS):
        out = net(x if x.dtype == torch.int64 else x.double())
        loss = F.cross_entropy(out.flatten(0, 1) if out.dim() == 3 else out, y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return numpy.array(found)


def make(name):
    shape, net, rate = NETS[name]
    random = numpy.random.default_rng(5)
    if shape:
        x = random.standard_normal((BATCH, *shape)).astype(numpy.float32)
        y = random.integers(CLASSES, size=BATCH)
    else:
        x, y = (random.integers(WORDS, size=(BATCH, TOKENS)) for _ in range(2))
    file = os.path.join(FOLDER, name)
    numpy.save(f"{file}-x.npy", x if shape else x.astype(numpy.int32))
    numpy.save(f"{file}-y.npy", y.astype(numpy.int32))
    save_file({"losses": losses(build(net, 0.0), torch.tensor(x), torch.tensor(y))},
              f"{file}.safetensors")
    for kind in ("raw", "dynamo", "script"):
        export(build(net, 0.0), torch.tensor(x), f"{file}-{kind}.onnx", kind)
        if rate:
            export(build(net, rate), torch.tensor(x), f"{file}-{kind}-random.onnx", kind)
    print(name, flush=True)


def lacks():
    """Operators that are not supported, one of them several times."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    inner = helper.make_graph([helper.make_node("Relu", ["sum"], ["z"])], "inner", [],
                              [helper.make_tensor_value_info("z", kind, None)])
    nodes = [helper.make_node("Det", ["image"], [f"d{i}"], name=f"d{i}") for i in range(1, 5)]
    nodes += [helper.make_node("Sum", ["d1", "d2", "d3", "d4"], ["sum"]),
              helper.make_node("If", ["yes"], ["w"], name="choose", then_branch=inner,
                               else_branch=inner),
              helper.make_node("Add", ["w", "sum"], ["y"])]
    yes = onnx.numpy_helper.from_array(numpy.array(True), "yes")
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("image", kind, [2, 3, 3])],
                              [helper.make_tensor_value_info("y", kind, None)], [yes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
              os.path.join(FOLDER, "lacks.onnx"))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    lacks()
    for each in sys.argv[1:] or NETS:
        make(each)
