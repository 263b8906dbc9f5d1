"""Small networks as both exporters of PyTorch write them, and what PyTorch trains of them: makes
tests/golden/onnx/kinds/ anew, for t634-kinds.

    .venv-export/bin/python tools/make_onnx_kinds.py

kinds.txt has a line for each file: its data, words for the reader, the losses of five steps of SGD in double, the
parameters with their shapes, the buffers. Notes of the exporter that nobody reads are left out of the files.
"""
import math
import os
import warnings

import numpy
import onnx
import torch
import torch.nn.functional as F
from torch import nn

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "onnx", "kinds")
NOTES = ("pkg.torch.export.ExportedProgram.graph_signature", "pkg.torch.onnx.name_scopes",
         "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.folded_from",
         "pkg.onnxscript.rewriter.rule_name", "pkg.torch.onnx.fx_node")


class Image(nn.Module):
    """A convolution, a normalisation or something else, a dense layer."""

    def __init__(self, middle=None, **more):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.n = middle or nn.Identity()
        self.fc = nn.Linear(64, 3)
        for name, value in more.items():
            if isinstance(value, nn.Parameter):
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, x):
        return self.fc(torch.relu(self.n(self.conv(x))).flatten(1))


class Buffers(Image):
    def forward(self, x):
        return super().forward((x - self.mean) / self.std)


class Scalars(Image):
    def forward(self, x):
        return self.fc((torch.relu(self.conv(x) * self.a + self.b) * self.k * 0.7 + 0.1).flatten(1))


class Tokens(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.n = middle
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.n(self.a(x)).mean(1))


class Attention(nn.Module):
    def __init__(self, mask=None):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.o = nn.Linear(8, 8, bias=False)
        self.pos = nn.Parameter(torch.randn(1, 5, 8))
        self.register_buffer("bias", mask)

    def forward(self, x):
        q, k, v = [t.view(4, 5, 4, 2).transpose(1, 2) for t in self.qkv(x + self.pos).split(8, 2)]
        if self.bias is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-2, -1) / math.sqrt(2) + self.bias).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(4, 5, 8)).mean(1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(8, 4)
        self.l = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.l(self.emb(ids))).mean(1))


class Turned(nn.Module):
    """A matrix that PyTorch has the other way round: (in, out)."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 6))
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(torch.tanh(x @ self.w).mean(1))


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


def mask(*shape):
    return torch.triu(torch.full(shape, -math.inf), 2)  # not causal: one token ahead is seen


NETS = {  # network, ways to export, words for files that do not say enough
    "instance": (lambda: Image(nn.InstanceNorm2d(4)), "dynamo script", ""),
    "batch": (lambda: Image(nn.BatchNorm2d(4, affine=False)), "raw train", ""),
    "group": (lambda: Image(nn.GroupNorm(2, 4, affine=False)), "dynamo set21 script", ""),
    "affine": (lambda: Image(nn.GroupNorm(2, 4)), "dynamo raw set21 train script", ""),
    "prelu": (lambda: Image(nn.PReLU(4)), "dynamo train script", ""),
    "slope": (lambda: Image(nn.PReLU()), "dynamo script", ""),
    "layer": (lambda: Tokens(nn.LayerNorm(8, elementwise_affine=False)), "train", ""),
    "dense": (lambda: Tokens(nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU())), "dynamo raw script", ""),
    "buffers": (lambda: Buffers(mean=torch.randn(2, 1, 1), std=torch.rand(2, 1, 1) + 1), "dynamo raw train",
                "freeze=mean,std"),
    "scalars": (lambda: Scalars(a=parameter(()), b=parameter(1), k=torch.tensor(0.3)), "dynamo raw train script",
                "freeze=k"),
    "causal": (Attention, "dynamo raw train script", ""),
    "mask": (lambda: Attention(mask(5, 5)), "dynamo train", ""),
    "bias": (lambda: Attention(torch.randn(4, 5, 5)), "dynamo train", "freeze=bias"),
    "encoder": (lambda: Tokens(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)), "dynamo raw script", ""),
    "tied": (Tied, "dynamo raw script", ""),
    "turned": (Turned, "dynamo script", ""),
    "folded": (lambda: Image(nn.BatchNorm2d(4)), "dynamo", ""),
}
WAYS = {"dynamo": {"dynamo": True}, "raw": {"dynamo": True, "optimize": False},
        "set21": {"dynamo": True, "opset_version": 21},
        "train": {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False},
        "script": {"dynamo": False, "training": torch.onnx.TrainingMode.EVAL}}


def strip(path):
    m = onnx.load(path)
    for holder in [m, m.graph, *m.graph.node, *m.graph.value_info, *m.graph.input, *m.graph.output]:
        kept = [p for p in holder.metadata_props if p.key in NOTES]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)
        if hasattr(holder, "doc_string"):
            holder.ClearField("doc_string")
    onnx.save(m, path)


def data_of(net):
    torch.manual_seed(3)
    if isinstance(net, Tied):
        return "ids", torch.randint(0, 8, (4, 5))
    return ("images", torch.randn(4, 2, 4, 4)) if hasattr(net, "conv") else ("tokens", torch.randn(4, 5, 8))


def made(name):
    torch.manual_seed(1)
    return NETS[name][0]()


def train(net, x, y):
    net = net.double().train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x.double() if x.is_floating_point() else x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parameters(net, path):
    """Of the names of a tied weight, the one that the file has."""
    there = {t.name for t in onnx.load(path).graph.initializer}
    found = {}
    for name, p in net.named_parameters(remove_duplicate=False):
        if id(p) not in found or (name in there and found[id(p)][0] not in there):
            found[id(p)] = (name, p)
    return found.values()


def shapes(named):
    return " ".join(f"{k}:{'x'.join(map(str, v.shape)) or '-'}" for k, v in sorted(named)) or "-"


def main():
    warnings.simplefilter("ignore")
    os.makedirs(FOLDER, exist_ok=True)
    y = torch.tensor([0, 2, 1, 2])
    numpy.save(os.path.join(FOLDER, "labels.npy"), y.numpy().astype(numpy.int32))
    lines = []
    for name, (_, ways, words) in NETS.items():
        kind, x = data_of(made(name))
        array = x.numpy()
        numpy.save(os.path.join(FOLDER, kind + ".npy"), array.astype(numpy.int32) if kind == "ids" else array)
        net = made(name)
        losses = " ".join(f"{v:.15g}" for v in train(net, x, y))
        buffers = [(k, v) for k, v in net.named_buffers() if "running" not in k and "batches" not in k]
        for way in ways.split():
            path = os.path.join(FOLDER, f"{name}-{way}.onnx")
            fresh = made(name).eval() if way == "script" else made(name).train()
            more = {"external_data": False, "verbose": False} if WAYS[way]["dynamo"] else {}
            torch.onnx.export(fresh, (x,), path, **WAYS[way], **more)
            strip(path)
            said = words if way in ("train", "script") else ""
            lines.append(f"{name}-{way}|{kind}|{said}|{losses}|{shapes(parameters(net, path))}|{shapes(buffers)}")
            print(lines[-1], flush=True)
    with open(os.path.join(FOLDER, "kinds.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
