"""A Keras model, on whichever back end KERAS_BACKEND names. Two lines are new.

    python examples/keras_fit.py                       # one rank, all cores
    megalith run -np 4 examples/keras_fit.py           # four
"""
import keras
import numpy as np
from keras import layers

import megalith                                                             # new: 1

net = keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
                        layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10, activation="softmax")])
x = np.random.default_rng(0).standard_normal((512, 28, 28, 1)).astype("float32")
y = (x[:, :14].mean((1, 2, 3)) * 100).astype("int32").clip(-5, 4) + 5        # something to learn

model = megalith.Model(net)                                                 # new: 2
model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=64, epochs=3)
net = model.unwrap()                                                        # the same object, trained
if megalith.rank() == 0:
    net.save("trained.keras")
