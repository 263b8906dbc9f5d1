"""Trains what PyTorch's exporters write, and holds it to PyTorch: tools/onnx_nets.py has the networks.

    python3 tools/onnx_training.py [--build build] [--only NAMES] [--way WAY] [--folder DIR] [--list]

Each network is written three ways: by TorchScript for training without folding (script), by dynamo
(dynamo) and by dynamo with optimize=False (raw). Dropout and stochastic depth are at 0. Then, of each file:

    gradients   `megalith grads --weights` with a PyTorch state dict of other numbers than the file's, in
                double: loss, running statistics, and a gradient for just the parameters that PyTorch has
    training    five steps of SGD: the losses, in double after `--load` of a state dict with the numbers
                that were exported (but for the running statistics, which exporting for training moves),
                in float from those of the file
    weights     what `--save` writes in double loads by load_state_dict and is PyTorch's after the steps;
                what load_state_dict misses is an expected set of names, no more and no less

    ok        all of that
    lost      the exporter computed with parameters (a Gather of all rows of learned positions): all of that
              with the name that the file has for them; or it folded batch normalisations: what is saved are
              PyTorch's names but for theirs. Megalith warns, of those tensors, or of that many layers
    no file   the exporter itself failed, as it does for this network (Net.unwritten)
    FAILED    anything else

Networks with dropout or stochastic depth are written a second time with them on (random): the file is
read, two runs have the same losses, and so have those of other plans.

The comparison rule is that of tools/torch_compare.py with 1e-9 in double, relative by norm; losses in
float 1e-4, or three times PyTorch's own distance from its double. --folder keeps the files and takes those
that are there. Any FAILED makes the exit status 1.
"""
import argparse
import collections
import contextlib
import copy
import fnmatch
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import typing

import numpy
import onnx
import onnxscript
import torch
import torchvision
from safetensors.torch import load_file, save_file

import onnx_nets
from onnx_exports import quiet
from torch_compare import compare_step, curve_errors, distance

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOUBLE, FLOAT = 1e-9, 1e-4
STEPS = 5
RANDOM_STEPS = 2  # the loss of the second has the gradients of the first
PLANS = ("--micro 2", "-np 2", "-np 2 --stages 2 --micro 2")
FOLDED = re.compile(r"(\d+) layers? ha(?:s|ve) a batch normalisation folded")  # in the words of the warnings
COMPUTED = re.compile(r"^warning: F: (.*): computed of parameters")
NORMS = torch.nn.modules.batchnorm._BatchNorm


# ---- the exporters ----

def by_script(name, still, path, names):
    x, _ = onnx_nets.batches(name, 1)
    torch.onnx.export(onnx_nets.build(name, still=still), (x,), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["input"], output_names=names)


@functools.lru_cache(maxsize=2)
def captured(name, still):
    """What dynamo begins with; its files, optimised or not, are those of the network itself, byte by byte."""
    x, _ = onnx_nets.batches(name, 1)
    return torch.export.export(onnx_nets.build(name, still=still), (x,), strict=False)


def by_dynamo(name, still, path, names, optimize=True):
    torch.onnx.export(captured(name, still), (), path, dynamo=True, optimize=optimize, input_names=["input"],
                      output_names=names, external_data=False)


def by_dynamo_raw(name, still, path, names):
    by_dynamo(name, still, path, names, False)


WAYS = {"script": by_script, "raw": by_dynamo_raw, "dynamo": by_dynamo}


def export(name, way, folder, still=True):
    """The path of the file; a text of what went wrong raises."""
    path = os.path.join(folder, f"{name}-{way}{'' if still else '-random'}.onnx")
    if not os.path.exists(path):
        names = ["output", *(f"other{i}" for i in range(1, onnx_nets.NETS[name].outputs))]
        quiet(lambda: WAYS[way](name, still, path + ".part", names))
        os.replace(path + ".part", path)
    return path


