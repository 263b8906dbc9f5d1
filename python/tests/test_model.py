"""`megalith.Model` on PyTorch models: training is PyTorch's own, weights come back, bad use is told."""
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import megalith  # noqa: E402

SAME = 1e-4  # after ten steps in float, relative by norm; or three times what PyTorch's own float is off its double


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(6 * 16, 5))


def samples(count=40):
    g = torch.Generator().manual_seed(5)
    return torch.randn(count, 2, 8, 8, generator=g), torch.randint(0, 5, (count,), generator=g)


def torch_fit(model, x, y, make, epochs=2, batch=8):
    """(losses of the epochs, state dict) of PyTorch's own training, in the type that the model has"""
    optimizer, losses = make(model.parameters()), []
    for _ in range(epochs):
        total = 0.0
        for i in range(0, len(x), batch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i:i + batch]), y[i:i + batch])
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x[i:i + batch])
        losses.append(total / len(x))
    return losses, {k: t.double() for k, t in model.state_dict().items()}


def distance(a, b):
    return float((a - b).norm()) / max(float(b.norm()), 1e-3)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.003, betas=(0.8, 0.99), eps=1e-6),
    "adamw": lambda p: torch.optim.AdamW(p, 0.003, weight_decay=0.1),
}


@pytest.mark.parametrize("count", [40, 36])  # 36: the last batch of an epoch is smaller
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_fit_is_torch(kind, count):
    net, (x, y) = network(), samples(count)
    own = copy.deepcopy(net)
    model = megalith.Model(net, example=x[:1])
    model.compile(OPTIMIZERS[kind](net.parameters()), nn.CrossEntropyLoss())
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    losses, want = torch_fit(copy.deepcopy(own).double(), x.double(), y, OPTIMIZERS[kind])
    _, single = torch_fit(own, x, y, OPTIMIZERS[kind])
    np.testing.assert_allclose(history.history["loss"], losses, rtol=SAME)
    assert losses[1] < losses[0] - 0.01, "the reference does not learn"
    assert model.unwrap() is net
    allowed = max(SAME, 3 * max(distance(single[k], t) for k, t in want.items()))
    for k, t in want.items():
        assert distance(net.state_dict()[k].double(), t) <= allowed, k


def test_evaluate_predict_and_state_dict():
    net, (x, y) = network(), samples()
    model = megalith.Model(net, example=x[:1])
    model.compile("sgd", "cross_entropy", metrics=["accuracy"], lr=0.05)
    history = model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0)
    state = model.state_dict()
    own = network().eval()
    own.load_state_dict(state)
    with torch.no_grad():
        want = own(x)
    loss = float(nn.functional.cross_entropy(want, y))
    assert model.evaluate(x, y)["loss"] == pytest.approx(loss, rel=1e-5)
    assert history.history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(model.predict(x), want.numpy(), atol=1e-5)
    np.testing.assert_allclose(model.predict(x[:13]), want[:13].numpy(), atol=1e-5)


