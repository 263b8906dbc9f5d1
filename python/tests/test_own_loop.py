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


def batches(count=32):
    g = torch.Generator().manual_seed(5)
    return torch.randn(count, 2, 8, 8, generator=g), torch.randint(0, 5, (count,), generator=g)


def module(net=None):
    import megalith.torch
    return megalith.torch.Module(net or network(), example=batches(1)[0])


def test_backward_belongs_to_its_forward():
    """The library has the numbers of one call: another one in between is told, not taken."""
    model, (x, y) = module(), batches(16)
    first = own_loss(model(x[:8]), y[:8])
    with torch.no_grad():
        model(x[8:])
    with pytest.raises(RuntimeError, match="was called again since then"):
        first.backward()
    again = own_loss(model(x[:8]), y[:8])
    again.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="has gone back already"):
        again.backward()
    model.eval()
    with pytest.raises(RuntimeError, match="called in eval"):
        own_loss(model(x[:8]), y[:8]).backward()
    with torch.no_grad():
        assert not model(x[:8]).requires_grad


def test_what_stands_in_front_is_trained():
    x, y = batches(8)
    front, back = nn.Conv2d(2, 2, 1), network()
    own = copy.deepcopy(nn.Sequential(front, back))
    model = nn.Sequential(front, module(back))
    x.requires_grad_()
    own_loss(model(x), y).backward()
    got, x.grad = x.grad.clone(), None
    own_loss(own(x), y).backward()
    for a, b in ((got, x.grad), (front.weight.grad, own[0].weight.grad), (back[0].weight.grad, own[1][0].weight.grad)):
        assert float(b.norm()) > 1e-6
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5 * float(b.abs().max()))


def test_state_dicts_go_both_ways():
    """Names are the user's own, also inside of another module; counts of batches are PyTorch's; numbers that are loaded arrive."""
    (x, y), model, other = batches(8), module(), module()
    for _ in range(3):
        own_loss(model(x), y).backward()
    state = model.state_dict()
    assert int(state["1.num_batches_tracked"]) == 3
    own_loss(other(x + 1), y).backward()
    other.load_state_dict(state)
    whole = nn.Sequential(nn.Identity(), module())
    whole.load_state_dict({f"1.{k}": t for k, t in state.items()})
    want = network()
    want.load_state_dict(state)
    want.eval()
    for net in (model, other, whole):
        net.eval()
        with torch.no_grad():
            np.testing.assert_allclose(net(x).numpy(), want(x).numpy(), atol=1e-5)
    assert list(whole.state_dict()) == [f"1.{k}" for k in state]


class Counting(nn.Module):
    """Reads a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("seen", torch.tensor([True, False, True]))

    def forward(self, x):
        return self.fc(x)[:, self.order] * self.seen


def test_buffers_of_whole_numbers():
    import megalith.torch
    net, x = Counting(), torch.randn(5, 4)
    np.testing.assert_allclose(megalith.torch.Module(net, example=x)(x).detach().numpy(), net(x).detach().numpy(), atol=1e-5)


def test_sizes_one_after_the_other():
    """Statistics go on where another number of samples needs another plan."""
    (x, y), net = batches(20), network()
    own, model = copy.deepcopy(net), module(net)
    for n in (8, 5, 8, 20):
        for each in (model, own):
            own_loss(each(x[:n]), y[:n]).backward()
    for k, t in own.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[k].numpy(), t.numpy(), rtol=1e-4, atol=1e-6, err_msg=k)
    np.testing.assert_allclose(net[0].weight.grad.numpy(), own[0].weight.grad.numpy(), rtol=1e-3, atol=1e-4)
