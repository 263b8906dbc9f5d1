"""An optimizer trains the parameters that it has, from the state that it has, and is what it is, not what its name says."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import network, samples  # noqa: E402
from torch import nn  # noqa: E402

import megalith  # noqa: E402
from megalith import optimizers  # noqa: E402


def steps(net, optimizer, x, y, count=3):
    out = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        out.append(float(loss.detach()))
    return out


def compared(make, before=lambda net, optimizer: None):
    """(the model, its module, PyTorch's): trained by the optimizers that `make` gives."""
    net, (x, y) = network(), samples(8)
    own = copy.deepcopy(net)
    mine, theirs = make(net), make(own)
    before(net, mine), before(own, theirs)
    ours = megalith.Model(net, example=x[:1])
    ours.compile(mine, "cross_entropy")
    got = ours.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(got, steps(own, theirs, x, y), rtol=2e-4)
    return ours, ours.unwrap(), own


def test_a_part_of_the_parameters():
    start = network().state_dict()
    _, net, own = compared(lambda net: torch.optim.SGD(net[5].parameters(), 0.1))
    assert torch.equal(net[0].weight, start["0.weight"]) and torch.equal(net[1].weight, start["1.weight"])
    np.testing.assert_allclose(net[5].weight.detach(), own[5].weight.detach(), rtol=1e-3, atol=1e-5)
    assert not torch.equal(net[5].weight, start["5.weight"])


def test_of_another_net():
    other = network()
    with pytest.raises(ValueError, match="SGD has no parameter of this model"):
        megalith.Model(network(), example=samples(1)[0]).compile(torch.optim.SGD(other.parameters(), 0.1))


def test_its_state_is_not_dropped(capsys):
    x, y = samples(8)
    compared(lambda net: torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), lambda net, optimizer: steps(net, optimizer, x, y, 2))
    assert "optimizer SGD is not one of the library's" in capsys.readouterr().err


class SGD(torch.optim.Adagrad):
    """Not what its name says."""


def test_a_name_is_not_enough():
    with pytest.raises(optimizers.UnknownOptimizer):
        optimizers.to_words(SGD(network().parameters(), 0.02))
    compared(lambda net: SGD(net.parameters(), 0.02))
