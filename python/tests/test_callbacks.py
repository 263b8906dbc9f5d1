"""Callbacks stop, save and begin anew when Keras' own would."""
import pytest

torch = pytest.importorskip("torch")
from test_model import network, samples  # noqa: E402

import megalith  # noqa: E402

cb = megalith.callbacks


class Fake:
    stop_training = False

    def save_weights(self, path):
        self.saved = path


def told(callback, losses):
    """Epochs until it stops."""
    callback.model = Fake()
    callback.on_train_begin({})
    for epoch, loss in enumerate(losses):
        callback.on_epoch_end(epoch, {"loss": loss})
        if callback.model.stop_training:
            return epoch
    return None


@pytest.mark.parametrize("patience, losses, stops", [(0, [2, 1, 1], 2), (1, [2, 1, 1, 1], 2), (2, [2, 1, 1, 1, 1], 3),
                                                     (2, [2, 1, 1, 0.5, 1, 1, 1], 5)])
def test_patience(patience, losses, stops):
    """Keras: wait >= patience."""
    stop = cb.EarlyStopping("loss", patience=patience)
    assert told(stop, losses) == stops
    assert told(stop, losses) == stops, "another training begins anew"
    keras = pytest.importorskip("keras.callbacks", exc_type=ImportError)
    theirs = keras.EarlyStopping("loss", patience=patience)
    fake = Fake()
    fake.optimizer, fake.metrics = None, []
    theirs.set_model(fake)
    theirs.on_train_begin({})
    for epoch, loss in enumerate(losses):
        theirs.on_epoch_end(epoch, {"loss": loss})
        if fake.stop_training:
            break
    assert epoch == stops


@pytest.mark.parametrize("given, name", [("a/{loss:.3f}", "a/0.500.safetensors"), ("a/b", "a/b.safetensors"), ("c.bin", "c.bin"),
                                         ("v1.{epoch}", "v1.2.safetensors")])
def test_names_of_checkpoints(given, name, tmp_path):
    check = cb.ModelCheckpoint(str(tmp_path / given), "loss")
    check.model = Fake()
    check.on_epoch_begin(1, {})
    check.on_epoch_end(1, {"loss": 0.5})
    assert check.model.saved == str(tmp_path / name)


def test_checkpoints_of_batches(tmp_path):
    x, y = samples(40)
    model = megalith.Model(network(), example=x[:1])
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, batch_size=8, epochs=2, verbose=0,
              callbacks=[cb.ModelCheckpoint(str(tmp_path / "{epoch}-{batch}"), save_weights_only=True, save_freq=4)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1-4.safetensors", "2-3.safetensors"]
    with pytest.raises(ValueError, match="weights alone"):
        cb.ModelCheckpoint("a", save_weights_only=False)
