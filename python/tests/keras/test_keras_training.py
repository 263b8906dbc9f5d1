"""Twenty steps of training on Keras models are Keras' own, for its optimizers and losses; words that mean
something else are refused."""
import importlib
import json
import os
import subprocess
import tempfile

import numpy as np
import pytest

keras = pytest.importorskip("keras.layers", reason="Keras is not installed") and importlib.import_module("keras")
import reference  # noqa: E402
from keras import layers as L  # noqa: E402

import megalith  # noqa: E402
from megalith import check, losses, onnx_file, optimizers, weights  # noqa: E402
from megalith.capture.keras import capture  # noqa: E402

O, STEPS, BATCH = keras.optimizers, 20, 8
SAME = 2e-4  # of losses in float after twenty steps, relative

OPTIMIZERS = {
    "momentum": lambda: O.SGD(0.05, momentum=0.9),
    "nesterov": lambda: O.SGD(0.03, momentum=0.8, nesterov=True),
    "adam": lambda: O.Adam(0.003, epsilon=1e-3),  # large, so that its place counts
    "adamw": lambda: O.AdamW(0.003, weight_decay=0.1, epsilon=1e-3),
    "rmsprop": lambda: O.RMSprop(0.002, epsilon=1e-3),
    "rmsprop with momentum": lambda: O.RMSprop(0.001, momentum=0.7),
}


def network(units=5, end=None):
    keras.backend.clear_session()
    keras.config.set_floatx("float32")
    keras.utils.set_random_seed(3)
    x = given = keras.Input((8, 8, 2))
    x = L.BatchNormalization()(L.Conv2D(6, 3, padding="same", strides=2)(x))
    x = L.Dense(12, activation="tanh")(L.Flatten()(L.Activation("gelu")(x)))
    return keras.Model(given, L.Dense(units, activation=end)(x))


def samples(units=5):
    rng = np.random.default_rng(5)
    return rng.standard_normal((STEPS * BATCH, 8, 8, 2)).astype("float32"), rng.integers(0, units, STEPS * BATCH).astype("int32")


def keras_losses(model, optimizer, loss, x, y):
    """Step by step, through the same gradients as elsewhere in these tests."""
    way = {"tensorflow": reference._tensorflow, "torch": reference._torch, "jax": reference._jax}[keras.backend.backend()]
    optimizer.build(model.trainable_variables)
    out = []
    for i in range(0, len(x), BATCH):
        a, b = (keras.ops.convert_to_tensor(t[i:i + BATCH]) for t in (x, y))
        value, gradients = way(model, a, b, loss)
        optimizer.apply(gradients, model.trainable_variables)
        out.append(float(reference.array(value)))
    return out


