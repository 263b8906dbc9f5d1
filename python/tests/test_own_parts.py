"""Losses and optimizers that the library does not have run in Python: training is PyTorch's own, and a line says so."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import distance, network, samples, written  # noqa: E402
from torch import nn  # noqa: E402

import megalith  # noqa: E402
from megalith.own_loss import BadLoss  # noqa: E402

SAME = 1e-4  # after ten steps in float


def focal(y, target):
    """One that the library does not have."""
    p = torch.softmax(y, 1).gather(1, target[:, None])[:, 0]
    return (-((1 - p) ** 2) * torch.log(p)).mean()


def two_groups(net):
    return torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.01}, {"params": net[1:].parameters()}], 0.05)


LOSSES = {"own": focal, "entropy": nn.CrossEntropyLoss()}
OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), 0.05),
    "adagrad": lambda net: torch.optim.Adagrad(net.parameters(), 0.02),
    "groups": two_groups,
    "amsgrad": lambda net: torch.optim.Adam(net.parameters(), 0.003, amsgrad=True),
}


def torch_fit(net, x, y, loss, make):
    optimizer, losses = make(net), []
    for _ in range(2):
        total = 0.0
        for i in range(0, len(x), 8):
            optimizer.zero_grad()
            value = loss(net(x[i:i + 8]), y[i:i + 8])
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(x[i:i + 8])
        losses.append(total / len(x))
    return losses


@pytest.mark.parametrize("kind, loss, count", [("sgd", "own", 40), ("adagrad", "entropy", 40), ("adagrad", "own", 36),
                                               ("groups", "entropy", 40), ("amsgrad", "entropy", 36)])
def test_training_is_torchs(kind, loss, count, capsys):
    net, (x, y) = network(), samples(count)
    own = copy.deepcopy(net)
    model = megalith.Model(net, example=x[:1])
    model.compile(OPTIMIZERS[kind](net), LOSSES[loss], metrics=["accuracy"])
    said = capsys.readouterr().err
    assert ("loss focal is not one of the library's: it runs in Python" in said) == (loss == "own")
    assert ("is not one of the library's: it runs in Python" in said.replace("loss focal is", "")) == (kind != "sgd")
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    want = torch_fit(own, x, y, LOSSES[loss], OPTIMIZERS[kind])
    np.testing.assert_allclose(history["loss"], want, rtol=SAME)
    assert want[1] < want[0] - 0.01 and 0 <= history["accuracy"][1] <= 1
    trained = model.unwrap()
    for k, t in own.state_dict().items():
        assert distance(trained.state_dict()[k].double(), t.double()) < 1e-3, k
    own.eval()
    with torch.no_grad():
        assert model.evaluate(x, y)["loss"] == pytest.approx(float(LOSSES[loss](own(x), y)), rel=1e-3)


def test_a_rate_is_set_in_python():
    net, (x, y) = network(), samples()
    model = megalith.Model(net, example=x[:1])
    optimizer = two_groups(net)
    model.compile(optimizer, "cross_entropy")
    model.fit(x, y, batch_size=8, epochs=2, verbose=0,
              callbacks=[megalith.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1))])
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.005, 0.025])


def test_no_losses():
    net, (x, y) = network(), samples(8)
    for loss, words in ((lambda y, t: nn.functional.cross_entropy(y, t, reduction="none"), "take their mean"),
                        (lambda y, t: torch.tensor(1.0), "no gradient comes back")):
        model = megalith.Model(net, example=x[:1])
        model.compile("sgd", loss)
        with pytest.raises(BadLoss, match=words):
            model.fit(x, y, batch_size=8, verbose=0)
    with pytest.raises(ValueError, match="no parameter of this model"):
        megalith.Model(net, example=x[:1]).compile(torch.optim.Adagrad(network().parameters()))


@pytest.fixture
def file(tmp_path):
    """(a file of weights, a module that has them): others than those of `network`."""
    other, path = network(), str(tmp_path / "start.safetensors")
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    written(path, other.state_dict())
    return path, other


def test_a_file_of_weights_is_read_once(file):
    """With an optimizer in Python each new plan, and each compile, goes on from what was trained, not from the file."""
    (x, y), (path, own) = samples(), file
    net = network()
    model = megalith.Model(net, example=x[:1], weights=path)
    sgd, adagrad = torch.optim.SGD(net.parameters(), 0.05), torch.optim.Adagrad(net.parameters(), 0.02)
    own_sgd, own_adagrad = torch.optim.SGD(own.parameters(), 0.05), torch.optim.Adagrad(own.parameters(), 0.02)
    got, want = [], []
    for (mine, theirs), sizes in (((adagrad, own_adagrad), (8, 16, 5)), ((sgd, own_sgd), (5,)), ((adagrad, own_adagrad), (8,))):
        model.compile(mine, "cross_entropy")
        for n in sizes:
            got.append(model.train_step(x[:n], y[:n])["loss"])
            theirs.zero_grad()
            loss = nn.functional.cross_entropy(own(x[:n]), y[:n])
            loss.backward()
            theirs.step()
            want.append(float(loss.detach()))
    np.testing.assert_allclose(got, want, rtol=2e-4)
    for k, t in own.state_dict().items():
        assert distance(model.unwrap().state_dict()[k].double(), t.double()) < 1e-3, k


def test_weights_that_were_asked_for_stay():
    """The optimizer in Python changes the module itself."""
    net, (x, y) = network(), samples(8)
    model = megalith.Model(net, example=x[:1])
    model.compile(torch.optim.Adagrad(net.parameters(), 0.02), "cross_entropy")
    before, state, want = model.get_weights(), model.state_dict(), network().state_dict()
    model.fit(x, y, batch_size=8, verbose=0)
    for k, t in network().named_parameters():
        np.testing.assert_array_equal(before[k], t.detach().numpy())
        assert torch.equal(state[k], want[k]) and not torch.equal(model.state_dict()[k], want[k])
    model.set_weights(before)
    assert torch.equal(net[0].weight, want["0.weight"])
