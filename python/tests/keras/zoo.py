"""Keras models that captures are compared on, each with what a batch of it is.

`NETS[name]()` builds one, with the Keras back end and float type that are set. Dropout is at 0, as Keras' random numbers
are not ours; normalisations and biases are drawn, so that no mistake of order can hide behind ones and zeros.
"""
import dataclasses
from typing import Any, Callable, Dict, Tuple

import keras
import numpy as np
from keras import layers as L


def resnet50():
    return keras.applications.ResNet50(weights=None, input_shape=(48, 48, 3), classes=5)


def vgg19():
    return keras.applications.VGG19(weights=None, input_shape=(48, 48, 3), classes=5)


def inception():
    return keras.applications.InceptionV3(weights=None, input_shape=(75, 75, 3), classes=5)


def mobilenet():
    return keras.applications.MobileNet(weights=None, input_shape=(64, 64, 3), classes=5, alpha=0.25, dropout=0)


def unet(width=4, depth=2, size=20):
    def twice(x, filters):
        for _ in range(2):
            x = L.ReLU()(L.BatchNormalization()(L.Conv2D(filters, 3, padding="same")(x)))
        return x

    x = given = keras.Input((size, size, 3))
    skips = []
    for d in range(depth):
        x = twice(x, width * 2 ** d)
        skips.append(x)
        x = L.MaxPooling2D()(x)
    x = twice(x, width * 2 ** depth)
    for d in reversed(range(depth)):
        x = L.Conv2DTranspose(width * 2 ** d, 2, strides=2)(x)
        x = twice(L.Concatenate()([skips[d], x]), width * 2 ** d)
    return keras.Model(given, L.Conv2D(3, 1)(x), name="unet")


def cnn3d(width=4, size=8):
    x = given = keras.Input((size, size, size, 2))
    for k in range(2):
        x = L.Conv3D(width * 2 ** k, 3, padding="same")(x)
        x = L.LeakyReLU(negative_slope=0.25)(L.BatchNormalization()(x))
        # TensorFlow has no pools of doubles in space
        x = L.Conv3D(width * 2 ** k, 2, strides=2)(x) if keras.backend.backend() == "tensorflow" else L.MaxPooling3D()(x)
    x = L.LeakyReLU(negative_slope=0.25)(L.Dense(16)(L.Flatten()(x)))
    return keras.Model(given, L.Dense(4)(x), name="cnn3d")


class Positions(L.Layer):
    """Tokens and their places, as Keras' own examples write it."""

    def __init__(self, length, vocabulary, width, **rest):
        super().__init__(**rest)
        self.token = L.Embedding(vocabulary, width, name="token")
        self.place = L.Embedding(length, width, name="place")

    def call(self, x):
        return self.token(x) + self.place(keras.ops.arange(0, x.shape[-1], 1))


class Block(L.Layer):
    """A transformer's block of the user's own."""

    def __init__(self, width, heads, **rest):
        super().__init__(**rest)
        self.norm1, self.norm2 = L.LayerNormalization(name="norm1"), L.LayerNormalization(name="norm2")
        self.attention = L.MultiHeadAttention(heads, width // heads, name="attention")
        self.up, self.down = L.Dense(4 * width, activation="gelu", name="up"), L.Dense(width, name="down")

    def call(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, use_causal_mask=True)
        return x + self.down(self.up(self.norm2(x)))


def gpt(vocabulary=31, tokens=12, width=16, heads=2, blocks=2):
    x = given = keras.Input((tokens,), dtype="int32")
    x = Positions(tokens, vocabulary, width, name="positions")(x)
    for k in range(blocks):
        x = Block(width, heads, name=f"block{k}")(x)
    x = L.LayerNormalization(name="last")(x)
    return keras.Model(given, L.Dense(vocabulary, use_bias=False, name="head")(x), name="gpt")


@dataclasses.dataclass
class Net:
    build: Callable[[], Any]
    classes: int
    batch: int = 4
    vocabulary: int = 0
    labels: Tuple[int, ...] = ()  # extents behind the batch

    def data(self, model: Any, seed: int = 1) -> Tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        shape = (self.batch, *model.inputs[0].shape[1:])
        x = rng.integers(0, self.vocabulary, shape).astype("int32") if self.vocabulary else rng.standard_normal(shape).astype("float32")
        return x, rng.integers(0, self.classes, (self.batch, *self.labels)).astype("int32")


NETS: Dict[str, Net] = {
    "resnet50": Net(resnet50, 5),
    "vgg19": Net(vgg19, 5),
    "inception": Net(inception, 5),
    "mobilenet": Net(mobilenet, 5),
    "unet": Net(unet, 3, labels=(20, 20)),
    "cnn3d": Net(cnn3d, 4),
    "gpt": Net(gpt, 31, vocabulary=31, labels=(12,)),
}


def draw(model: Any, seed: int = 1) -> None:
    """Numbers that a network could have after some training, the same for every back end and float type."""
    rng = np.random.default_rng(seed)
    def put(v, numbers):
        v.assign(np.asarray(numbers, np.float32))  # the same in double
    for v in model.weights:
        kind, shape = v.path.rsplit("/", 1)[-1], tuple(v.shape)
        if kind in ("moving_variance", "gamma"):
            put(v, rng.uniform(0.5, 1.5, shape))
        elif kind in ("beta", "bias", "moving_mean"):
            put(v, 0.1 * rng.standard_normal(shape))
        elif len(shape) > 1:
            fan = np.prod(shape[:-1]) if "depthwise" not in v.path else np.prod(shape[:2])
            fan = shape[0] if "attention" in v.path and "output" not in v.path else fan
            put(v, rng.standard_normal(shape) * np.sqrt(1.5 / fan) if kind != "embeddings" else rng.standard_normal(shape))


def make(name: str, kind: str, seed: int = 1) -> Any:
    """The model in float32 or float64."""
    keras.backend.clear_session()
    keras.config.set_floatx(kind)
    model = NETS[name].build()
    for layer in model._flatten_layers():
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    draw(model, seed)
    return model
