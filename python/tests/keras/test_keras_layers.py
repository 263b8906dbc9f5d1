"""Every layer that can be captured, alone in a small network: loss and gradients are Keras' own, in double (1e-9); what
cannot is refused by name, with what would do instead."""
import importlib

import numpy as np
import pytest

keras = pytest.importorskip("keras.layers", reason="Keras is not installed") and importlib.import_module("keras")
import reference  # noqa: E402
import zoo  # noqa: E402
from keras import layers as L  # noqa: E402

from megalith import check  # noqa: E402
from megalith.capture.keras import capture  # noqa: E402
from megalith.net import CaptureError  # noqa: E402

IMAGE, LINE, CUBE, ROW = (7, 9, 4), (9, 4), (5, 6, 4, 2), (10,)


def nested():
    a = keras.Input(IMAGE)
    inner = keras.Model(a, L.Conv2D(4, 3, padding="same", name="c")(a), name="inner")
    x = given = keras.Input(IMAGE)
    return keras.Model(given, L.GlobalAveragePooling2D()(inner(L.Activation("tanh")(inner(x)))))


def same_names():
    x = given = keras.Input(ROW)
    for k in range(2):
        a = keras.Input((10,))
        x = keras.Model(a, L.Dense(10, activation="tanh", name="same")(a), name=f"part{k}")(x)
    return keras.Model(given, x)


def frozen():
    x = given = keras.Input(IMAGE)
    fixed = L.Conv2D(4, 3, name="fixed", trainable=False)
    return keras.Model(given, L.Conv2D(3, 2)(L.BatchNormalization(trainable=False)(fixed(x))))