def folded(truth, path):
    """The batch normalisations of the network that the file has no more."""
    graph = onnx.load(path, load_external_data=False).graph
    have, held = sum(n.op_type == "BatchNormalization" for n in graph.node), {i.name for i in graph.initializer}
    norms = [k for k, m in truth.start.named_modules() if isinstance(m, NORMS)]
    gone = [k for k in norms if f"{k}.running_mean" not in held] if have < len(norms) else []
    if len(gone) != len(norms) - have:
        raise Wrong(f"{have} of {len(norms)} batch normalisations are in the file, {len(gone)} have no mean")
    return gone


# ---- PyTorch ----

def state_of(model):
    return {k: t.detach().clone() for k, t in model.state_dict().items()}


@contextlib.contextmanager
def exact():
    """PyTorch's own gradient of hardsigmoid has 1/6 in float, in double, too: off by 3e-8."""
    own = torch.nn.functional.hardsigmoid
    torch.nn.functional.hardsigmoid = lambda x, inplace=False: torch.nn.functional.relu6(x + 3) / 6
    try:
        yield
    finally:
        torch.nn.functional.hardsigmoid = own


class Truth:
    """What PyTorch makes of a network, once for all its files; x.npy, y.npy, w1 and w2 lie in `folder`."""

    def __init__(self, name, folder):
        torch.set_num_threads(1)
        self.name, self.net = name, onnx_nets.NETS[name]
        self.x, self.y = onnx_nets.batches(name, STEPS)
        self.start, other = onnx_nets.build(name), onnx_nets.build(name, seed=2)
        self.path = {k: os.path.join(folder, k) for k in ("x.npy", "y.npy", "x1.npy", "y1.npy",
                                                          "w1.safetensors", "w2.safetensors")}
        names = {t: k for k, t in reversed(self.start.state_dict(keep_vars=True).items())}
        self.first = {k: names[t] for k, t in self.start.state_dict(keep_vars=True).items()}  # of tied ones
        n = self.net.shape[0]
        for stem, array in (("x", self.x), ("y", self.y)):
            whole = array.numpy() if array.is_floating_point() else array.int().numpy()
            numpy.save(self.path[stem + ".npy"], whole)
            numpy.save(self.path[stem + "1.npy"], whole[:n])
        save_file(state_of(self.start), self.path["w1.safetensors"])
        save_file(state_of(other), self.path["w2.safetensors"])
        with exact():
            self.step = self.one_step(other.double())
            self.losses, self.end = self.curve(copy.deepcopy(self.start).double())
            self.single, _ = self.curve(copy.deepcopy(self.start))

    def loss(self, model, i):
        n, kind = self.net.shape[0], next(model.parameters()).dtype
        x, y = self.x[n * i:n * (i + 1)], self.y[n * i:n * (i + 1)]
        return onnx_nets.loss(self.net, model(x.to(kind) if x.is_floating_point() else x), y)

    def one_step(self, model):
        """(loss, gradients, running statistics), as torch_compare.compare_step wants them"""
        loss = self.loss(model, 0)
        loss.backward()
        gradients = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
        self.idle = {k.rpartition(".")[0] for k, _ in model.named_parameters() if k not in gradients}
        running = {k: t.numpy() for k, t in model.state_dict().items() if self.counts(k)
                   and k.rpartition(".")[2] in ("running_mean", "running_var")}
        return float(loss.detach()), gradients, running

    def counts(self, name):
        """Is it of a module that the first output comes from?"""
        return name.rpartition(".")[0] not in self.idle

    def curve(self, model):
        steps, losses = torch.optim.SGD(model.parameters(), self.net.rate), []
        for i in range(STEPS):
            steps.zero_grad()
            loss = self.loss(model, i)
            loss.backward()
            steps.step()
            losses.append(float(loss.detach()))
        return losses, model


# ---- Megalith ----

class Refused(Exception):
    """Megalith said no; the message is the last line of stderr."""


