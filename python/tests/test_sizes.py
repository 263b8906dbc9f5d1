"""Batches of any size, one after the other: the optimizer goes on where it was, under each new plan, and so does dropout."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import distance, network, samples  # noqa: E402
from torch import nn  # noqa: E402

import megalith  # noqa: E402

SIZES = (8, 8, 5, 8, 3, 12, 8)


def torch_losses(net, make, x, y):
    optimizer, losses = make(net), []
    for at, size in zip(np.cumsum((0, *SIZES)), SIZES):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[at:at + size]), y[at:at + size])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("make", [lambda n: torch.optim.Adam(n.parameters(), 0.01), lambda n: torch.optim.SGD(n.parameters(), 0.05, momentum=0.9)])
def test_train_step(make):
    net, (x, y) = network(), samples(sum(SIZES))
    own = copy.deepcopy(net)
    ours = megalith.Model(net, example=x[:1])
    ours.compile(make(net), "cross_entropy")
    got = [ours.train_step(x[at:at + size], y[at:at + size])["loss"] for at, size in zip(np.cumsum((0, *SIZES)), SIZES)]
    want = torch_losses(own, make, x, y)
    np.testing.assert_allclose(got, want, rtol=2e-4)
    for k, t in own.state_dict().items():
        assert distance(ours.unwrap().state_dict()[k].double(), t.double()) < 1e-3, k


def test_fit_goes_on():
    """40 samples, then 36: the last batch is smaller, and Adam does not begin anew."""
    net, (x, y) = network(), samples(40)
    own = copy.deepcopy(net)
    ours = megalith.Model(net, example=x[:1])
    ours.compile(torch.optim.Adam(net.parameters(), 0.01), "cross_entropy")
    got = [ours.fit(x[:n], y[:n], batch_size=8, shuffle=False, verbose=0).history["loss"][0] for n in (40, 36)]
    optimizer, want = torch.optim.Adam(own.parameters(), 0.01), []
    for n in (40, 36):
        total = 0.0
        for i in range(0, n, 8):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(own(x[i:min(i + 8, n)]), y[i:min(i + 8, n)])
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x[i:min(i + 8, n)])
        want.append(total / n)
    np.testing.assert_allclose(got, want, rtol=2e-4)


def dropping():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 4))


def test_dropout():
    """Its numbers depend on Model(seed=), and do not repeat themselves when another plan is made."""
    g = torch.Generator().manual_seed(4)
    x, y = torch.randn(8, 6, generator=g), torch.arange(8) % 4

    def losses(seed, sizes=(8, 8, 8)):
        ours = megalith.Model(dropping(), example=x[:1], seed=seed)
        ours.compile("sgd", "cross_entropy", lr=0.0)
        return [ours.train_step(x[:n], y[:n])["loss"] for n in sizes]
    assert losses(5) == losses(5) and losses(5) != losses(6)
    assert len(set(losses(5))) == 3
    from megalith.torch import Module
    module = Module(dropping(), example=x[:1], seed=5)
    outputs = [module(x[:n])[:4].detach().numpy() for n in (8, 4, 8, 4)]
    assert all(abs(a - b).max() > 1e-3 for i, a in enumerate(outputs) for b in outputs[:i]), "masks are drawn again"
