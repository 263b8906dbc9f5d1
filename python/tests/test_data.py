"""What `fit`, `evaluate` and `predict` take as data: nothing of it is lost, taken by another name, or read as something else."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from test_model import network, samples  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset  # noqa: E402

import megalith  # noqa: E402
from megalith import data  # noqa: E402


def model(lr=0.05, net=None, example=None):
    out = megalith.Model(net or network(), example=samples(1)[0] if example is None else example)
    out.compile("sgd", "cross_entropy", lr=lr)
    return out


def batches(count=40, size=8):
    x, y = samples(count)
    return [(x[i:i + size], y[i:i + size]) for i in range(0, count, size)]


def test_a_generator_loses_no_batch():
    want = model().fit(batches(), epochs=1, verbose=0).history["loss"]
    assert model().fit((b for b in batches()), epochs=1, verbose=0).history["loss"] == want
    seen = []

    class Count(megalith.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            seen.append(logs["loss"])
    endless = model()
    endless.fit((b for b in batches()), epochs=2, steps_per_epoch=2, callbacks=[Count()], verbose=0)
    again = model()
    assert seen == [again.fit(batches()[i:i + 2], verbose=0).history["loss"][0] for i in (0, 2)]
    with pytest.raises(megalith.BadData, match="epoch 2: a generator gives each of its batches once"):
        model().fit((b for b in batches()), epochs=2, verbose=0)


def test_plans_for_the_batch_that_comes():
    """Of a list nobody knows the batch size but its first batch; the last one is smaller, with a batch normalisation."""
    ours = model()
    got = ours.fit(batches(36, 8), epochs=2, verbose=0).history["loss"]
    assert ours.session.batch == 8
    x, y = samples(36)
    np.testing.assert_allclose(got, model().fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"], rtol=1e-5)


def test_a_part_of_a_data_set():
    x, y = samples(40)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, sampler=SubsetRandomSampler(range(20)))
    assert data.source(loader).count == 20
    assert data.source(DataLoader(TensorDataset(x, y), batch_size=16, drop_last=True)).count == 32
    assert np.isfinite(model().fit(loader, verbose=0).history["loss"][0])


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, left, right):
        return self.a(left) - 2 * self.b(right)


def test_inputs_by_name():
    g = torch.Generator().manual_seed(2)
    left, right = (torch.randn(6, 3, generator=g) for _ in range(2))
    ours = model(net=Two(), example=(left[:1], right[:1]))
    want = ours.predict([left, right])
    np.testing.assert_array_equal(ours.predict({"right": right, "left": left}), want)
    assert abs(ours.predict([right, left]) - want).max() > 0.1
    y = torch.arange(6) % 4
    assert (model(net=Two(), example=(left, right)).fit({"right": right, "left": left}, y, batch_size=6, verbose=0).history["loss"]
            == model(net=Two(), example=(left, right)).fit([left, right], y, batch_size=6, verbose=0).history["loss"])
    with pytest.raises(megalith.BadData, match="has 'left', 'wrong', but the model takes 'left', 'right'"):
        ours.predict({"left": left, "wrong": right})


def test_targets_are_not_dropped():
    x, y = samples(16)
    with pytest.raises(megalith.BadData, match="2 targets, but this loss compares one"):
        model().fit(x, [y, y], batch_size=8, verbose=0)


def test_lists_of_numbers():
    x, y = samples(8)
    want = model().fit(x, y, batch_size=8, shuffle=False, verbose=0).history["loss"]
    assert model().fit(x, y.tolist(), batch_size=8, shuffle=False, verbose=0).history["loss"] == want
    with pytest.raises(megalith.BadData, match="are one number"):
        model().fit(x, 3, batch_size=8, verbose=0)
    with pytest.raises(megalith.BadData, match="a str is no data"):
        model().fit("no-such-data", verbose=0)


def test_validation_data():
    x, y = samples(40)
    two = [(x[:8], y[:8]), (x[8:16], y[8:16])]
    whole = model().fit(x, y, batch_size=8, shuffle=False, validation_data=(x[:16], y[:16]), verbose=0).history["val_loss"]
    parts = model().fit(x, y, batch_size=8, shuffle=False, validation_data=two, verbose=0).history["val_loss"]
    np.testing.assert_allclose(parts, whole, rtol=1e-5)
    split = model().fit(x, y, batch_size=8, shuffle=False, validation_split=0.2, verbose=0).history
    apart = model().fit(x[:32], y[:32], batch_size=8, shuffle=False, validation_data=(x[32:], y[32:]), verbose=0).history
    assert split == apart
    with pytest.raises(megalith.BadData, match="validation_data= beside"):
        model().fit(TensorDataset(x, y), validation_split=0.2, verbose=0)


def test_predict_and_evaluate():
    x, y = samples(24)
    ours = model()
    want = ours.predict(x, verbose=0)
    for given in (TensorDataset(x, y), DataLoader(TensorDataset(x, y), batch_size=7), [(x[:9],), (x[9:],)]):
        np.testing.assert_allclose(ours.predict(given), want, atol=1e-6)
    logs = ours.evaluate(x, y, verbose=0)
    assert ours.evaluate(x, y, return_dict=False) == [logs["loss"], logs["accuracy"]]


class Bytes(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.fc = nn.Linear(20, 3)

    def forward(self, ids):
        return self.fc(self.table(ids.long()).flatten(1))


def test_bytes_are_whole_numbers():
    ids = torch.arange(20, dtype=torch.uint8).reshape(4, 5) % 9
    ours = model(net=Bytes(), example=ids)
    assert ours.predict(ids).shape == (4, 3)
    with pytest.raises(megalith.BadData, match="takes whole numbers"):
        ours.predict(ids.float())