class Megalith:
    def __init__(self, build, truth, path, way):
        self.build, self.truth, self.path, self.said = build, truth, path, []
        net = truth.net
        self.words = ["--threads", "1", "--batch", str(net.shape[0])]
        if net.outputs > 1:
            self.words += ["--output", "output"]
        for pattern in net.freeze if way == "script" else ():
            self.words += ["--freeze", pattern]
        self.melted = net.melted.get(way, ())
        self.computed = net.computed if way == "dynamo" else {}
        self.own = {k: name for name, k in self.computed.items()}

    def weights(self, which, folder):
        """A state dict of PyTorch's, with the names that the file has."""
        path = self.truth.path[which]
        if not self.computed:
            return path
        renamed = {self.computed.get(k, k): t for k, t in load_file(path).items()}
        path = os.path.join(folder, which)
        save_file(renamed, path)
        return path

    def read(self, path):
        """What Megalith wrote, with PyTorch's names."""
        return {self.own.get(k, k): t for k, t in load_file(path).items()}

    def told(self, pattern):
        """What a warning has to say, or nothing."""
        found = [m.group(1) for m in map(pattern.search, self.said) if m]
        return found[0] if len(found) == 1 else None

    def run(self, verb, *words):
        """The records that it prints. Warnings are kept."""
        done = subprocess.run([os.path.join(self.build, "megalith"), verb, self.path, *self.words, *words],
                              capture_output=True, text=True, timeout=1800)
        lines = [line.replace(self.path, "F").removeprefix("megalith: ")
                 for line in done.stderr.splitlines() if line.startswith("megalith: ")]
        self.said += [line for line in lines if line not in self.said]
        if done.returncode:
            raise Refused(f"{verb}: {lines[-1] if lines else f'exit status {done.returncode}'}"
                          + ("" if done.returncode == 1 else f" (exit status {done.returncode})"))
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def gradients(self, out):
        """(loss, tensors) of the first batch, with the other weights."""
        path, weights = self.truth.path, self.weights("w2.safetensors", os.path.dirname(out))
        record = self.run("grads", "--device", "ref64", "--weights", weights, "--input", path["x1.npy"],
                          "--labels", path["y1.npy"], "--out", out)[-1]
        first = self.truth.first
        return record["loss"], {first.get(k, k): t.numpy() for k, t in self.read(out).items()}

    def losses(self, device, *words, steps=STEPS):
        """Of each of the steps."""
        path, net = self.truth.path, self.truth.net
        data = (f"npy:images='{path['x.npy']}' labels='{path['y.npy']}' tokens={int(net.vocabulary > 0)} "
                f"classes={net.vocabulary or onnx_nets.CLASSES}")
        records = self.run("train", "--device", device, "--data", data, "--shuffle", "no", "--steps",
                           str(steps), "--optimizer", "sgd", "--lr", str(net.rate), "--no-test", "--json",
                           "--every", "1", *words)
        return [r["step_loss"] for r in records if "step_loss" in r]


# ---- verdicts ----

class Wrong(Exception):
    """A comparison failed."""


class Result(typing.NamedTuple):
    verdict: str
    text: str
    said: list          # warnings
    worst: dict = {}    # errors


def judge(what, errors):
    """errors: [(ratio of error to what is allowed, error, name)]; returns the worst error."""
    bad = [e for e in errors if not e[0] <= 1]
    ratio, error, name = max(errors, key=lambda e: e[0])
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise Wrong(f"{what}: {error:.1e} ({name}){more} of {len(errors)}")
    return max(e[1] for e in errors)


def compare_shapes(tensors, truth):
    """PyTorch's, too."""
    want = dict(truth.start.named_parameters())
    return [(float("inf"), float("inf"), f"{k} is {tuple(t.shape)}, but {tuple(want[k].shape)} in PyTorch")
            for k, t in tensors.items() if k in want and tuple(want[k].shape) != t.shape]


def compare_curve(what, ours, truth, allowed):
    return judge(what, [(e / allowed, e, text) for e, text in curve_errors(ours, truth.losses)])


