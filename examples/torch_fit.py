"""A PyTorch model, trained in Keras' manners. Two lines are new.

    python examples/torch_fit.py                       # one rank, all cores
    megalith run -np 4 examples/torch_fit.py           # four
"""
import torch
from torch import nn

import megalith                                                             # new: 1

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
x = torch.randn(512, 1, 28, 28)
y = (x[:, 0, :14].mean((1, 2)) * 100).long().clamp(-5, 4) + 5               # something to learn

model = megalith.Model(net, example=x[:1])                                  # new: 2
model.compile(optimizer=torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), loss=nn.CrossEntropyLoss(),
              metrics=["accuracy"])
model.fit(x, y, batch_size=64, epochs=3)
net = model.unwrap()                                                        # the same object, trained
if megalith.rank() == 0:
    torch.save(net.state_dict(), "trained.pt")
