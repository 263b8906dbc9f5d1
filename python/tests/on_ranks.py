"""What tests/test_ranks.py runs on one rank and on several: `on_ranks.py WHAT FILE`; rank 0 writes numbers to the file."""
import os
import sys
import time
from sys import exit as leave

import numpy as np
import torch
from torch import nn

import megalith

what, file = sys.argv[1:3]
torch.set_num_threads(1)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 64, 5))


def samples(count=32):
    g = torch.Generator().manual_seed(5)
    return torch.randn(count, 2, 8, 8, generator=g), torch.randint(0, 5, (count,), generator=g)


def own_loss(y, target):
    """None that the library has."""
    return (nn.functional.cross_entropy(y, target) * 2 + (y ** 2).mean() * 0.1).sqrt()


def write(**numbers):
    if megalith.rank() == 0:
        np.savez(file, size=megalith.size(), **numbers)


def own_parts():
    """A loss and an optimizer of which the library knows nothing."""
    net, (x, y) = network(), samples()
    model = megalith.Model(net, example=x[:1])
    model.compile(torch.optim.Adagrad(net.parameters(), 0.02), own_loss)
    history = model.fit(x, y, batch_size=8, epochs=3, verbose=0)
    write(losses=history.history["loss"], evaluated=model.evaluate(x, y)["loss"], weight=model.state_dict()["4.weight"].numpy())


def own_loop():
    """The user's own loop, over a loader that shuffles; random numbers differ from rank to rank beforehand."""
    import megalith.torch
    net, (x, y) = network(), samples()
    torch.manual_seed(megalith.rank() + 7)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8, shuffle=True)
    model = megalith.torch.Module(net, example=x[:1]) if os.environ.get("PLAIN") is None else net
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    batches = megalith.distribute(loader)
    while len(losses) < 30:
        for a, b in batches:
            loss = own_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    write(losses=losses[:30], weight=net.state_dict()["4.weight"].numpy())


def in_double():
    """Numbers come out of ref64, and go through an optimizer in Python, as they are."""
    megalith.init(device="ref64", threads=1)
    x, y = (t.double() if t.is_floating_point() else t for t in samples(8))
    for make in (lambda net: torch.optim.SGD(net.parameters(), 0.05), lambda net: torch.optim.Adagrad(net.parameters(), 0.02)):
        net, own = network().double(), network().double()
        model, optimizer = megalith.Model(net, example=x[:1]), make(own)
        model.compile(make(net), "cross_entropy")
        for _ in range(3):
            model.train_step(x, y)
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(x), y).backward()
            optimizer.step()
        got = model.get_weights()
        for k, t in own.named_parameters():
            assert float((model.state_dict()[k] - t).norm()) <= 1e-10 * float(t.norm()) and got[k].dtype == np.float64, k
    write()


def small_batch():
    model = megalith.Model(network(), example=samples(1)[0])
    model.compile("sgd", "cross_entropy")
    model.fit(*samples(), batch_size=1, verbose=0)


def other_batches():
    """Ranks whose loaders do not agree."""
    x, y = samples()
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit([(x[:8 - megalith.rank()], y[:8 - megalith.rank()])], batch_size=8, verbose=0)


def unseeded():
    """Each rank has drawn another network; rank 0's is trained."""
    torch.manual_seed(100 + megalith.rank())
    net, (x, y) = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)), samples(16)
    x = x.flatten(1)[:, :4]
    first = {k: t.clone() for k, t in net.state_dict().items()}
    model = megalith.Model(net, example=x[:1])
    model.compile("sgd", "cross_entropy", lr=0.1)
    model.fit(x, y % 3, batch_size=8, epochs=1, shuffle=False, verbose=0)
    state = model.state_dict()
    write(first=first["0.weight"].numpy(), weight=state["0.weight"].numpy(), predicted=model.predict(x))


def unseeded_loop():
    import megalith.torch
    torch.manual_seed(100 + megalith.rank())
    net, (x, y) = nn.Linear(4, 3), samples(8)
    x = x.flatten(1)[:, :4]
    model = megalith.torch.Module(net, example=x[:1])
    nn.functional.cross_entropy(model(x), y % 3).backward()
    everywhere = model(x).detach()
    assert torch.allclose(everywhere, net(x).detach(), atol=1e-5), "this rank's module has other numbers"
    write(weight=net.weight.detach().numpy())


def other_data():
    """Ranks whose random numbers were not seeded."""
    x, y = samples()
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit(x + 0.1 * megalith.rank(), y, batch_size=8, verbose=0)


class Own(SystemExit):
    """One of the user's."""


def raises(what):
    raise what


WAYS = {"sys.exit": lambda: sys.exit(1), "imported": lambda: leave(1), "exit": lambda: exit(1), "own": lambda: raises(Own(1)),
        "text": lambda: raises(SystemExit("on purpose"))}


def give_up():
    WAYS[os.environ.get("WAY", "sys.exit")]()


def gives_up():
    """One rank ends, the others go on."""
    x, y = samples()
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, batch_size=8, verbose=0)
    if megalith.rank() == 1:
        give_up()
    model.fit(x, y, batch_size=8, epochs=10 ** 6, verbose=0)


WELL = {"sys.exit": lambda: sys.exit(0), "raise": lambda: raises(SystemExit(0))}


def exits_well():
    """sys.exit that somebody catches, and one that says all is well."""
    megalith.size()
    try:
        sys.exit(3)
    except SystemExit as e:
        assert e.code == 3
    try:
        raise SystemExit(2)
    except SystemExit as e:
        assert e.code == 2 and SystemExit(4).code == 4 and SystemExit().code is None
        e.code = 5
        assert e.code == 5
    own_parts()
    WELL[os.environ.get("WAY", "sys.exit")]()


def all_fail():
    megalith.size()
    raise ValueError("on purpose")


def mpi4py_first():
    from mpi4py import MPI
    total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
    own_parts_size(total)
    assert MPI.COMM_WORLD.allreduce(1) == megalith.size()  # still there


def own_parts_size(total):
    assert total == sum(range(1, megalith.size() + 1)) and megalith.size() > 1
    own_parts()


def mpi4py_later():
    own_parts()
    from mpi4py import MPI
    assert MPI.COMM_WORLD.size == megalith.size() > 1


def part_of_them():
    """Two of three ranks train, on a communicator of mpi4py."""
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    part = world.Split(world.rank // 2)
    megalith.init(comm=part)
    if world.rank < 2:
        own_parts()
    world.Barrier()


class Tell(megalith.callbacks.Callback):
    """Says when training has begun, so that it can be interrupted."""

    def on_epoch_end(self, epoch, logs):
        if epoch == 0 and self.first_rank:
            print("begun", flush=True)

    def on_batch_end(self, batch, logs):
        time.sleep(float(os.environ.get("SLOW", 0)))


def long():
    x, y = samples()
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", os.environ.get("LOSS") and own_loss or "cross_entropy")
    checkpoint = megalith.callbacks.ModelCheckpoint(os.path.join(file, "best"), "loss", save_best_only=True)
    model.fit(x, y, batch_size=32, epochs=10 ** 9, callbacks=[Tell(), checkpoint], verbose=0)


globals()[what]()