class Samples(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(2, 8, 8), int(self.y[i])


def test_sources_and_seeds():
    """A Dataset whose samples are changed at random gives the same losses twice; a DataLoader is taken as it is."""
    x, y = samples()
    losses = []
    for _ in range(2):
        model = megalith.Model(network(), example=x[:1])
        model.compile("sgd", "cross_entropy", lr=0.05)
        losses.append(model.fit(Samples(x, y), batch_size=8, epochs=2, verbose=0).history["loss"])
    assert losses[0] == losses[1] and losses[0][1] < losses[0][0]
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy", lr=0.05)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    plain = megalith.Model(network(), example=x[:1])
    plain.compile("sgd", "cross_entropy", lr=0.05)
    assert (model.fit(loader, epochs=2, verbose=0).history["loss"]
            == plain.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"])


def test_callbacks(tmp_path):
    x, y = samples()
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy", lr=0.05)
    cb = megalith.callbacks
    stop = cb.EarlyStopping("loss", patience=0, min_delta=100.0)
    told = [cb.CSVLogger(tmp_path / "log.csv"), cb.ModelCheckpoint(str(tmp_path / "ck/{epoch}")), stop,
            cb.LearningRateScheduler(lambda epoch: 0.05 / (epoch + 1)), cb.TensorBoard(tmp_path / "tb")]
    history = model.fit(x, y, batch_size=8, epochs=9, callbacks=told, verbose=0)
    assert history.history["lr"] == [0.05, 0.025] and stop.stopped_epoch == 1
    lines = (tmp_path / "log.csv").read_text().split()
    assert lines[0] == "epoch,loss,accuracy,lr" and len(lines) == 3
    saved = megalith.Model(network(), example=x[:1])
    saved.compile("sgd", "cross_entropy")
    saved.load_weights(str(tmp_path / "ck/2.safetensors"))
    assert saved.evaluate(x, y, batch_size=8)["loss"] == pytest.approx(model.evaluate(x, y)["loss"], rel=1e-6)
    assert list((tmp_path / "tb").iterdir())[0].stat().st_size > 100


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else -self.fc(x)


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return torch.sort(self.inner(x), 1)[0]


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(4, 3, -1).mean(2)


BAD_MODELS = [
    (Branch(), torch.zeros(2, 4), "decides by the numbers of a tensor"),
    (Sorted(), torch.zeros(2, 4), r"aten\.sort"),
    (nn.Linear(4, 3), None, "example= is missing"),
    (nn.Sequential(nn.BatchNorm1d(4, momentum=None)), torch.zeros(2, 4), "momentum=None"),
    (nn.Sequential(nn.Embedding(9, 4, padding_idx=0)), torch.zeros(2, 5, dtype=torch.long), "padding_idx=0"),
]


@pytest.mark.parametrize("model, example, words", BAD_MODELS)
def test_bad_models(model, example, words):
    with pytest.raises(megalith.CaptureError, match=words):
        megalith.Model(model, example=example)


def fitted(x, y, **words):
    model = megalith.Model(network(), example=samples(1)[0])
    model.compile("sgd", words.pop("loss", "cross_entropy"), lr=words.pop("lr", 0.05))
    return model.fit(x, y, verbose=0, **words)


def test_bad_data():
    x, y = samples()
    for given, error, words in (
            ((x.double().numpy().astype("int64"), y), megalith.BadData, "takes real numbers"),
            ((x, y.float()), megalith.BadData, "labels are classes"),
            ((x, y + 1), megalith.BadData, "a label is 5, but the model has 5 classes: labels are 0 to 4"),
            ((x, y - 1), megalith.BadData, "a label is -1"),
            ((x * float("nan"), y), megalith.BadData, "of the batch has numbers that are not finite"),
            ((x.numpy().astype("complex64"), y), megalith.BadData, "but got complex64: give numbers"),
            ((x, y.numpy().astype("complex64")), megalith.BadData, "whole numbers, but got complex64"),
            ((x, np.array(["a"] * 40)), megalith.BadData, "whole numbers, but got"),
            ((x[:, :, :4], y), megalith.BadData, "captured for 2x8x8"),
            ((x[:5], y), megalith.BadData, "5 and 40 samples"),
            ((x, None), megalith.BadData, "y= is missing")):
        with pytest.raises(error, match=words):
            fitted(*given, batch_size=8)


def test_bad_words():
    x, y = samples()
    with pytest.raises(ValueError, match="use one of softmax_xent"):
        fitted(x, y, loss="hinge")
    with pytest.raises(ValueError, match="use one of sgd"):
        megalith.Model(network(), example=x[:1]).compile("adagrad")
    with pytest.raises(ValueError, match="is no optimizer: use one of"):
        megalith.Model(network(), example=x[:1]).compile(3)
    model = megalith.Model(nn.Linear(4, 1), example=torch.zeros(1, 4))
    model.compile("sgd", "mse")
    with pytest.raises(megalith.NotFinite, match="use a smaller lr"):
        model.fit(torch.ones(8, 4), torch.full((8, 1), 1e30), batch_size=8, verbose=0)


def test_no_class_counts():
    """PyTorch's -100, and another number, stand where no class counts."""
    x, y = samples(8)
    for ignored in (-100, 255):
        given = y.clone()
        given[::2] = ignored
        loss = nn.CrossEntropyLoss(ignore_index=ignored)
        got = fitted(x, given, loss=loss, batch_size=8, shuffle=False).history["loss"][0]
        assert got == pytest.approx(float(loss(network()(x), given).detach()), rel=1e-5)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, x):
        return self.conv(x)


def test_labels_of_pixels():
    x, _ = samples(4)
    model = megalith.Model(Pixels(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    with pytest.raises(megalith.BadData, match="a label is 3, but the model has 3 classes"):
        model.fit(x, torch.full((4, 8, 8), 3), batch_size=4, verbose=0)


def test_ids_of_any_width():
    model = megalith.Model(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), example=torch.zeros(1, 5, dtype=torch.long))
    model.compile("sgd", "cross_entropy")
    ids = np.arange(20).reshape(4, 5) % 9
    got = [model.predict(ids.astype(kind)) for kind in ("int64", "int16", "uint8", "uint32")]
    assert all(np.array_equal(got[0], y) for y in got[1:])
    with pytest.raises(megalith.BadData, match="takes whole numbers"):
        model.predict(ids.astype("float32"))


class Twisted(torch.autograd.Function):
    """A custom gradient, which no capture can see."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return Twisted.apply(self.fc(x))


def test_check():
    x, y = samples(8)
    assert megalith.check(network(), x, y) < 1e-4
    assert megalith.check(nn.Sequential(network(), nn.Dropout(0.5), nn.Linear(5, 5)), x, y) < 1e-4
    with pytest.raises(megalith.check.Mismatch, match="fc.weight"):
        megalith.check(Custom(), torch.randn(6, 4), torch.randint(0, 3, (6,)))


def test_numbers_that_are_loaded_later():
    """After Model(net) and before the first step: weights and statistics are those of the module then."""
    x, _ = samples(16)
    net, state = network(), network().state_dict()
    state = {k: t + 0.3 if t.is_floating_point() else t for k, t in state.items()}
    model = megalith.Model(net, example=x[:1])
    net.load_state_dict(state)
    model.compile("sgd", "cross_entropy")
    net.eval()
    with torch.no_grad():
        np.testing.assert_allclose(model.predict(x), net(x).numpy(), atol=1e-5)


def written(path, tensors):
    """A safetensors file, as other programs write it."""
    import json
    kinds, head, at, out = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}, {}, 0, []
    for k, t in tensors.items():
        data = (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).contiguous().numpy().tobytes()
        head[k] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        out.append(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(out))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_weights_of_a_file_of_pytorch(kind, tmp_path):
    """Before anything was trained: counters are no weights, bfloat16 is read."""
    x, _ = samples(16)
    other = network()
    with torch.no_grad():
        for t in other.parameters():
            t.mul_(1.5)
    path = str(tmp_path / "other.safetensors")
    written(path, {k: t.to(kind) if t.is_floating_point() else t for k, t in other.state_dict().items()})
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.load_weights(path)
    other.eval()
    with torch.no_grad():
        want = other.to(kind).float()(x).numpy()
    np.testing.assert_allclose(model.predict(x), want, atol=1e-4)
    written(path, {"0.weight": other.state_dict()["0.weight"].float()})
    with pytest.raises(ValueError, match="weights of the model are not in .*other.safetensors"):
        model.load_weights(path)


def test_a_backward_of_ones_own_is_found(capsys):
    """In fit, without being asked; not where the user says so, nor where there is none."""
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    model = megalith.Model(Custom(), example=x)
    model.compile("sgd", "cross_entropy")
    with pytest.raises(megalith.CaptureError, match=r"it calls Twisted \(autograd.Function\).*fc.weight.*check=False"):
        model.fit(x, y, batch_size=6, verbose=0)
    model = megalith.Model(Custom(), example=x, check=False)
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, batch_size=6, verbose=0)
    assert megalith.Model(network(), example=samples(1)[0]).functions.names == []
    model = megalith.Model(network(), example=samples(1)[0], check=True)
    model.compile("sgd", "cross_entropy")
    model.fit(*samples(8), batch_size=8, verbose=0)
    assert model.functions.done


def test_summary(capsys):
    x, y = samples(8)
    model = megalith.Model(network(), example=x[:1])
    text = model.summary()
    assert capsys.readouterr().out.strip() == text
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["layer", "operators", "parameters"]
    assert ["0", "Conv", "108"] in lines and ["1", "BatchNormalization", "12"] in lines and ["5", "Gemm", "485"] in lines
    model.compile("sgd", "cross_entropy")
    model.predict(x)
    assert len(model.summary().splitlines()) > len(lines)


def test_weights_of_a_file_before_anything_is_trained(tmp_path):
    """Whoever asks for the numbers gets those of the file, and so does training where some of them were set."""
    x, _ = samples(16)
    path, other = str(tmp_path / "start.safetensors"), network()
    with torch.no_grad():
        other[5].weight.mul_(1.5)
        other[1].running_mean.add_(0.5)
    written(path, other.state_dict())
    assert torch.equal(megalith.Model(network(), example=x[:1], weights=path).unwrap()[5].weight, other[5].weight)
    model = megalith.Model(network(), example=x[:1], weights=path)
    assert torch.equal(model.state_dict()["1.running_mean"], other[1].running_mean)
    np.testing.assert_array_equal(model.get_weights()["5.weight"], other[5].weight.detach().numpy())
    model.set_weights({"5.bias": np.full(5, 2, np.float32)})
    model.compile("sgd", "cross_entropy")
    with torch.no_grad():
        other[5].bias.fill_(2.0)
        np.testing.assert_allclose(model.predict(x), other.eval()(x).numpy(), atol=1e-4)
    with pytest.raises(FileNotFoundError):
        megalith.Model(network(), example=x[:1], weights=str(tmp_path / "none.safetensors"))
    written(path, {**other.state_dict(), "5.weight": other[5].weight.detach().T.contiguous()})
    with pytest.raises(ValueError, match="'5.weight' is 96x5, but the model has 5x96"):
        megalith.Model(network(), example=x[:1], weights=path)


class Tied(nn.Module):
    """A weight with two names, one that no output depends on, and a buffer that is computed with when the model is captured."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))) * (self.scale + 1)


def test_set_weights():
    """Names of the framework, second names of shared weights, whole numbers; what nobody has is told."""
    x, net = torch.randn(5, 4), Tied()
    model, own = megalith.Model(net, example=x), Tied()
    model.compile("sgd", "mse")
    for trained in (False, True):
        with torch.no_grad():
            own.a.weight.add_(0.5)
            own.b.bias.fill_(3.0)
        model.set_weights({"b.weight": own.b.weight.detach(), "b.bias": np.full(4, 3)})
        np.testing.assert_allclose(model.predict(x), own(x).detach().numpy(), rtol=1e-5)
        model.set_weights(own.state_dict())
        model.set_weights(model.get_weights())
        for given, words in (({"c.weight": np.zeros((4, 4))}, "1 of the given names are not the model's: c.weight"),
                             ({"a.weight": np.zeros((4, 5))}, "'a.weight' is 4x5, but the model has 4x4"),
                             ({"a.weight": np.zeros((4, 4), "complex64")}, "weights are real numbers"),
                             ({"scale": np.full(4, 5.0)}, "'scale' has other numbers than the model")):
            with pytest.raises(ValueError, match=words):
                model.set_weights(given)


class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return super().forward(x) * self.factor


def test_a_weight_of_one_number():
    """It goes from plan to plan, and is set."""
    net, x, y = Scaled(), torch.randn(16, 4), torch.arange(16) % 3
    model, own = megalith.Model(net, example=x), copy.deepcopy(net)
    model.compile({"optimizer": "sgd", "momentum": 0.9}, "cross_entropy", lr=0.1)
    optimizer = torch.optim.SGD(own.parameters(), 0.1, momentum=0.9)
    for n in (4, 8, 16):
        model.train_step(x[:n], y[:n])
        optimizer.zero_grad()
        nn.functional.cross_entropy(own(x[:n]), y[:n]).backward()
        optimizer.step()
    assert float(model.get_weights()["factor"]) == pytest.approx(float(own.factor), rel=1e-5)
    for number, given in ((3, np.float32(3)), (4, np.array([4])), (5, torch.tensor(5.0))):
        model.set_weights({"factor": given})
        assert model.get_weights()["factor"] == number


def test_class_weights_are_no_weights(tmp_path):
    """They are the loss's: neither what comes out, nor a file, brings them into another training."""
    x, y = samples(8)
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3, 4, 5])), lr=0.0)
    want = model.fit(x, y, batch_size=8, verbose=0).history["loss"]
    model.save_weights(tmp_path / "a.safetensors")
    state = model.get_weights()
    assert "loss.weight" not in state
    other = megalith.Model(network(), example=x[:1], weights=tmp_path / "a.safetensors")
    other.compile("sgd", nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3, 4, 5])), lr=0.0)
    assert other.fit(x, y, batch_size=8, verbose=0).history["loss"] == pytest.approx(want, rel=1e-5)
    model.load_weights(tmp_path / "a.safetensors")


