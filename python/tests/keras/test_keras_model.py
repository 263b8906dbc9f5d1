"""`megalith.Model` on Keras models: what Keras would do and nobody would here is refused; callbacks, losses, data of Keras serve."""
import importlib

import numpy as np
import pytest

keras = pytest.importorskip("keras.layers", reason="Keras is not installed") and importlib.import_module("keras")
import reference  # noqa: E402
from keras import layers as L  # noqa: E402

import megalith  # noqa: E402
from megalith import losses, optimizers  # noqa: E402
from megalith.net import CaptureError  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    keras.backend.clear_session()
    keras.config.set_floatx("float32")
    keras.utils.set_random_seed(3)


def dense(**words):
    x = given = keras.Input((6,), name="given")
    return keras.Model(given, L.Dense(3, activation="softmax")(L.Dense(8, activation="tanh", **words)(x)))


def rows(count=32, classes=3):
    rng = np.random.default_rng(5)
    return rng.standard_normal((count, 6)).astype("float32"), rng.integers(0, classes, count).astype("int32")


def fitted(net=None, loss="sparse_categorical_crossentropy", **words):
    ours = megalith.Model(net or dense())
    ours.compile(words.pop("optimizer", "sgd"), loss, metrics=words.pop("metrics", ()), lr=words.pop("lr", 0.1))
    return ours, ours.fit(*rows(), batch_size=8, verbose=0, **words).history


# ---- what Keras adds

class Adds(L.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(x))
        return x


