"""Losses and optimizers that the library does not have run in Python: training is PyTorch's own, and a line says so."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import distance, network, samples  # noqa: E402
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
