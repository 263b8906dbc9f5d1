"""Parameters of a universe from its matter: a 3-D CNN on volumes, here made up. Two lines are new.

    python examples/cosmology.py                       # one rank, all cores
    megalith run -np 4 examples/cosmology.py           # four; volumes too large for one: plan={"mesh": "2x2x1"}
"""
import torch
from torch import nn

import megalith                                                             # new: 1

torch.manual_seed(0)
layers = [m for a, b in ((1, 8), (8, 16), (16, 32)) for m in (nn.Conv3d(a, b, 3, padding=1), nn.LeakyReLU(0.3), nn.MaxPool3d(2))]
net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 8, 32), nn.LeakyReLU(0.3), nn.Linear(32, 2))

y = 2 * torch.rand(128, 2) - 1                                              # how clumped matter is, and how much there is
matter = nn.functional.avg_pool3d(torch.randn(128, 1, 18, 18, 18), 3, 1)
x = matter * (2 + y[:, 0]).reshape(-1, 1, 1, 1, 1) + y[:, 1].reshape(-1, 1, 1, 1, 1)

model = megalith.Model(net, example=x[:1])                                  # new: 2
model.compile(optimizer=torch.optim.Adam(net.parameters(), 2e-3), loss="mse", metrics=["mae"])
model.fit(x, y, batch_size=16, epochs=3)
net = model.unwrap()                                                        # the same object, trained
if megalith.rank() == 0:
    torch.save(net.state_dict(), "cosmology.pt")