REFUSED = {
    "regularizer": (lambda: dense(kernel_regularizer="l2"), "the regularizer of '.*kernel' is not supported: .*AdamW"),
    "constraint": (lambda: dense(kernel_constraint="non_neg"), "the constraint of '.*kernel' is not supported"),
    "activity": (lambda: dense(activity_regularizer="l1"), "a regularizer of activity is not supported"),
    "activity layer": (lambda: keras.Sequential([keras.Input((6,)), L.ActivityRegularization(l2=0.1), L.Dense(3)]),
                       "a regularizer of activity is not supported"),
    "add_loss": (lambda: keras.Sequential([keras.Input((6,)), Adds(name="adds"), L.Dense(3)]), "'adds'.*add_loss is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_keras_adds_to_the_loss(name):
    build, words = REFUSED[name]
    try:
        net = build()
    except Exception as e:  # Keras itself, of a loss without numbers
        assert name == "add_loss", e
        pytest.skip("Keras refuses it itself")
    with pytest.raises(CaptureError, match=words):
        megalith.Model(net)


def test_a_regularizer_of_what_is_not_trained():
    net = dense(kernel_regularizer="l2")
    net.layers[1].trainable = False
    megalith.Model(net)


def test_weight_decay_of_a_part():
    rule = keras.optimizers.AdamW(0.003)
    rule.exclude_from_weight_decay(var_names=["bias"])
    with pytest.raises(optimizers.UnknownOptimizer, match="exclude_from_weight_decay"):
        optimizers.to_words(rule)


def test_masks_at_the_end():
    x = given = keras.Input((5,), dtype="int32")
    y = L.Dense(9)(L.Embedding(9, 4, mask_zero=True)(x))
    with pytest.raises(losses.UnknownLoss, match="the output carries a mask of tokens"):
        megalith.Model(keras.Model(given, y)).compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    megalith.Model(keras.Model(given, y + 0.0)).compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


# ---- what comes in

def test_whole_numbers_of_many_axes():
    """Ids of (rows, columns): nobody turns them."""
    x = given = keras.Input((4, 5), dtype="int32")
    net = keras.Model(given, L.Dense(3)(L.Flatten()(L.Embedding(7, 2)(x))))
    ids = np.arange(60).reshape(3, 4, 5).astype("int32") % 7
    ours = megalith.Model(net)
    ours.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    np.testing.assert_allclose(ours.predict(ids), reference.array(net(ids)), atol=1e-5)


def test_inputs_by_name():
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    net = keras.Model([a, b], L.Dense(3)(a) - 2 * L.Dense(3)(b))
    ours, (x, _) = megalith.Model(net), rows()
    ours.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    want = reference.array(net([x, x + 1]))
    np.testing.assert_allclose(ours.predict({"b": x + 1, "a": x}), want, atol=1e-4)


class Batched(keras.utils.PyDataset):
    ends = 0

    def __len__(self):
        return 4

    def __getitem__(self, i):
        x, y = rows()
        return x[8 * i:8 * i + 8], y[8 * i:8 * i + 8]

    def on_epoch_end(self):
        self.ends += 1


def test_a_dataset_of_batches():
    given = Batched()
    want = fitted(shuffle=False, epochs=2)[1]["loss"]
    keras.utils.set_random_seed(3)
    ours = megalith.Model(dense())
    ours.compile("sgd", "sparse_categorical_crossentropy", lr=0.1)
    np.testing.assert_allclose(ours.fit(given, epochs=2, verbose=0).history["loss"], want, rtol=1e-5)
    assert given.ends == 2


def test_tf_data():
    tf = pytest.importorskip("tensorflow")
    want = fitted(shuffle=False, epochs=2)[1]["loss"]
    keras.utils.set_random_seed(3)
    ours = megalith.Model(dense())
    ours.compile("sgd", "sparse_categorical_crossentropy", lr=0.1)
    given = tf.data.Dataset.from_tensor_slices(rows()).batch(8)
    np.testing.assert_allclose(ours.fit(given, epochs=2, verbose=0).history["loss"], want, rtol=1e-5)
    assert ours.session.batch == 8


def test_numbers_that_are_loaded_later(tmp_path):
    other = dense()
    other.save_weights(str(tmp_path / "other.weights.h5"))
    net, (x, _) = dense(), rows()
    ours = megalith.Model(net)
    net.load_weights(str(tmp_path / "other.weights.h5"))
    ours.compile("sgd", "sparse_categorical_crossentropy")
    np.testing.assert_allclose(ours.predict(x), reference.array(other(x)), atol=1e-5)


def test_constants_that_are_loaded_later():
    net = keras.Sequential([keras.Input((6,)), L.BatchNormalization(trainable=False), L.Dense(3)])
    ours = megalith.Model(net)
    net.layers[0].moving_mean.assign(np.ones(6))
    ours.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(CaptureError, match="load weights before megalith.Model"):
        ours.predict(rows()[0])


# ---- losses

def unet(channels=1):
    x = given = keras.Input((8, 8, 2))
    y = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = L.Concatenate()([y, L.UpSampling2D()(L.MaxPooling2D()(y))])
    return keras.Model(given, L.Conv2D(channels, 1, activation="sigmoid")(y))


def tiles(channels=1, count=16):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((count, 8, 8, 2)).astype("float32")
    return x, (x[..., :channels] + 0.3 * x[..., 1:] > 0).astype("float32")


@pytest.mark.parametrize("metrics", [(), ("accuracy",)])
@pytest.mark.parametrize("channels", [1, 3])
def test_sigmoid_of_pixels(channels, metrics):
    """The end of every U-Net of two classes. The library brings the sigmoid along; accuracy is measured in Python."""
    net, (x, y) = unet(channels), tiles(1)
    y = np.repeat(y, channels, -1)
    want = float(np.mean(reference.array(keras.losses.binary_crossentropy(y, net(x)))))
    ours = megalith.Model(net)
    ours.compile("sgd", "binary_crossentropy", metrics=metrics, lr=0.5)
    history = ours.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(want, rel=1e-4) and history["loss"][2] < history["loss"][0]
    assert ("accuracy" in history) == bool(metrics)
    predicted, trained = ours.predict(x), ours.unwrap()
    np.testing.assert_allclose(predicted, reference.array(trained(x)), atol=1e-5)
    if metrics and channels == 1:
        assert ours.evaluate(x, y)["accuracy"] == pytest.approx(float(((predicted > 0.5) == (y > 0.5)).mean()), abs=1e-6)


def test_real_targets_of_steps():
    """As many steps as numbers each."""
    x = given = keras.Input((5, 6))
    net = keras.Model(given, L.Dense(5)(x))
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((8, 5, 6)).astype("float32"), rng.standard_normal((8, 5, 5)).astype("float32")
    want = float(np.mean((reference.array(net(a)) - b) ** 2))
    ours = megalith.Model(net)
    ours.compile("sgd", "mse")
    assert ours.fit(a, b, batch_size=8, verbose=0).history["loss"][0] == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("name", ["mae", "huber"])
def test_other_losses_by_name(name, capsys):
    net, (x, y) = dense(), rows()
    target = np.eye(3, dtype="float32")[y]
    want = float(np.mean(reference.array(keras.losses.get(name)(target, net(x)))))
    ours = megalith.Model(net)
    ours.compile("sgd", name)
    assert "it runs in Python" in capsys.readouterr().err
    assert ours.fit(x, target, batch_size=32, shuffle=False, verbose=0).history["loss"][0] == pytest.approx(want, rel=1e-5)
    with pytest.raises(losses.UnknownLoss, match="no_such_loss"):
        ours.compile("sgd", "no_such_loss")


@pytest.mark.parametrize("loss", ["bce_logits", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("end", [None, "sigmoid"])
def test_names_of_the_library_with_accuracy(loss, end):
    """The library's own names of a loss that Keras has, too: of logits, or of what the sigmoid at the end has made of them."""
    given = keras.Input((6,))
    net = keras.Model(given, L.Dense(1, activation=end)(given))
    x, y = rows(classes=2)
    out = reference.array(net(x))[:, 0]
    chance = out if end else 1 / (1 + np.exp(-out))
    ours = megalith.Model(net)
    ours.compile("sgd", loss, metrics=["accuracy"], lr=0.0)
    found = ours.fit(x, y, batch_size=32, verbose=0).history
    assert found["loss"][0] == pytest.approx(-np.mean(np.log(np.where(y, chance, 1 - chance))), rel=1e-4)
    assert found["accuracy"][0] == pytest.approx(np.mean((chance > 0.5) == y))


def test_accuracy_beside_mse():
    net, (x, y) = dense(), rows()
    target, out = np.eye(3, dtype="float32")[y], reference.array(net(x))
    ours = megalith.Model(net)
    ours.compile("sgd", "mse", metrics=["accuracy", "mae"], lr=0.0)
    found = ours.fit(x, target, batch_size=32, verbose=0).history
    assert found["loss"][0] == pytest.approx(np.mean((out - target) ** 2), rel=1e-4)
    assert found["accuracy"][0] == pytest.approx(np.mean(out.argmax(1) == y))
    assert found["mae"][0] == pytest.approx(np.mean(abs(out - target)), rel=1e-4)


@pytest.mark.parametrize("loss", [keras.losses.dice, keras.losses.Dice()])
def test_dice_of_keras(loss):
    """It is of the whole batch, and of real targets; the library's, by name, is of each sample's classes."""
    net, (x, y) = unet(), tiles()
    want = float(np.mean(reference.array(keras.losses.dice(y, net(x)))))
    ours = megalith.Model(net)
    ours.compile("sgd", loss, lr=0.0)
    assert ours.fit(x, y, batch_size=16, shuffle=False, verbose=0).history["loss"][0] == pytest.approx(want, rel=1e-4)


# ---- callbacks of Keras

def test_callbacks(tmp_path):
    C = keras.callbacks
    seen = []
    told = [C.LearningRateScheduler(lambda epoch, rate: rate / 2), C.EarlyStopping("loss", patience=1, min_delta=100.0),
            C.ModelCheckpoint(str(tmp_path / "best.keras"), monitor="loss"), C.CSVLogger(str(tmp_path / "log.csv")),
            C.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))]
    ours, history = fitted(epochs=5, callbacks=told)
    assert history["lr"] == [0.05, 0.025] and len(seen) == 8
    assert len((tmp_path / "log.csv").read_text().split()) == 3
    saved = keras.models.load_model(str(tmp_path / "best.keras"))
    x = rows()[0]
    np.testing.assert_allclose(reference.array(saved(x)), ours.predict(x), atol=1e-5)


def test_best_weights_come_back():
    stop = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    ours, history = fitted(epochs=4, lr=0.1, callbacks=[stop, keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else 30.0)])
    x, y = rows()
    assert ours.evaluate(x, y)["loss"] <= min(history["loss"]) * 1.01


def test_callbacks_that_cannot_serve(tmp_path):
    with pytest.raises(ValueError, match="use megalith.callbacks.ModelCheckpoint"):
        fitted(callbacks=[keras.callbacks.BackupAndRestore(str(tmp_path))])


def test_callbacks_of_validation(capsys):
    """They are told of its begin and its end; of its batches a line says that they are not."""
    seen = []

    class Told(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            seen.append("begin")

        def on_test_end(self, logs=None):
            seen.append(sorted(logs))

    fitted(epochs=2, callbacks=[Told()], validation_data=rows())
    assert seen == ["begin", ["accuracy", "loss"]] * 2 and "never called" not in capsys.readouterr().err

    class Untold(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            raise AssertionError

    def never(batch, logs):
        raise AssertionError

    for given, name in ((Untold(), "Untold"), (keras.callbacks.LambdaCallback(on_test_batch_end=never), "LambdaCallback")):
        fitted(callbacks=[given], validation_data=rows())
        assert f"{name}.on_test_batch_end: never called" in capsys.readouterr().err
