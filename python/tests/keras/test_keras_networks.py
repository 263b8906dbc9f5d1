"""Captured Keras models: one step's loss, every gradient and all running statistics are Keras' own, on the back end that
KERAS_BACKEND names. In double Megalith's ref64 within 1e-9; in float the rule of megalith/comparison.py."""
import importlib

import numpy as np
import pytest

keras = pytest.importorskip("keras.layers", reason="Keras is not installed") and importlib.import_module("keras")
import reference  # noqa: E402
import zoo  # noqa: E402

from megalith import check  # noqa: E402
from megalith.capture.keras import capture  # noqa: E402

DOUBLE, FLOAT = 1e-9, 1e-4
IN_FLOAT = ("unet", "cnn3d", "gpt", "mobilenet")


def is_logits(model):
    return getattr(model.layers[-1], "activation", None) is not keras.activations.softmax


def framework_step(name, kind):
    """(capture, Keras' step, batch)"""
    model = zoo.make(name, kind)
    x, y = zoo.NETS[name].data(model)
    captured = capture(model)
    before = captured.state()
    step = reference.step(model, captured, x, y, reference.entropy(is_logits(model)))
    assert reference.degenerate(step) == ""
    return captured, step, (list(captured.input_arrays(x).values()), y, before)


@pytest.mark.parametrize("name", zoo.NETS)
def test_double(name):
    captured, judge, (x, y, _) = framework_step(name, "float64")
    ours = check.megalith_step(captured.net, x, y, "ref64")
    print(f"{name}: {check.compare(ours, judge, tolerance=DOUBLE):.1e}, {len(judge.gradients)} gradients, "
          f"{len(judge.running)} statistics")


@pytest.mark.parametrize("name", IN_FLOAT)
def test_float(name):
    _, judge, _ = framework_step(name, "float64")
    floats = [framework_step(name, "float32") for _ in reference.thread_counts()]
    captured, _, (x, y, _) = floats[0]
    ours = check.megalith_step(captured.net, x, y, "cpu")
    print(f"{name}: {check.compare(ours, judge, [single for _, single, _ in floats], FLOAT):.1e}")


@pytest.mark.parametrize("name", ["unet", "cnn3d", "gpt"])
def test_unwrap(name):
    """The numbers of the file go back to the variables they came from, exactly; what is changed there arrives."""
    model = zoo.make(name, "float32")
    captured = capture(model)
    want = [np.array(keras.ops.convert_to_numpy(v)) for v in model.weights]
    state = captured.state()
    for k, a in state.items():
        assert a.shape == captured.net.weights[k].shape and np.array_equal(a, captured.net.weights[k].array)
    for v in model.weights:
        v.assign(np.zeros(v.shape))
    assert captured.unwrap(state) is model
    for v, w in zip(model.weights, want):
        assert np.array_equal(keras.ops.convert_to_numpy(v), w), v.path
    with pytest.raises(ValueError, match="not among those given"):
        captured.unwrap({})
