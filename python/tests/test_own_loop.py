"""`megalith.torch.Module`: the user's own loop, loss and optimizer have plain PyTorch's losses."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

STEPS = 30


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(),
                         nn.Linear(6 * 64, 5))


def own_loss(y, target):
    """None that the library has."""
    return (nn.functional.cross_entropy(y, target) * 2 + (y ** 2).mean() * 0.1).sqrt()


def losses(model, x, y):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    out = []
    for i in range(STEPS):
        at = 8 * (i % 4)
        loss = own_loss(model(x[at:at + 8]), y[at:at + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(float(loss.detach()))
    return out


def test_losses_are_torchs():
    import megalith.torch
    g = torch.Generator().manual_seed(5)
    x, y = torch.randn(32, 2, 8, 8, generator=g), torch.randint(0, 5, (32,), generator=g)
    net = network()
    own = copy.deepcopy(net)
    model = megalith.torch.Module(net, example=x[:1])
    got, want = losses(model, x, y), losses(own, x, y)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert want[-1] < 0.8 * want[0], "the reference does not learn"
    state = model.state_dict()
    assert list(state) == list(own.state_dict())
    np.testing.assert_allclose(state["1.running_var"].numpy(), own.state_dict()["1.running_var"].numpy(), rtol=1e-5)
    model.eval(), own.eval()
    np.testing.assert_allclose(model(x).detach().numpy(), own(x).detach().numpy(), atol=1e-4)