def megalith_losses(captured, optimizer, loss, x, y):
    """(the losses of the steps, the trained weights), by the command: the words of losses.py and optimizers.py."""
    words, rule = losses.to_words(loss), optimizers.to_words(optimizer)
    losses.check_head(words, captured.end)
    with tempfile.TemporaryDirectory() as folder:
        at = {k: os.path.join(folder, k) for k in ("net.onnx", "x.npy", "y.npy", "out.safetensors")}
        onnx_file.write(captured.net, at["net.onnx"])
        np.save(at["x.npy"], np.ascontiguousarray(list(captured.input_arrays(x).values())[0]))
        np.save(at["y.npy"], captured.target_array(words.targets(y)))
        call = [check.command(), "train", at["net.onnx"], "--device", "cpu", "--batch", BATCH, "--loss", words.text, "--data",
                f"npy:images='{at['x.npy']}' labels='{at['y.npy']}'", "--shuffle", "no", "--steps", STEPS, "--lr", rule.lr,
                "--no-test", "--json", "--every", 1, "--save", at["out.safetensors"]]
        call += [w for k, v in rule.words.items() if v is not False for w in (f"--{k}", int(v) if v is True else v)]
        done = subprocess.run([str(w) for w in call], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return [r["step_loss"] for r in records if "step_loss" in r], weights.read_safetensors(at["out.safetensors"])


def both(model, optimizer, loss, x, y):
    """(Megalith's losses, Keras'), from the same weights; and how far the weights are apart, of what they moved."""
    start, captured = [reference.array(v) for v in model.weights], capture(model)
    got, weights = megalith_losses(captured, optimizer(), loss, x, y)
    trained = [reference.array(v) for v in captured.unwrap(weights).weights]
    for v, a in zip(model.weights, start):
        v.assign(a)
    own = keras.losses.get(loss)  # of a string: a function, one loss for each sample
    mean = (lambda t, p: keras.ops.mean(own(t, p))) if isinstance(loss, str) else own
    want = keras_losses(model, optimizer(), mean, x, y)
    off = [float(np.linalg.norm(a - reference.array(v)) / max(np.linalg.norm(reference.array(v) - s), 1e-6))
           for a, v, s in zip(trained, model.weights, start) if v.path.rsplit("/", 1)[-1] in ("kernel", "gamma", "moving_mean")]
    return np.array(got), np.array(want), max(off)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers(kind):
    x, y = samples()
    got, want, off = both(network(end="softmax"), OPTIMIZERS[kind], "sparse_categorical_crossentropy", x, y)
    assert np.ptp(want) > 0.05, "the reference hardly moves"
    print(f"{kind}: losses {np.max(np.abs(got / want - 1)):.1e}, weights {off:.1e} of what they moved")
    np.testing.assert_allclose(got, want, rtol=SAME)
    assert off < 1e-2


RATES = [0.05] * 4 + [0.2] * 4 + [0.0] * 3 + [0.02] * 4 + [1e-3] * 5


@pytest.mark.parametrize("first", [0.05, 0.0])  # one that warms up
@pytest.mark.parametrize("kind", ["momentum", "nesterov", "adam", "rmsprop with momentum"])
def test_rates_that_change(kind, first):
    """Keras has the rate inside of its momentum: steps of before go on with the rate that they had, also under another plan."""
    (x, y), model, rates = samples(), network(end="softmax"), [first] + RATES[1:]
    start, ours, theirs = [reference.array(v) for v in model.weights], megalith.Model(model), OPTIMIZERS[kind]()
    ours.compile(OPTIMIZERS[kind](), "sparse_categorical_crossentropy", lr=first)
    way = {"tensorflow": reference._tensorflow, "torch": reference._torch, "jax": reference._jax}[keras.backend.backend()]
    got, want, scale = [], [], 0.02 if kind[0] in "ar" else 1.0
    sizes = [8] * 6 + [5] + [3] * 6 + [8] * 7
    for i, (n, rate) in enumerate(zip(sizes, rates)):
        if rate != rates[i - 1]:
            ours.lr = rate * scale
            assert ours.lr == rate * scale
        got.append(ours.train_step(x[i * 8:i * 8 + n], y[i * 8:i * 8 + n])["loss"])
    for v, a in zip(model.weights, start):
        v.assign(a)
    theirs.build(model.trainable_variables)
    theirs.learning_rate = first
    for i, (n, rate) in enumerate(zip(sizes, rates)):
        if rate != rates[i - 1]:
            theirs.learning_rate = rate * scale
        a, b = (keras.ops.convert_to_tensor(t[i * 8:i * 8 + n]) for t in (x, y))
        value, gradients = way(model, a, b, lambda t, p: keras.ops.mean(keras.losses.sparse_categorical_crossentropy(t, p)))
        theirs.apply(gradients, model.trainable_variables)
        want.append(float(reference.array(value)))
    np.testing.assert_allclose(got, want, rtol=SAME)
    for name, a in ours.state_dict().items():
        v = next(v for v in model.weights if v.path == name)
        if name.endswith(("kernel", "gamma")):
            np.testing.assert_allclose(a, reference.array(v), atol=2e-4, err_msg=name)


K = keras.losses
LOSSES = {
    "sparse from logits": (5, None, lambda: K.SparseCategoricalCrossentropy(from_logits=True), lambda y: y),
    "categorical": (5, "softmax", lambda: "categorical_crossentropy", lambda y: np.eye(5, dtype="float32")[y]),
    "label smoothing": (5, "softmax", lambda: K.CategoricalCrossentropy(label_smoothing=0.2), lambda y: np.eye(5, dtype="float32")[y]),
    "binary": (1, "sigmoid", lambda: "binary_crossentropy", lambda y: (y[:, None] % 2).astype("float32")),
    "binary from logits": (1, None, lambda: K.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
                           lambda y: (y[:, None] % 2).astype("float32")),
    "mse": (1, None, lambda: "mse", lambda y: (0.3 * y[:, None]).astype("float32")),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_losses(kind):
    units, end, loss, targets = LOSSES[kind]
    x, y = samples()
    got, want, _ = both(network(units, end), lambda: O.SGD(0.05), loss(), x, targets(y))
    print(f"{kind}: {np.max(np.abs(got / want - 1)):.1e}")
    np.testing.assert_allclose(got, want, rtol=SAME)


@pytest.mark.parametrize("end", ["softmax", None])
def test_predict(end):
    """What the loss took from the end of the network is there again."""
    model, (x, _) = network(end=end), samples()
    ours = megalith.Model(model)
    ours.compile("sgd", K.SparseCategoricalCrossentropy(from_logits=end is None))
    want = reference.array(model(keras.ops.convert_to_tensor(x[:16]), training=False))
    np.testing.assert_allclose(ours.predict(x[:16]), want, rtol=1e-4, atol=1e-5)


def own_loss(target, output):
    """One that the library does not have; a number for each sample."""
    return keras.ops.mean(keras.ops.square(output - keras.ops.one_hot(target, 5)), axis=-1)


OWN = {
    "loss": (lambda: O.SGD(0.5), own_loss),
    "optimizer": (lambda: O.Adagrad(0.02), "sparse_categorical_crossentropy"),
    "both": (lambda: O.Adagrad(0.05), own_loss),
}


@pytest.mark.parametrize("which", OWN)
def test_own_parts(which, capsys):
    """A loss, an optimizer that the library does not have run in Python: the losses are Keras'."""
    optimizer, loss = OWN[which]
    model, (x, y) = network(end="softmax"), samples()
    start = [reference.array(v) for v in model.weights]
    ours = megalith.Model(model)
    ours.compile(optimizer(), loss, metrics=["accuracy"])
    said = capsys.readouterr().err
    assert ("loss own_loss is not one" in said, "optimizer Adagrad is not one" in said) == (which != "optimizer", which != "loss")
    got = [ours.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0).history["loss"][0] for _ in range(2)]
    trained = [reference.array(v) for v in ours.unwrap().weights]
    for v, a in zip(model.weights, start):
        v.assign(a)
    own = keras.losses.get(loss)
    rule = optimizer()
    want = [np.mean(keras_losses(model, rule, lambda t, p: keras.ops.mean(own(t, p)), x, y)) for _ in range(2)]
    assert want[1] < 0.99 * want[0], "the reference hardly moves"
    np.testing.assert_allclose(got, want, rtol=SAME)
    for a, v in zip(trained, model.weights):
        if v.path.endswith(("kernel", "gamma")):
            np.testing.assert_allclose(a, reference.array(v), atol=2e-3, err_msg=v.path)


def test_refused():
    model = megalith.Model(network())
    with pytest.raises(losses.UnknownLoss, match="from_logits=True"):
        model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(losses.UnknownLoss, match="ends with Softmax"):
        megalith.Model(network(end="softmax")).compile("sgd", K.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(losses.UnknownLoss, match="no_such_loss"):
        model.compile("sgd", "no_such_loss")
    with pytest.raises(ValueError, match="rows with a single 1"):
        losses.to_words("categorical_crossentropy").targets(np.full((2, 3), 1 / 3))
    for bad, word in ((O.Lion(), "Lion"), (O.Adam(amsgrad=True), "amsgrad"), (O.SGD(weight_decay=0.1), "AdamW"),
                      (O.RMSprop(centered=True), "centered"), (O.SGD(O.schedules.ExponentialDecay(0.1, 10, 0.9)), "schedule")):
        with pytest.raises(optimizers.UnknownOptimizer, match=word):
            optimizers.to_words(bad)