class Gate(L.Layer):
    """Written with keras.ops, a weight of its own among data."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="bias", initializer="ones")

    def call(self, x):
        y = keras.ops.sigmoid(x * self.scale)
        return keras.ops.concatenate([x * y, keras.ops.mean(x, axis=1, keepdims=True)], axis=1)[:, 1:]


def squeeze_excite(x):
    y = L.GlobalAveragePooling2D(keepdims=True)(x)
    return L.Multiply()([x, L.Conv2D(4, 1, activation="sigmoid")(L.Conv2D(2, 1, activation="silu")(y))])


def masked(causal=False, rate=0.0):
    x = given = keras.Input((6,), dtype="int32")
    x = L.Embedding(9, 8, mask_zero=True)(x)
    return keras.Model(given, L.MultiHeadAttention(2, 4, dropout=rate)(x, x, use_causal_mask=causal))


LAYERS = {  # name: (shape of a sample, what is put on it)
    "conv1d": (LINE, L.Conv1D, dict(filters=3, kernel_size=3, strides=2, padding="same")),
    "conv1d causal": (LINE, L.Conv1D, dict(filters=3, kernel_size=3, dilation_rate=2, padding="causal")),
    "conv2d even": (IMAGE, L.Conv2D, dict(filters=3, kernel_size=(4, 2), strides=(2, 3), padding="same", use_bias=False)),
    "conv2d groups": (IMAGE, L.Conv2D, dict(filters=6, kernel_size=3, groups=2, activation="elu")),
    "conv2d dilated": (IMAGE, L.Conv2D, dict(filters=3, kernel_size=3, dilation_rate=2, padding="same")),
    "conv3d": (CUBE, L.Conv3D, dict(filters=3, kernel_size=2, strides=(1, 2, 1), padding="same")),
    "depthwise": (IMAGE, L.DepthwiseConv2D, dict(kernel_size=3, depth_multiplier=2, strides=2, padding="same")),
    "separable": (IMAGE, L.SeparableConv2D, dict(filters=5, kernel_size=3, depth_multiplier=2, padding="same")),
    "separable1d": (LINE, L.SeparableConv1D, dict(filters=5, kernel_size=3)),
    "transpose": (IMAGE, L.Conv2DTranspose, dict(filters=3, kernel_size=3, strides=2, padding="same")),
    "transpose even": (IMAGE, L.Conv2DTranspose, dict(filters=3, kernel_size=4, strides=2, padding="same")),
    "transpose valid": (IMAGE, L.Conv2DTranspose, dict(filters=3, kernel_size=2, strides=3)),
    "transpose1d": (LINE, L.Conv1DTranspose, dict(filters=3, kernel_size=3, strides=2)),
    "max pool": (IMAGE, L.MaxPooling2D, dict(pool_size=3, strides=2, padding="same")),
    "average pool": (IMAGE, L.AveragePooling2D, dict(pool_size=3, strides=2, padding="same")),
    "average pool even": (IMAGE, L.AveragePooling2D, dict(pool_size=2, strides=1, padding="same")),
    "pool1d": (LINE, L.MaxPooling1D, dict(pool_size=2)),
    "global max": (IMAGE, L.GlobalMaxPooling2D, {}),
    "global average 1d": (LINE, L.GlobalAveragePooling1D, {}),
    "zero padding": (IMAGE, L.ZeroPadding2D, dict(padding=((1, 0), (2, 3)))),
    "cropping": (IMAGE, L.Cropping2D, dict(cropping=((1, 0), (2, 1)))),
    "upsampling": (IMAGE, L.UpSampling2D, dict(size=(2, 3))),
    "upsampling bilinear": (IMAGE, L.UpSampling2D, dict(size=2, interpolation="bilinear")),
    "upsampling1d": (LINE, L.UpSampling1D, dict(size=2)),
    "batch norm": (ROW, L.BatchNormalization, dict(scale=False)),
    "layer norm": (LINE, L.LayerNormalization, dict(center=False)),
    "layer norm of images": (IMAGE, L.LayerNormalization, {}),
    "layer norm of two axes": (LINE, L.LayerNormalization, dict(axis=(1, 2))),
    "group norm": (IMAGE, L.GroupNormalization, dict(groups=2)),
    "instance norm": (IMAGE, L.GroupNormalization, dict(groups=-1)),
    "prelu": (IMAGE, L.PReLU, dict(alpha_initializer="ones")),
    "prelu shared": (IMAGE, L.PReLU, dict(alpha_initializer="ones", shared_axes=[1, 2])),
    "relu6": (IMAGE, L.ReLU, dict(max_value=0.5)),
    "leaky": (IMAGE, L.LeakyReLU, dict(negative_slope=0.25)),
    "softmax": (LINE, L.Softmax, {}),
    "permute": (IMAGE, L.Permute, dict(dims=(3, 1, 2))),
    "reshape": (IMAGE, L.Reshape, dict(target_shape=(63, 4))),
    "reshape across": (IMAGE, L.Reshape, dict(target_shape=(12, 21))),
    "repeat": (ROW, L.RepeatVector, dict(n=3)),
    "rescaling": (IMAGE, L.Rescaling, dict(scale=0.25, offset=-1.0)),
    "normalization": (IMAGE, L.Normalization, dict(mean=[0.5, 0, 1, 2], variance=[1, 2, 4, 0.25])),
    "einsum": (LINE, L.EinsumDense, dict(equation="abc,cde->abde", output_shape=(9, 2, 3), bias_axes="de")),
    "dense of tokens": (LINE, L.Dense, dict(units=6, activation="softplus")),
    "gate": (LINE, Gate, {}),
    **{f"activation {name}": (ROW, L.Activation, dict(activation=name)) for name in (
        "selu", "sigmoid", "hard_sigmoid", "softsign", "silu", "hard_silu", "mish", "exponential", "log_softmax", "relu6",
        "leaky_relu", "log_sigmoid")},
}
# TensorFlow and Keras round to float inside of these, also of doubles
ROUNDED = {"activation leaky_relu": 1e-7, "upsampling bilinear": 1e-6, "activation hard_sigmoid": 1e-7, "activation hard_silu": 1e-7,
           "activation selu": 1e-7}
OWN = {
    "nested": nested, "same names": same_names, "frozen": frozen, "masked": masked,
    "masked, causal": lambda: masked(causal=True),
    # Keras has another way where there is dropout: so little of it that the numbers are the same
    "masked, dropout": lambda: masked(rate=1e-12),
    "merges": lambda: on(IMAGE, lambda x: L.Average()([L.Maximum()([x, L.Conv2D(4, 1)(x)]), L.Subtract()([x, L.Multiply()([x, x])])])),
    "squeeze excite": lambda: on(IMAGE, squeeze_excite),
    "flatten": lambda: on(IMAGE, lambda x: L.Dense(4)(L.Activation("tanh")(L.Flatten()(L.Conv2D(3, 2)(x))))),
    "flatten, normalised": lambda: on(IMAGE, lambda x: L.Dense(4)(L.BatchNormalization()(L.Flatten()(L.Conv2D(3, 2)(x))))),
    "vit": lambda: on(IMAGE, lambda x: L.MultiHeadAttention(2, 3, value_dim=2)(*[L.Reshape((63, 4))(x)] * 2)),
    "numbers": lambda: on(LINE, lambda x: keras.ops.sqrt(1.5 + keras.ops.square(2.0 - x / 3.0)) * np.arange(4.0)),
}


def on(shape, function):
    given = keras.Input(shape)
    x = L.Conv2D(shape[-1], 1)(given) if len(shape) == 3 else L.Dense(shape[-1])(given)
    return keras.Model(given, function(x))


def one_step(build, name):
    keras.backend.clear_session()
    keras.config.set_floatx("float64")
    model = build()
    rank = len(model.outputs[0].shape)
    if rank > 2 or name.startswith("activation"):  # a loss of classes behind it
        flat = L.Flatten()(model.outputs[0]) if rank > 2 else model.outputs[0]
        model = keras.Model(model.inputs, L.Dense(5, name="classes")(flat))
    zoo.draw(model)
    rng, given = np.random.default_rng(2), model.inputs[0]
    shape = (3, *given.shape[1:])
    x = rng.integers(0, 9, shape).astype("int32") if given.dtype == "int32" else rng.standard_normal(shape).astype("float32")
    y = rng.integers(0, model.outputs[0].shape[-1], 3).astype("int32")
    captured = capture(model)
    arrays = list(captured.input_arrays(x).values())
    ours = check.megalith_step(captured.net, arrays, y, "ref64")
    judge = reference.step(model, captured, x, y, reference.entropy(True))
    print(f"{name}: {check.compare(ours, judge, tolerance=ROUNDED.get(name, 1e-9)):.1e}")


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    shape, layer, words = LAYERS[name]
    one_step(lambda: on(shape, layer(**words)), name)


@pytest.mark.parametrize("name", OWN)
def test_graph(name):
    one_step(OWN[name], name)


# ---- what is refused

class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = L.Dense(3)

    def call(self, x):
        return self.dense(x)


class Branches(L.Layer):
    def call(self, x):
        return x if float(keras.ops.sum(x)) > 0 else -x


def other_ids(number):
    """A mask of ids that the table has no row for."""
    ids = keras.Input((6,), dtype="int32")
    rows, mask = L.Embedding(9, 4)(ids), keras.ops.expand_dims(keras.ops.not_equal(ids, number), -1)
    return keras.Model(ids, L.Dense(3)(L.GlobalAveragePooling1D()(rows * keras.ops.cast(mask, "float32"))))


BAD = {
    "negative ids": (lambda: other_ids(-1), "compared with -1, but those are 0 to 8 here"),
    "no ids": (lambda: other_ids(9), "compared with 9, but those are 0 to 8 here"),
    "subclass": (Subclass, "functional model"),
    "sequential": (lambda: keras.Sequential([L.Dense(3)]), "not built yet"),
    "open size": (lambda: keras.Model(*[keras.Input((None, None, 3))] * 2), "axis 1 is open"),
    "branches": (lambda: on(ROW, Branches(name="branches")), "branches.*Branches"),
    "noise": (lambda: on(ROW, L.GaussianNoise(0.5, name="noise")), "noise.*GaussianNoise.*use Dropout"),
    "activation": (lambda: on(ROW, L.Dense(3, activation=lambda x: x * 2)), "activation .* is not known"),
    "axis": (lambda: on(IMAGE, L.BatchNormalization(axis=2)), "axis=2"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    keras.backend.clear_session()
    build, message = BAD[name]
    try:
        model = build()
    except Exception as e:  # Keras itself refuses branches on some back ends
        assert name == "branches", e
        pytest.skip("Keras refuses it itself")
    with pytest.raises(CaptureError, match=message):
        capture(model)
