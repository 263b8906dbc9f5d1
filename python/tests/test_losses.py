"""Losses mean what the framework means by them: whose they are, what they are of, and along which axis."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import network, samples  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import megalith  # noqa: E402
from megalith import losses  # noqa: E402


def mse(y, target):
    """Not what its name says."""
    return functional.cross_entropy(y, target) * 3


class MSELoss(nn.Module):
    def forward(self, y, target):
        return functional.cross_entropy(y, target) * 2


@pytest.mark.parametrize("own", [mse, MSELoss()])
def test_a_name_is_not_enough(own):
    net, (x, y) = network(), samples(8)
    want = float(own(copy.deepcopy(net)(x), y).detach())
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", own)
    assert ours.fit(x, y, batch_size=8, shuffle=False, verbose=0).history["loss"][0] == pytest.approx(want, rel=1e-5)


def test_the_frameworks_own_are_known():
    assert losses.to_words(functional.mse_loss).text == "mse" and losses.to_words(nn.MSELoss()).text == "mse"
    assert losses.to_words(functional.cross_entropy).text == "softmax_xent"


@pytest.mark.parametrize("end", [[], [nn.LogSoftmax(1)]])
def test_nll(end, capsys):
    """Of log-probabilities it is cross entropy; of anything else it is not, and runs in Python."""
    net, (x, y) = nn.Sequential(*network(), *end), samples(8)
    want = float(functional.nll_loss(copy.deepcopy(net)(x), y).detach())
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", nn.NLLLoss())
    assert ("NLLLoss is not one" in capsys.readouterr().err) == (not end)
    assert ours.fit(x, y, batch_size=8, shuffle=False, verbose=0).history["loss"][0] == pytest.approx(want, rel=1e-5)
    if not end:
        with pytest.raises(losses.UnknownLoss, match="does not end with LogSoftmax"):
            ours.compile("sgd", "nll_loss")


class Last(nn.Module):
    """The library has what comes out of it with the last axis in front."""

    def __init__(self, classes=5):
        super().__init__()
        torch.manual_seed(2)
        self.fc = nn.Linear(6, classes)

    def forward(self, x):
        return self.fc(x)


def first_loss(net, x, y, loss):
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", loss, lr=0.5)
    got = [ours.fit(x, y, batch_size=len(x), shuffle=False, verbose=0).history["loss"][0] for _ in range(2)]
    assert ours.evaluate(x, y)["loss"] < got[1] < got[0]
    return got[0], ours


@pytest.mark.parametrize("loss", ["cross_entropy", nn.CrossEntropyLoss()])
def test_classes_lie_behind_the_batch(loss):
    """(n, 5, 5) with labels (n, 5): PyTorch has the classes at axis 1, wherever the library has them."""
    g = torch.Generator().manual_seed(1)
    net, x, y = Last(), 3 * torch.randn(6, 5, 6, generator=g), torch.randint(0, 5, (6, 5), generator=g)
    out = net(x)
    want, other = (float(functional.cross_entropy(o, y)) for o in (out.detach(), out.detach().transpose(1, 2)))
    got, ours = first_loss(net, x, y, loss)
    assert got == pytest.approx(want, rel=1e-5) and abs(want - other) > 1e-2


def test_classes_of_tokens_come_last():
    g = torch.Generator().manual_seed(1)
    net, x, y = Last(7), torch.randn(6, 5, 6, generator=g), torch.randint(0, 7, (6, 5), generator=g)
    want = float(functional.cross_entropy(net(x).detach().transpose(1, 2), y))
    got, ours = first_loss(net, x, y, "cross_entropy")
    assert got == pytest.approx(want, rel=1e-5)
    assert ours.predict(x).shape == (6, 5, 7)
    with pytest.raises(megalith.BadData, match="a label is 7, but the model has 7 classes"):
        ours.fit(x, y * 0 + 7, batch_size=6, verbose=0)


def test_real_targets_of_tokens():
    """As many tokens as numbers each: none is compared with another's."""
    g = torch.Generator().manual_seed(1)
    net, x, y = Last(), torch.randn(6, 5, 6, generator=g), torch.randn(6, 5, 5, generator=g)
    want = float(functional.mse_loss(net(x).detach(), y))
    assert first_loss(net, x, y, "mse")[0] == pytest.approx(want, rel=1e-5)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body, self.kind, self.size = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.kind(x), self.size(x)