class Kept(nn.Module):
    """A backward of its own, which is the right one, and a normalisation that stays in eval()."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def __init__(self, *more):
        super().__init__()
        torch.manual_seed(2)
        self.fc, self.norm, self.more = nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Sequential(*more)
        self.norm.running_mean.fill_(0.5)
        self.norm.eval()

    def forward(self, x):
        return self.more(self.Doubled.apply(self.norm(self.fc(x))))


class Recurrent(Kept):
    def __init__(self):
        super().__init__(nn.Linear(3, 6), nn.Unflatten(1, (3, 2)))
        self.rnn = nn.LSTM(2, 3, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.rnn(super().forward(x))[0][:, -1]


class Tokens(Kept):
    """(n, 5, 3): classes come last."""

    def __init__(self):
        super().__init__(nn.Linear(3, 15), nn.Unflatten(1, (5, 3)))


RIGHT = {
    "eval": (Kept, "cross_entropy", lambda n: torch.arange(n) % 3),
    "lstm": (Recurrent, "cross_entropy", lambda n: torch.arange(n) % 3),
    "dice": (lambda: Kept(nn.Linear(3, 12), nn.Unflatten(1, (3, 2, 2))), "dice", lambda n: torch.arange(4 * n).reshape(n, 2, 2) % 3),
    "weights": (Kept, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3])), lambda n: torch.arange(n) % 3),
    "tokens": (Tokens, "cross_entropy", lambda n: torch.arange(5 * n).reshape(n, 5) % 3),
    "whole bce": (lambda: Kept(nn.Linear(3, 1)), "bce_logits", lambda n: torch.arange(n) % 2),
    "whole mse": (Kept, nn.MSELoss(), lambda n: torch.arange(3 * n).reshape(n, 3)),
    "own loss": (Kept, lambda y, t: nn.functional.cross_entropy(y, t) + (y ** 2).mean(), lambda n: torch.arange(n) % 3),
}


@pytest.mark.parametrize("what", RIGHT)
def test_right_models_are_not_refused(what, capsys):
    """Whatever the loss and the targets: a backward that is right is compared, and found right; one that is wrong is not."""
    make, loss, targets = RIGHT[what]
    x, y, net = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)), targets(8), make()
    model = megalith.Model(net, example=x)
    assert model.functions.names == ["Doubled"]
    model.compile("sgd", loss)
    model.fit(x, y, batch_size=8, verbose=0)
    assert model.functions.done and "compared" not in capsys.readouterr().err
    model = megalith.Model(nn.Sequential(nn.Linear(4, 4), Twice(), net), example=x)
    model.compile("sgd", loss)
    with pytest.raises(megalith.CaptureError, match="whose own backward no capture sees"):
        model.fit(x, y, batch_size=8, verbose=0)


class Twice(nn.Module):
    def forward(self, x):
        return Twisted.apply(x)


class Dropped(Kept):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def test_what_cannot_be_compared_is_told(capsys):
    """Random numbers of the code, a step that PyTorch cannot do, one without a gradient: training goes on, with a line."""
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    idle = nn.Sequential(Kept(), nn.Linear(3, 3))
    with torch.no_grad():
        idle[1].weight.fill_(0.0)
        idle[1].bias.copy_(torch.tensor([1e5, 0, 0]))
    for net, given, words in ((Dropped(), (x, y), "draws random numbers"), (idle, (x, 0 * y), "degenerate"),
                              (nn.Sequential(Kept(), nn.BatchNorm1d(3)), (x[:1], y[:1]), "Expected more than 1 value per channel")):
        model = megalith.Model(net, example=x)
        model.compile("sgd", "cross_entropy", lr=1e-6)
        model.fit(*given, batch_size=8, verbose=0)
        said = capsys.readouterr().err
        assert "they were not compared with PyTorch's" in said and words in said, said
