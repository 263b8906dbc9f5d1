"""Models on the meta device: numbers are drawn as PyTorch draws them, do not depend on the plan, and come back."""
import math
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import megalith  # noqa: E402


def network():
    return nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 5))


def model(net=None, plan=None, **words):
    with torch.device("meta"):
        net = net or network()
    out = megalith.Model(net, example=torch.zeros(1, 2, 8, 8), plan=plan, **words)
    out.compile("sgd", "cross_entropy", lr=0.05)
    return out


def samples():
    g = torch.Generator().manual_seed(5)
    return torch.randn(32, 2, 8, 8, generator=g), torch.randint(0, 5, (32,), generator=g)


def test_first_numbers():
    """Uniform within PyTorch's own bounds; others of another seed, the same under another plan."""
    ours = model()
    x, _ = samples()
    y = ours.predict(x)
    state = ours.get_weights()
    bound = 1 / math.sqrt(16 * 64)
    assert abs(state["4.weight"]).max() <= bound and abs(state["4.weight"]).std() == pytest.approx(bound / math.sqrt(12), rel=0.1)
    assert (state["1.weight"] == 1).all() and (state["1.running_var"] == 1).all() and (state["1.running_mean"] == 0).all()
    np.testing.assert_allclose(model(plan={"micro": 2, "norm": 16}).predict(x), y, atol=1e-6)
    assert abs(model(seed=2).predict(x) - y).max() > 0.01
    with pytest.raises(megalith.CaptureError, match="meta device and has no numbers"):
        model().get_weights()


def test_trains_and_comes_back(tmp_path):
    """It learns; the user's object gets memory and the trained numbers; a file of them is where another begins."""
    x, y = samples()
    ours = model()
    losses = ours.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    state, file = ours.state_dict(), str(tmp_path / "net.safetensors")
    ours.save_weights(file)
    net = ours.unwrap().eval()
    assert not any(t.is_meta for t in net.state_dict().values()) and int(net[1].num_batches_tracked) == 12
    for k, t in net.state_dict().items():
        assert k == "1.num_batches_tracked" or torch.equal(t, state[k]), k
    with torch.no_grad():
        want = net(x).numpy()
    np.testing.assert_allclose(ours.predict(x), want, atol=1e-5)
    np.testing.assert_allclose(model(weights=file).predict(x), want, atol=1e-5)


class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.fc = nn.Parameter(torch.empty(1, 2, 8, 8)), nn.Linear(128, 5)

    def forward(self, x):
        return self.fc((x + self.token).flatten(1))


def test_what_nobody_draws():
    with torch.device("meta"):
        net = Token()
    with pytest.raises(megalith.CaptureError, match=r"the model \(Token\) .* no reset_parameters\(\) that would draw token"):
        model(net).predict(samples()[0])


def test_an_optimizer_in_python():
    with torch.device("meta"):
        net = network()
    with pytest.raises(ValueError, match="use torch.optim.SGD"):
        megalith.Model(net, example=torch.zeros(1, 2, 8, 8)).compile(torch.optim.Adagrad(net.parameters()), "cross_entropy")


def test_takes_no_memory():
    """8 GB of weights: captured and written in moments, and nothing of it is on the disk."""
    import time
    begin = time.monotonic()
    with torch.device("meta"):
        net = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(8)])
    ours = megalith.Model(net, example=torch.zeros(1, 16384))
    path = ours.session.write({})
    assert os.path.getsize(path + ".data") > 8 << 30 and os.stat(path + ".data").st_blocks * 512 < 1 << 20
    assert time.monotonic() - begin < 30