def both(y, target):
    return functional.cross_entropy(y[0], target[0]) + (y[1] - target[1]).abs().mean()


def test_all_outputs():
    """A loss of one's own gets all outputs and all targets."""
    g = torch.Generator().manual_seed(1)
    x, kind, size = torch.randn(16, 6, generator=g), torch.randint(0, 3, (16,), generator=g), torch.randn(16, 1, generator=g)
    net = Heads()
    own = copy.deepcopy(net)
    optimizer, want = torch.optim.SGD(own.parameters(), 0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = both(own(x), (kind, size))
        loss.backward()
        optimizer.step()
        want.append(float(loss.detach()))
    ours = megalith.Model(net, example=x[:1])
    ours.compile(torch.optim.SGD(net.parameters(), 0.1), both)
    got = ours.fit(x, [kind, size], batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    own.eval()
    assert ours.evaluate(x, [kind, size])["loss"] == pytest.approx(float(both(own(x), (kind, size)).detach()), rel=1e-5)


def test_one_output_of_two_is_told(capsys):
    ours = megalith.Model(Heads(), example=torch.zeros(1, 6))
    ours.compile("sgd", "cross_entropy")
    assert "the loss is of the first alone" in capsys.readouterr().err


def test_accuracy_of_yes_and_no(capsys):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(32, 6, generator=g)
    y = (x.sum(1, keepdim=True) > 0).float()
    net = nn.Linear(6, 1)
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", nn.BCEWithLogitsLoss(), metrics=["accuracy"], lr=1.0)
    assert "BCEWithLogitsLoss with accuracy" in capsys.readouterr().err
    ours.fit(x, y, batch_size=32, epochs=3, verbose=0)
    want = float(((ours.unwrap()(x) > 0).float() == y).float().mean())
    assert ours.evaluate(x, y)["accuracy"] == pytest.approx(want)


@pytest.mark.parametrize("targets", [lambda y: y, lambda y: y[:, 0], lambda y: y.long()])
@pytest.mark.parametrize("loss", ["bce_logits", "binary_cross_entropy_with_logits", nn.BCEWithLogitsLoss()])
def test_binary_cross_entropy_with_metrics(loss, targets):
    """By whichever name, and of targets as the library takes them."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(32, 6, generator=g)
    y = (x.sum(1, keepdim=True) > 0).float()
    net = nn.Linear(6, 1)
    out = net(x).detach()
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", loss, metrics=["accuracy", "mae"], lr=0.0)
    found = ours.fit(x, targets(y), batch_size=32, verbose=0).history
    assert found["loss"][0] == pytest.approx(float(functional.binary_cross_entropy_with_logits(out, y)), rel=1e-5)
    assert found["accuracy"][0] == pytest.approx(float(((out > 0).float() == y).float().mean()))
    assert found["mae"][0] == pytest.approx(float((out.sigmoid() - y).abs().mean()), rel=1e-5)


def test_absolute_error_beside_a_loss_in_python():
    g = torch.Generator().manual_seed(1)
    net, x, y = nn.Linear(6, 1), torch.randn(12, 6, generator=g), torch.randn(12, 1, generator=g)
    want = float((net(x).detach() - y).abs().mean())
    ours = megalith.Model(net, example=x[:1])
    ours.compile("sgd", nn.HuberLoss(), metrics=["mae"], lr=0.0)
    assert ours.fit(x, y, batch_size=12, verbose=0).history["mae"][0] == pytest.approx(want, rel=1e-5)
    assert ours.evaluate(x, y)["mae"] == pytest.approx(want, rel=1e-5)


def test_metrics_that_nobody_measures():
    """None is left out without a word."""
    x, y = samples(8)
    for loss, metric, words in (("cross_entropy", "mae", "is of real targets, and this loss compares classes"),
                                ("mse", "accuracy", "is of classes, or of yes and no")):
        with pytest.raises(ValueError, match=words):
            megalith.Model(network(), example=x[:1]).compile("sgd", loss, metrics=[metric])
    for loss, metric, target in ((nn.HuberLoss(), "accuracy", torch.zeros(8, 5)), (nn.MultiMarginLoss(), "mae", y)):
        ours = megalith.Model(network(), example=x[:1])
        ours.compile("sgd", loss, metrics=[metric])
        with pytest.raises(ValueError, match=f"{metric} cannot be measured"):
            ours.fit(x, target, batch_size=8, verbose=0)
