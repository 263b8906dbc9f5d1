"""Reads ONNX files as PyTorch's two exporters and Keras write them, and files that Megalith wrote after
training, and compares with onnxruntime; with PyTorch's own outputs where onnxruntime refuses what PyTorch
wrote (it does so for a bias of a wrong shape), which the line then says.

    python3 tools/onnx_exports.py [--build build] [--match WORD] [--folder DIR] [--tensorflow DIR]
                                  [--no-write]

One line per file:

    equal     read; its outputs are those of onnxruntime; worst difference, relative by norm
    trained   the same, of the file that `megalith train --steps 5 --save` wrote; its outputs are also
              those of `megalith forward` on it
    refused   Megalith refused to read it and named operator and node
    no file   the exporter itself failed
    FAILED    a crash, a wrong result, a refusal that names nothing, a refusal to train what was read, or
              the loss of a batch normalisation that no warning told, or a warning of none that was lost

Warnings follow, indented. Any FAILED makes the exit status 1. A full run writes its table to docs/onnx.md.
--tensorflow DIR: files that tools/onnx_keras.py wrote there under that backend of Keras.
"""
import argparse
import concurrent.futures
import contextlib
import functools
import io
import itertools
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy
import onnx
import onnxruntime
import torch
from safetensors.numpy import load_file, save_file

import onnx_keras
import onnx_models

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLOSE = 1e-4    # float against float, over up to 50 layers, relative by norm
TRAINED = 1e-5  # one file, two evaluations
BEGIN = "<!-- Written by tools/onnx_exports.py, to the end mark: do not edit. -->\n"
END = "<!-- End of tools/onnx_exports.py. -->\n"
NAMES_NODE = re.compile(r"[A-Za-z]+ '[^']*': ")

# Of the zoo: the model, words that make it small, and its data.
PIXELS = "labels=pixels count=16"
ZOO = {
    "cnn": ("cnn", "", "synthetic:image=1x28x28 classes=10 count=32"),
    "alexnet": ("alexnet", "", "synthetic:image=3x224x224 classes=10 count=8"),
    "resnet18": ("resnet18", "", "synthetic:image=3x64x64 classes=10 count=32"),
    "resnet50": ("resnet50", "", "synthetic:image=3x64x64 classes=10 count=16"),
    "resnet-cifar": ("resnet-cifar", "--depth 20 --version 2",
                     "synthetic:image=3x32x32 classes=10 count=32"),
    "vgg11": ("vgg11", "--hidden 64", "synthetic:image=3x64x64 classes=10 count=32"),
    "inception-v3": ("inception-v3", "--aux 0", "synthetic:image=3x128x128 classes=10 count=8"),
    "inception-v3, two heads": ("inception-v3", "", "synthetic:image=3x299x299 classes=10 count=8"),
    "amoebanet-d": ("amoebanet-d", "--layers 3 --filters 32",
                    "synthetic:image=3x64x64 classes=10 count=16"),
    "unet": ("unet", "--width 8 --depth 2 --bn 1", f"synthetic:image=3x32x32 classes=3 {PIXELS}"),
    "unet, cropping": ("unet", "--width 8 --depth 2 --crop 1",
                       f"synthetic:image=3x60x60 extent=20x20 classes=3 {PIXELS}"),
    "unet3d": ("unet3d", "--width 4 --depth 1 --up trilinear",
               f"synthetic:image=1x8x8x8 classes=3 {PIXELS}"),
    "relaynet": ("relaynet", "--width 8", f"synthetic:image=1x64x32 classes=4 {PIXELS}"),
    "cosmoflow": ("cosmoflow", "--pools 2", "synthetic:image=4x32x32x32 labels=real extent=4 count=8"),
    "gpt": ("gpt", "--layers 2 --heads 4 --width 32", "synthetic:image=12 tokens=yes classes=50 count=16"),
    "vit": ("vit_b_16", "--patch 8 --layers 2 --heads 4 --width 64 --mlp 128",
            "synthetic:image=3x32x32 classes=10 count=16"),
}

# What an export lost, in the warning's words; anything that speaks of normalisations else is a false alarm.
NORMALISED = ("resnet18", "inception_v3", "unet", "r3d_18")
LOST = {"dynamo": "folded into their weights", "script-eval": "folded into their weights",
        "dynamo-raw": "were exported for inference", "keras": "a file of Keras: its batch normalisations"}