def load_saved(m, truth, path, gone=()):
    """The network after load_state_dict of what was saved, in double. Missing are just: modules that the first
    output does not come from, second names of tied weights, buffers that the network was computed of
    (Net.melted), and all of the normalisations `gone`. PyTorch itself makes up for counts of batches."""
    model = copy.deepcopy(truth.start).double()
    state, saved = model.state_dict(), collections.OrderedDict(m.read(path))
    saved._metadata = {"": state._metadata[""]}  # the version, without which MNASNet takes none
    found = {truth.first.get(k) for k in saved}
    expected = {k for k in state if (k not in saved and truth.first[k] in found) or not truth.counts(k)
                or k.rpartition(".")[0] in gone}
    expected = {k for k in expected if not k.endswith(".num_batches_tracked")} | set(m.melted)
    lost, extra = model.load_state_dict(saved, strict=False)
    wrong = [f"{what} {' '.join(sorted(names)[:3])} ({len(names)} in all)" for what, names in (
        ("load_state_dict misses", set(lost) - expected), ("it does not know", set(extra)),
        ("it should miss, but does not,", expected - set(lost))) if names]
    if wrong:
        raise Wrong("weights saved: " + "; ".join(wrong))
    return model


def compare_saved(m, truth, path):
    want, got = truth.end.state_dict(), load_saved(m, truth, path).state_dict()
    begin, errors = truth.start.state_dict(), []
    for name in (k for k in want if want[k].is_floating_point() and truth.counts(k)):
        moved = float((want[name] - begin[name].double()).norm())
        error = distance(got[name], want[name], moved)
        errors.append((error / DOUBLE, error, name))
    return judge("weights saved", errors)


def compare(m, truth, folder):
    """(the verdict's text, the worst error of each part)"""
    out = os.path.join(folder, "out.safetensors")
    loss, tensors = m.gradients(out)
    first = judge("gradients", compare_shapes(tensors, truth)
                  + compare_step((loss, tensors), truth.step, [], DOUBLE))
    given = m.losses("ref64", "--load", m.weights("w1.safetensors", folder), "--save", out)
    second = compare_curve("double", given, truth, DOUBLE)
    third = compare_saved(m, truth, out)
    own = max(e for e, _ in curve_errors(truth.single, truth.losses))
    allowed = max(FLOAT, 3 * own)
    fourth = compare_curve(f"float, allowed {allowed:.0e}", m.losses("cpu"), truth, allowed)
    told, names = m.told(COMPUTED), ", ".join(m.computed.values())
    if (told or "") != names or m.told(FOLDED):
        raise Wrong(f"a warning: computed of parameters is '{told}', expected '{names}'; "
                    f"{m.told(FOLDED) or 'none'} folded, expected none")
    text = (f"gradients {first:.0e}, losses {second:.0e}, weights {third:.0e}, in float {fourth:.0e} "
            f"(allowed {allowed:.0e})" + (f"; not in what is saved: {' '.join(m.melted)}" if m.melted else "")
            + "".join(f"; {k} is called {name}" for k, name in m.computed.items()))
    return text, {"gradients": first, "losses": second, "weights": third, "float": fourth,
                  "float, of what is allowed": fourth / allowed}


def compare_folded(m, truth, gone, folder):
    """It trains, under the names that are left, and Megalith tells how many normalisations are not."""
    out = os.path.join(folder, "out.safetensors")
    m.losses("cpu", "--save", out)
    load_saved(m, truth, out, gone)
    told, count = m.told(FOLDED), sum(truth.counts(f"{k}.weight") for k in gone)
    if told != str(count):
        raise Wrong(f"the exporter folded {count} batch normalisations, Megalith says {told or 'nothing'}")
    return f"the exporter folded {count} batch normalisations; Megalith says so, all others are saved"


def not_written(net, way, e):
    verdict = "no file" if way in net.unwritten else "FAILED"
    return Result(verdict, f"{type(e).__name__}: {str(e).strip().splitlines()[0][:150]}", [])


