"""A PyTorch model in one's own loop, with one's own loss and optimizer. Two lines are new.

    python examples/torch_loop.py                      # one rank, all cores
    megalith run -np 4 examples/torch_loop.py          # four, with the same losses
"""
import torch
from torch import nn

import megalith.torch                                                       # new: 1

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
x = torch.randn(512, 1, 28, 28)
y = (x[:, 0, :14].mean((1, 2)) * 100).long().clamp(-5, 4) + 5               # something to learn
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)

model = megalith.torch.Module(net, example=x[:1])                           # new: 2
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(3):
    for a, b in loader:
        loss = nn.functional.cross_entropy(model(a), b, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if megalith.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss.detach()):.4f}")