# ---- the exporters ----

def quiet(work):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return work()


def by_dynamo(model, x, path, optimize):
    batch = torch.export.Dim("batch") if x.shape[0] > 1 and not optimize else None
    shapes = ({0: batch},) if batch else None
    quiet(lambda: torch.onnx.export(model.eval() if optimize else model.train(), (x,), path, dynamo=True,
                                    optimize=optimize, dynamic_shapes=shapes, external_data=False))


def by_script(model, x, path, training):
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    axes = {} if training else {"input": {0: "N"}, "output": {0: "N"}}
    quiet(lambda: torch.onnx.export(model, (x,), path, dynamo=False, training=mode, opset_version=17,
                                    do_constant_folding=not training, input_names=["input"],
                                    output_names=["output"], dynamic_axes=axes))


WAYS = {
    "dynamo": lambda m, x, p: by_dynamo(m, x, p, True),
    "dynamo-raw": lambda m, x, p: by_dynamo(m, x, p, False),
    "script-train": lambda m, x, p: by_script(m, x, p, True),
    "script-eval": lambda m, x, p: by_script(m, x, p, False),
}


def torch_files(folder, match):
    """(name, path or what went wrong, input, PyTorch's outputs)"""
    for name in onnx_models.TORCH:
        for way, export in WAYS.items():
            title = f"torch/{name}/{way}"
            if match not in title:
                continue
            model, x = onnx_models.torch_model(name)
            path = os.path.join(folder, title.replace("/", "-") + ".onnx")
            try:
                export(model, x, path)
            except Exception as e:
                yield title, f"{type(e).__name__}: {str(e).strip().splitlines()[0][:150]}", None, None
                continue
            with torch.no_grad():
                yield title, path, x.numpy(), model.eval()(x).numpy()


def keras_files(folder, match):
    backend = os.environ["KERAS_BACKEND"]
    if match and not match.startswith("keras") and match not in "keras":
        return
    for name, (model, shape) in onnx_keras.models().items():
        title = f"keras/{name}/{backend}"
        if match not in title:
            continue
        path = os.path.join(folder, title.replace("/", "-") + ".onnx")
        try:
            yield title, path, onnx_keras.export(model, shape, path), None
        except Exception as e:
            yield title, f"{type(e).__name__}: {str(e).strip().splitlines()[0][:150]}", None, None


def tensorflow_files(folder, match):
    """What tools/onnx_keras.py wrote."""
    if not folder:
        return
    stems = sorted({os.path.splitext(f)[0] for f in os.listdir(folder) if f.endswith((".npy", ".txt"))})
    if not stems:
        raise RuntimeError(f"tools/onnx_keras.py wrote nothing to {folder}")
    for name in stems:
        title, path = f"keras/{name}/tensorflow", os.path.join(folder, name)
        if match not in title:
            continue
        if os.path.exists(path + ".txt"):
            with open(path + ".txt") as f:
                yield title, f.read(), None, None
        else:
            yield title, path + ".onnx", numpy.load(path + ".npy"), None


# ---- who evaluates ----

def for_inference(path):
    """The file with its normalisations and dropouts as in inference: onnxruntime does no other."""
    model = onnx.load(path)
    falsehood = onnx.numpy_helper.from_array(numpy.array(False), "megalith.test.false")
    model.graph.initializer.append(falsehood)
    for node in model.graph.node:
        for a in node.attribute:
            if a.name == "training_mode":
                a.i = 0
        if node.op_type == "BatchNormalization":
            del node.output[1:]
        if node.op_type == "Dropout" and len(node.input) > 2:
            node.input[2] = falsehood.name
            del node.output[1:]
    return model.SerializeToString()


