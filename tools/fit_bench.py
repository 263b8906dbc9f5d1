"""What a user of PyTorch or Keras gets: the same script trained by the framework and by `megalith.Model.fit`, in turns.

    PYTHONPATH=python .venv-python/bin/python tools/fit_bench.py torch      Fashion-MNIST (Debian: dataset-fashion-mnist)
    PYTHONPATH=python KERAS_BACKEND=tensorflow .venv-python-tensorflow/bin/python tools/fit_bench.py keras
    PYTHONPATH=python .venv-python/bin/python tools/fit_bench.py overhead   ResNet-50: fit from numpy, and `megalith bench` of its file

torch, keras: test accuracy and seconds of the whole training, from the model to its last epoch, ours with capture and plan. Each
run is a process of its own with all cores; both have the same first weights, and the turns differ by the seed. overhead: one
process captures and fits, a few steps at a time, and `megalith bench` runs in between.
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEGALITH = os.path.join(HERE, "build", "megalith")
IMAGES = "/usr/share/datasets/fashion-mnist"
BATCH = 128


def fashion(part):
    """Images (n, 28, 28) in 0..1, and labels."""
    with gzip.open(f"{IMAGES}/{part}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(f"{IMAGES}/{part}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    return x.astype(np.float32) / 255, y.astype(np.int64)


# ---- PyTorch

def torch_net():
    from torch import nn
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))


def torch_own(net, x, y, epochs):
    import torch
    optimizer, loss_of = torch.optim.Adam(net.parameters(), 1e-3), torch.nn.CrossEntropyLoss()
    net.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for at in range(0, len(x), BATCH):
            some = order[at:at + BATCH]
            optimizer.zero_grad()
            loss_of(net(x[some]), y[some]).backward()
            optimizer.step()


def torch_ours(net, x, y, epochs):
    import torch

    import megalith
    model = megalith.Model(net, example=x[:1])
    model.compile(torch.optim.Adam(net.parameters(), 1e-3), torch.nn.CrossEntropyLoss())
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0)
    model.unwrap()


def run_torch(who, seed, epochs):
    import torch
    torch.manual_seed(seed)
    net = torch_net()
    (x, y), (xt, yt) = ([torch.from_numpy(a) for a in fashion(part)] for part in ("train", "t10k"))
    begin = time.perf_counter()
    (torch_own if who == "own" else torch_ours)(net, x[:, None], y, epochs)
    seconds = time.perf_counter() - begin
    net.eval()
    with torch.no_grad():
        right = sum(int((net(a[:, None]).argmax(1) == b).sum()) for a, b in zip(xt.split(500), yt.split(500)))
    return seconds, right / len(yt)


# ---- Keras

def keras_net():
    import keras
    from keras import layers
    return keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.Conv2D(64, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dropout(0.25), layers.Dense(10)])


def run_keras(who, seed, epochs):
    import keras

    import megalith
    keras.utils.set_random_seed(seed)
    net = keras_net()
    (x, y), (xt, yt) = fashion("train"), fashion("t10k")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    begin = time.perf_counter()
    model = net if who == "own" else megalith.Model(net)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)
    model.fit(x[..., None], y, batch_size=BATCH, epochs=epochs, verbose=0)
    if who != "own":
        model.unwrap()
    seconds = time.perf_counter() - begin
    return seconds, float((net.predict(xt[..., None], verbose=0).argmax(1) == yt).mean())


# ---- turns of both

def compare(a):
    rows = {"own": [], "ours": []}
    for seed in range(a.turns):
        for who in ("own", "ours") if seed % 2 == 0 else ("ours", "own"):
            before = os.times()
            said = subprocess.run([sys.executable, os.path.abspath(__file__), a.what, "--one", who, "--seed", str(seed),
                                   "--epochs", str(a.epochs)], capture_output=True, text=True, check=True).stdout
            found = json.loads(said.splitlines()[-1])
            after = os.times()
            found["cpu"] = after.children_user + after.children_system - before.children_user - before.children_system
            rows[who].append(found)
            print(f"{who} {seed}: {found['seconds']:.1f} s, {found['cpu']:.1f} s of processor, "
                  f"{100 * found['accuracy']:.2f} %", file=sys.stderr, flush=True)
    name = "PyTorch" if a.what == "torch" else f"Keras on {os.environ.get('KERAS_BACKEND', 'tensorflow')}"
    print(f"| Fashion-MNIST, {a.epochs} epochs, {a.turns} turns | seconds, median | least .. most | CPU seconds | test accuracy, mean |")
    print("|" + "---|" * 5)
    for who, title in (("own", name), ("ours", "Megalith, `fit`")):
        s = [r["seconds"] for r in rows[who]]
        print(f"| {title} | {statistics.median(s):.1f} | {min(s):.1f} .. {max(s):.1f} "
              f"| {statistics.median(r['cpu'] for r in rows[who]):.1f} "
              f"| {100 * statistics.mean(r['accuracy'] for r in rows[who]):.2f} % |")


# ---- overhead

def bench(path, steps):
    """Images a second."""
    said = subprocess.run([MEGALITH, "bench", path, "--batch", "16", "--iterations", str(steps), "--repeat", "1", "--warmup", "1",
                           "--momentum", "0.9", "--json"], capture_output=True, text=True, check=True).stdout
    return 16 / json.loads(said.splitlines()[-1])["seconds_per_step"]


def overhead(a):
    import torch
    import torchvision

    import megalith
    torch.manual_seed(0)
    net = torchvision.models.resnet50()
    x = np.random.default_rng(0).standard_normal((16 * a.steps, 3, 224, 224)).astype(np.float32)
    y = np.arange(len(x)) % 1000
    begin = time.perf_counter()
    model = megalith.Model(net, example=torch.from_numpy(x[:1]))
    captured = time.perf_counter() - begin
    model.compile(torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9), "cross_entropy")
    model.fit(x[:32], y[:32], batch_size=16, verbose=0)  # plan, memory
    rates = {"fit": [], "bench": []}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resnet50.onnx")
        megalith.onnx_file.write(model.net, path)
        for turn in range(a.turns):
            begin = time.perf_counter()
            model.fit(x, y, batch_size=16, epochs=1, verbose=0)
            rates["fit"].append(len(x) / (time.perf_counter() - begin))
            rates["bench"].append(bench(path, a.steps))
            print({k: round(v[-1], 2) for k, v in rates.items()}, file=sys.stderr, flush=True)
    fit, plain = (statistics.median(rates[k]) for k in ("fit", "bench"))
    print(f"capture of ResNet-50 {captured:.1f} s; fit {fit:.2f} images/s, bench {plain:.2f} images/s: {100 * fit / plain:.1f} %; "
          f"pairs {100 * statistics.median(f / b for f, b in zip(rates['fit'], rates['bench'])):.1f} %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["torch", "keras", "overhead"])
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--steps", type=int, default=6, help="of a turn of overhead")
    p.add_argument("--one", choices=["own", "ours"], help=argparse.SUPPRESS)
    p.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        seconds, accuracy = (run_torch if a.what == "torch" else run_keras)(a.one, a.seed, a.epochs)
        print(json.dumps({"seconds": seconds, "accuracy": accuracy}))
    elif a.what == "overhead":
        overhead(a)
    else:
        compare(a)


if __name__ == "__main__":
    main()
