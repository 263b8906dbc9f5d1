"""What tests/test_ranks.py runs on several ranks: trains, evaluates, predicts; rank 0 writes what came out."""
import json
import sys

import numpy as np
import torch
from torch import nn

import megalith

out, device, plans = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.set_num_threads(1)
megalith.init(device=device, threads=1)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 5))


class Samples(torch.utils.data.Dataset):
    """Changed at random when they are read."""

    def __len__(self):
        return 32

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(2, 8, 8, generator=g) + 0.1 * torch.randn(2, 8, 8), i % 5


def run(plan, file):
    """Trains, predicts, evaluates under one plan; rank 0 writes the numbers."""
    model = megalith.Model(network(), example=torch.zeros(1, 2, 8, 8), plan=plan)
    model.compile("sgd", "cross_entropy", lr=0.05)
    history = model.fit(Samples(), batch_size=8, epochs=2, verbose=0)
    x = torch.randn(12, 2, 8, 8, generator=torch.Generator().manual_seed(99))
    y = model.predict(x)
    measured = model.evaluate(x, torch.arange(12) % 5)
    state = model.state_dict()
    if megalith.rank() == 0:
        np.savez(file, losses=history.history["loss"], size=megalith.size(), y=y, evaluated=measured["loss"],
                 **{k: t.numpy() for k, t in state.items()})


for number, plan in enumerate(plans):
    run(plan, f"{out}-{number}.npz")
if sys.argv[4:] == ["fail"] and megalith.rank() == megalith.size() - 1:
    raise ValueError("on purpose")