def reference(path, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(for_inference(path), options)
    names = {i.name: i.type for i in session.get_inputs()}
    kinds = {"tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32}
    feed = {k: v.astype(kinds.get(names[k], numpy.float32)) for k, v in inputs.items()}
    return session.run(None, feed)


def megalith(build, words):
    done = subprocess.run([os.path.join(build, "megalith")] + words, capture_output=True, text=True,
                          timeout=900)
    return done.returncode, done.stderr.strip()


def forward(build, path, inputs):
    """(outputs, None, warnings) or (None, message, warnings)"""
    with tempfile.TemporaryDirectory() as folder:
        x, y = os.path.join(folder, "x"), os.path.join(folder, "y")
        plain = {k: numpy.ascontiguousarray(v, numpy.float32 if v.dtype.kind == "f" else numpy.int32)
                 for k, v in inputs.items()}
        save_file(plain, x)
        status, text = megalith(build, ["forward", path, "--input", x, "--out", y, "--loss", "none"])
        lines = [line.replace(path, "F").removeprefix("megalith: ") for line in text.splitlines()]
        if status == 0:
            got = load_file(y)
            return [got[f"output{i}"] for i in range(len(got))], None, lines
        if status != 1 or not lines:
            raise RuntimeError(f"exit status {status}: {text[-200:]}")
        return None, lines[-1], lines[:-1]


def difference(got, want):
    """The worst relative difference; a constant reference would prove nothing."""
    worst = 0.0
    for a, b in zip(got, want):
        if a.shape != b.shape:
            raise RuntimeError(f"shape {a.shape}, but should be {b.shape}")
        if not numpy.std(b) > 1e-4 * numpy.linalg.norm(b) / numpy.sqrt(b.size):
            raise RuntimeError("the reference is constant")
        worst = max(worst, float(numpy.linalg.norm(a - b) / numpy.linalg.norm(b)))
    return worst


# ---- verdicts ----

def inputs_of(path, x):
    model = onnx.load(path, load_external_data=False)
    given = {t.name for t in model.graph.initializer}
    return {next(i.name for i in model.graph.input if i.name not in given): x}


def compare(build, path, x, allowed, own=None):
    """own: what the framework that wrote the file computes, where onnxruntime cannot."""
    inputs = inputs_of(path, x)
    got, refusal, told = forward(build, path, inputs)
    if refusal:
        return ("refused" if NAMES_NODE.search(refusal) else "FAILED"), refusal, told
    note = ""
    try:
        expected = reference(path, inputs)
    except Exception:
        if own is None:
            raise
        expected, note = [own], " from PyTorch: onnxruntime refuses the file"
    worst = difference(got, expected)
    return ("equal" if worst <= allowed else "FAILED"), f"{worst:.1e}{note}", told


def alarm(title, told):
    """What is wrong with the warnings; None: nothing."""
    source, name, way = title.split("/")
    normalised = source == "keras" or name in NORMALISED
    want = LOST.get("keras" if source == "keras" else way) if normalised else None
    spoken = [line for line in told if "batch normalisation" in line]
    if want and not any(want in line for line in spoken):
        return f"no warning that says '{want}'"
    if not want and spoken:
        return f"a false alarm: {spoken[0]}"
    return None


def data_of(title, x):
    """Samples as the network takes them."""
    image = "x".join(str(k) for k in x.shape[1:])
    if x.dtype.kind != "f":
        return f"synthetic:image={image} tokens=yes classes=50 count=16"
    if "unet" in title:
        return f"synthetic:image={image} labels=pixels classes=5 count=16"
    return f"synthetic:image={image} classes=10 count=16"


def sample_of(data):
    """An input for a network of the zoo."""
    random = numpy.random.default_rng(1)
    shape = [2] + [int(k) for k in re.search(r"image=([0-9x]+)", data).group(1).split("x")]
    if "tokens=yes" in data:
        return random.integers(0, 50, shape).astype(numpy.int32)
    return random.standard_normal(shape).astype(numpy.float32)


def train(build, model, words, x, out):
    """Five steps, written as ONNX; then both evaluate it."""
    status, text = megalith(build, ["train", model, "--steps", "5", "--batch", "4", "--lr", "0.001",
                                    "--save", out, "--no-test", "--log", "quiet"] + words)
    if status:
        line = (text.splitlines() or ["no message"])[-1].replace(model, "F")
        return "FAILED", "training: " + line.removeprefix("megalith: ")
    verdict, text, _ = compare(build, out, x, TRAINED)
    return ("trained" if verdict == "equal" else "FAILED"), text


def attempt(work):
    try:
        return work()
    except Exception as e:
        return "FAILED", f"{type(e).__name__}: {str(e)[:300]}", []


def cell(rows, title, verdict):
    """The difference where that verdict was reached, else what happened instead."""
    mine = [r for r in rows if r[0] == title]
    for _, got, text, _ in mine:
        if got == verdict:
            return text
    return f"{mine[-1][1]}: {mine[-1][2]}".replace("|", "\\|").replace("\n", " ") if mine else ""


def write(rows):
    """The table of docs/onnx.md."""
    titles = list(dict.fromkeys(r[0] for r in rows))
    lines = [BEGIN, "\n", f"PyTorch {torch.__version__}, torchvision {onnx_models.torchvision.__version__}, "
             f"onnxruntime {onnxruntime.__version__}: {len(titles)} files, "
             f"{sum(r[1] == 'trained' for r in rows)} trained, {sum(r[1] == 'refused' for r in rows)} refused, "
             f"{sum(r[1] == 'no file' for r in rows)} not written by the exporter, "
             f"{sum(r[1] == 'FAILED' for r in rows)} failed.\n\n",
             "| file | read: difference | after training: difference | warnings |\n|---|---|---|---|\n"]
    for title in titles:
        read = "" if title.startswith("zoo/") else cell(rows, title, "equal")
        equal = title.startswith("zoo/") or any(r[:2] == (title, "equal") for r in rows)
        told = sum(r[3] for r in rows if r[0] == title)
        lines.append(f"| {title} | {read} | {cell(rows, title, 'trained') if equal else ''} | {told or ''} |\n")
    page = os.path.join(ROOT, "docs", "onnx.md")
    with open(page) as f:
        head, _, tail = f.read().partition(BEGIN)
    with open(page, "w") as f:
        f.write(head + "".join(lines) + END + tail.partition(END)[2])


def remove(*paths):
    for path in paths:
        if os.path.exists(path):
            os.remove(path)


def examine(build, keep, title, path, x, own):
    """What became of a file that was exported: (title, verdict, text, warnings) once or twice."""
    if x is None:
        return [(title, "no file", path, [])]
    verdict, text, told = attempt(lambda: compare(build, path, x, CLOSE, own))
    wrong = alarm(title, told) if verdict == "equal" else None
    if wrong:
        verdict, text = "FAILED", wrong
    rows = [(title, verdict, text, told)]
    out = path.replace(".onnx", "-trained.onnx")
    if verdict == "equal":
        words = ["--data", data_of(title, x)]
        result = attempt(lambda: train(build, path, words, x, out))
        rows.append((title, *result[:2], []))
    if not keep and not title.endswith("/tensorflow"):
        remove(path, out)
    return rows


def examine_zoo(build, folder, name):
    model, words, data = ZOO[name]
    out = os.path.join(folder, f"zoo-{re.sub('[, ]+', '-', name)}.onnx")
    result = attempt(lambda: train(build, model, words.split() + ["--data", data], sample_of(data), out))
    return [(f"zoo/{name}", *result[:2], [])]


def tell(rows, stream):
    """Prints; returns the rows with their warnings counted."""
    text = ""
    for title, verdict, words, told in rows:
        text += f"{verdict:8} {title}: {words}\n" + "".join(f"         {line}\n" for line in told)
    stream.write(text)
    stream.flush()
    return [(title, verdict, words, len(told)) for title, verdict, words, told in rows]


def run(arguments, folder):
    """Files are examined while the next ones are exported."""
    stream = sys.stdout  # which exporters that must be quiet redirect
    with concurrent.futures.ThreadPoolExecutor(max(os.cpu_count(), 2)) as pool:
        jobs = [pool.submit(lambda n=name: tell(examine_zoo(arguments.build, folder, n), stream))
                for name in ZOO if arguments.match in f"zoo/{name}"]
        sources = (tensorflow_files(arguments.tensorflow, arguments.match),
                   keras_files(folder, arguments.match), torch_files(folder, arguments.match))
        for case in itertools.chain(*sources):
            work = functools.partial(examine, arguments.build, arguments.folder, *case)
            jobs.append(pool.submit(lambda w=work: tell(w(), stream)))
        return [row for job in jobs for row in job.result()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--match", default="", help="only files whose names contain this")
    parser.add_argument("--folder", help="keep the files here")
    parser.add_argument("--tensorflow", help="Keras's files of another backend: see tools/onnx_keras.py")
    parser.add_argument("--no-write", action="store_true", help="leave docs/onnx.md as it is")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        rows = run(arguments, arguments.folder or stack.enter_context(tempfile.TemporaryDirectory()))
    if not rows:
        sys.exit("no file was selected")
    if not arguments.match and not arguments.no_write:
        write(rows)
    sys.exit(any(r[1] == "FAILED" for r in rows))


if __name__ == "__main__":
    main()
