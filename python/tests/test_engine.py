"""What the library gave is freed in its order, whatever order Python has."""
import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import network, samples  # noqa: E402

import megalith  # noqa: E402
from megalith import _library, engine  # noqa: E402


class Order:
    """Stands for the library, and notes what is freed."""

    def __init__(self):
        self.freed, self.own = [], _library.library()

    def __getattr__(self, name):
        f = getattr(self.own, name)
        if not name.endswith("_free"):
            return f
        return lambda handle: (self.freed.append(name), f(handle))


def test_children_first(monkeypatch):
    x, y = samples(8)
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, batch_size=8, verbose=0)
    order = Order()
    monkeypatch.setattr(engine, "library", lambda: order)
    graph, plan, trainer = model.session.graph, model.session.plan, model.session.trainer
    graph.close()
    assert order.freed == ["meg_trainer_free", "meg_plan_free", "meg_graph_free"]
    for held in (trainer, plan, graph):
        held.close()
    assert len(order.freed) == 3, "once each"


def test_cycles(monkeypatch):
    """Objects that refer to each other end together."""
    x, y = samples(8)
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, batch_size=8, verbose=0)
    model.session.plan.back = model.session
    order = Order()
    monkeypatch.setattr(engine, "library", lambda: order)
    del model
    gc.collect()
    assert [n for n in order.freed if n != "meg_data_free"] == ["meg_trainer_free", "meg_plan_free", "meg_graph_free"]


def test_plans_are_files(tmp_path):
    """Words, a text of words, a file: the same plan."""
    x, y = samples(8)
    path, losses = str(tmp_path / "net.plan"), []
    for plan in ("auto", {"micro": 2, "norm": 4}, "micro=2 norm=4", path):
        model = megalith.Model(network(), example=x[:1], plan=plan)
        model.compile("sgd", "cross_entropy")
        losses.append(model.fit(x, y, batch_size=8, shuffle=False, verbose=0).history["loss"][0])
        if plan == "micro=2 norm=4":
            model.plan.save(path)
            want = model.plan.text()
    assert model.plan.text().splitlines()[0] == want.splitlines()[0] and len(losses) == 4
    np.testing.assert_allclose(losses[2:], losses[1], rtol=1e-5)  # groups of 4 samples are another network than auto's
    with pytest.raises(ValueError, match="there is no such file"):
        megalith.Model(network(), example=x[:1], plan=str(tmp_path / "none.plan"))
    with pytest.raises(TypeError, match="plan= is a int"):
        megalith.Model(network(), example=x[:1], plan=3)


def test_a_plan_for_an_own_loop():
    import megalith.torch
    x, _ = samples(8)
    model = megalith.torch.Module(network(), example=x[:1], plan="micro=2 norm=4")
    assert model(x).shape == (8, 5) and model.session.words == {"micro": "2", "norm": "4"}
