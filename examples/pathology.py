"""Tumour or not, pixel by pixel: a U-Net on tiles of a slide, here made up. Two lines are new.

    python examples/pathology.py                       # one rank, all cores
    megalith run -np 4 examples/pathology.py           # four; tiles too large for one: plan={"mesh": "2x2"}
"""
import torch
from torch import nn

import megalith                                                             # new: 1

torch.manual_seed(0)


def twice(a, b):
    return nn.Sequential(*[m for i in (a, b) for m in (nn.Conv2d(i, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())])


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down, self.bottom, self.up = twice(3, width), twice(width, 2 * width), twice(2 * width, width)
        self.lift, self.head = nn.ConvTranspose2d(2 * width, width, 2, 2), nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down(x)
        return self.head(self.up(torch.cat([a, self.lift(self.bottom(nn.functional.max_pool2d(a, 2)))], 1)))


class Tiles(torch.utils.data.Dataset):
    """Tissue with a round tumour, which is darker; each rank reads only what its part of the plan needs."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        place, (h, w) = 32 * torch.rand(2, generator=g), torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
        tumour = (h - place[0]) ** 2 + (w - place[1]) ** 2 < 80
        return 0.7 - 0.3 * tumour + 0.2 * torch.randn(3, 32, 32, generator=g), tumour.long()


net = UNet()
model = megalith.Model(net, example=torch.zeros(1, 3, 32, 32))              # new: 2
model.compile(optimizer=torch.optim.Adam(net.parameters(), 3e-3), loss=nn.CrossEntropyLoss())
model.fit(Tiles(), batch_size=16, epochs=3)
net = model.unwrap()                                                        # the same object, trained
if megalith.rank() == 0:
    torch.save(net.state_dict(), "unet.pt")
