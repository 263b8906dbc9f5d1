"""Makes tests/golden/torch: a network as PyTorch exports it, a state dict with other numbers than the
file has, a batch, and what PyTorch makes of both in double. Needs torch, onnx, safetensors.

    tokens.onnx          ids -> an embedding, a layer and a batch normalisation, a dense layer, a tied head
    state.safetensors    by save_model: of the tied weights one is written, the other is noted
    x.npy, y.npy         ids (int64) and labels
    want.safetensors     logits (n, tokens, classes) for inference; "file." and "state.": loss, gradients,
                         running statistics with the file's weights and with those of the state dict
"""
import copy
import os

import numpy
import onnx
import torch
from safetensors.torch import save_file, save_model
from torch import nn
from torch.nn import functional

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "golden", "torch")
IDS, FEATURES, TOKENS = 7, 4, 3


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.wte, self.norm = nn.Embedding(IDS, FEATURES), nn.LayerNorm(FEATURES)
        self.fc, self.bn = nn.Linear(FEATURES, FEATURES), nn.BatchNorm1d(FEATURES)
        self.head = nn.Linear(FEATURES, IDS, bias=False)
        self.head.weight = self.wte.weight
        for p in (*self.norm.parameters(), *self.bn.parameters()):
            nn.init.normal_(p, 1, 0.3)

    def forward(self, ids):
        x = functional.gelu(self.fc(self.norm(self.wte(ids))))
        return self.head(self.bn(x.transpose(1, 2)).transpose(1, 2))


def step(net, x, y, prefix):
    """Loss, gradients, running statistics in double."""
    net = net.double()
    loss = functional.cross_entropy(net(x).transpose(1, 2), y)
    loss.backward()
    found = {"loss": loss.detach().reshape(1), **{k: p.grad for k, p in net.named_parameters()},
             "bn.running_mean": net.bn.running_mean, "bn.running_var": net.bn.running_var}
    return {prefix + k: t.clone() for k, t in found.items()}


def onnx_numbers(path):
    tensors = onnx.load(path).graph.initializer
    return {t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in tensors}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    path = {k: os.path.join(FOLDER, k) for k in ("tokens.onnx", "state.safetensors", "x.npy", "y.npy",
                                                 "want.safetensors")}
    torch.manual_seed(3)
    x, y = torch.randint(0, IDS, (4, TOKENS)), torch.randint(0, IDS, (4, TOKENS))
    net = Net(1)
    torch.onnx.export(net, (x,), path["tokens.onnx"], dynamo=False, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, opset_version=17, input_names=["ids"],
                      output_names=["logits"])
    running = onnx_numbers(path["tokens.onnx"])  # tracing in training mode has moved them
    net.load_state_dict(running, strict=False)
    save_model(Net(2), path["state.safetensors"])
    numpy.save(path["x.npy"], x.numpy())
    numpy.save(path["y.npy"], y.numpy())
    with torch.no_grad():
        logits = copy.deepcopy(net).eval().double()(x)
    save_file({"logits": logits.contiguous(), **step(net.train(), x, y, "file."), **step(Net(2), x, y, "state.")},
              path["want.safetensors"])


if __name__ == "__main__":
    main()
