"""Networks of Keras for tools/onnx_exports.py, and their files under a backend of its own environment:

    KERAS_BACKEND=tensorflow python3 tools/onnx_keras.py FOLDER

writes FOLDER/NAME.onnx and the input FOLDER/NAME.npy of each; a failure of the exporter goes to NAME.txt.
"""
import contextlib
import io
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy


def models():
    """name -> (model, shape of an input); with biases and statistics that are not trivial."""
    import keras
    from keras import layers
    keras.utils.set_random_seed(1)
    cnn = keras.Sequential([layers.Input((28, 28, 1)),
                            layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(2),
                            layers.Conv2D(16, 3, padding="same"), layers.BatchNormalization(),
                            layers.ReLU(), layers.MaxPooling2D(2), layers.Dropout(0.25),
                            layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dense(10)])
    resnet = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10,
                                         classifier_activation=None)
    random = numpy.random.default_rng(2)
    for weight in cnn.weights + resnet.weights:
        if weight.name in ("bias", "beta", "moving_mean"):
            weight.assign(random.normal(0, 0.1, weight.shape).astype(numpy.float32))
        if weight.name == "moving_variance":
            weight.assign(random.uniform(0.5, 2, weight.shape).astype(numpy.float32))
    return {"cnn": (cnn, (2, 28, 28, 1)), "resnet50": (resnet, (1, 64, 64, 3))}


def export(model, shape, path):
    """Writes the file; returns an input."""
    x = numpy.random.default_rng(1).standard_normal(shape).astype(numpy.float32)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        model(x)
        model.export(path, format="onnx", verbose=False)
    return x


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, (model, shape) in models().items():
        path = os.path.join(folder, name)
        try:
            numpy.save(path + ".npy", export(model, shape, path + ".onnx"))
        except Exception as e:
            with open(path + ".txt", "w") as f:
                f.write(f"{type(e).__name__}: {str(e).strip().splitlines()[0][:150]}")


if __name__ == "__main__":
    main()