def examine(build, truth, way, folder):
    """The Result of one file."""
    try:
        path = export(truth.name, way, folder)
    except Exception as e:
        return not_written(truth.net, way, e)
    m = Megalith(build, truth, path, way)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            gone = folded(truth, path)
            if gone:
                return Result("lost", compare_folded(m, truth, gone, scratch), m.said)
            text, worst = compare(m, truth, scratch)
            return Result("lost" if m.computed else "ok", text, m.said, worst)
    except Refused as e:
        return Result("FAILED", str(e), m.said[:-1])
    except Wrong as e:
        return Result("FAILED", str(e), m.said)


def examine_random(build, truth, way, folder):
    """With dropout or stochastic depth on: the same numbers again, and under other plans."""
    try:
        path = export(truth.name, way, folder, still=False)
    except Exception as e:
        return not_written(truth.net, way, e)
    m = Megalith(build, truth, path, way)
    half = str(truth.net.shape[0] // 2)  # of the samples: what these plans can normalise together
    norm = ["--norm", half] if any(isinstance(k, NORMS) for k in truth.start.modules()) else []
    try:
        gone = folded(truth, path)
        base = m.losses("ref64", *norm, steps=RANDOM_STEPS)
        if max(e for e, _ in curve_errors(base, truth.losses[:RANDOM_STEPS])) < 1e-6:
            raise Wrong("nothing was dropped")
        for plan in ("", *PLANS):
            losses = m.losses("ref64", *norm, *plan.split(), steps=RANDOM_STEPS)
            errors = curve_errors(losses, base)
            judge(f"plan '{plan}'", [(e / DOUBLE, e, text) for e, text in errors])
    except (Refused, Wrong) as e:
        return Result("FAILED", str(e), m.said)
    lost = f"; {len(gone)} normalisations are folded" if gone else ""
    return Result("ok", f"two runs and {len(PLANS)} other plans have the same losses{lost}", m.said)


def cases(only, way):
    """(name, [ways]) of what was selected"""
    for name, net in onnx_nets.NETS.items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in only.split(",")):
            ways = [w for w in WAYS if way in ("", w) and w not in net.without]
            if ways:
                yield name, ways


def tell(name, way, result, seconds):
    print(f"{result.verdict:8}{name}/{way}: {result.text} [{seconds:.0f} s]", flush=True)
    for line in result.said:
        print(f"        {line[:300]}", flush=True)


def examine_net(arguments, name, ways, folder, scratch):
    """The Results of all files of a network."""
    truth, results = Truth(name, scratch), []
    for way in ways:
        jobs = [(way, examine)] + ([(way + "-random", examine_random)] if truth.net.random else [])
        for title, work in jobs:
            began = time.monotonic()
            results.append(work(arguments.build, truth, way, folder))
            tell(name, title, results[-1], time.monotonic() - began)
    return results


def sum_up(networks, results):
    """Prints the counts and the worst errors; returns the count of each verdict."""
    verdicts = [r.verdict for r in results]
    count = {v: verdicts.count(v) for v in ("ok", "lost", "no file", "FAILED")}
    print(f"onnx_training: PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
          f"onnxscript {onnxscript.__version__}, onnx {onnx.__version__}")
    worst = {}
    for r in results:
        worst.update((k, max(e, worst.get(k, 0))) for k, e in r.worst.items())
    if worst:
        print("onnx_training: worst: " + ", ".join(f"{k} {e:.1e}" for k, e in worst.items()))
    print(f"onnx_training: {networks} networks, {len(results)} files: "
          + ", ".join(f"{n} {v}" for v, n in count.items()))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="*", help="names of networks, or patterns, with commas")
    parser.add_argument("--way", default="", choices=["", *WAYS], help="one exporter")
    parser.add_argument("--folder", help="keep the files here, and take those that are there")
    parser.add_argument("--list", action="store_true", help="the names of all networks")
    arguments = parser.parse_args()
    chosen = list(cases(arguments.only, arguments.way))
    if arguments.list:
        print("\n".join(name for name, _ in chosen))
        return
    results = []
    for name, ways in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            results += examine_net(arguments, name, ways, arguments.folder or scratch, scratch)
    count = sum_up(len(chosen), results)
    sys.exit(not results or count["FAILED"] > 0)


if __name__ == "__main__":
    main()
