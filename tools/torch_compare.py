"""Compares Megalith with PyTorch: every operator's samples, whole networks of the zoo, and training.

    python3 tools/torch_compare.py [--build build] [--only ops|models|curves] [--match WORD]

Operators: `dump_samples` runs them through the plain kernels in float (f32) and double (f64) and
through the cpu device, and writes inputs and results; PyTorch computes the same in double.
Networks: `megalith grads` gets PyTorch's weights and a batch, and returns loss, gradients and
updated running statistics.
Training: `megalith train` gets PyTorch's weights and five batches, goes through them four times with
SGD (momentum) and with Adam, and returns the loss of each of the 20 steps.

The rule is that of comparison.py. Of a network, ref64 (1e-10) gets the usual weights; the cpu, in float
and with direct convolutions and with Winograd's wherever they apply, gets weights and a batch that are
off its kinks (torch_kinks.py).

The rule for training: every one of the 20 losses of the cpu device, in float, within 1e-3 of
PyTorch's in double, relative: three times the 3e-4 that PyTorch's own float may be off. Steps magnify
rounding: batch norms of few values, rectifiers that flip, Adam, which makes full steps of gradients near
zero. So the cases (CURVES) have rates at which some batch's loss moves by 1e-2 or more, while PyTorch's
own float stays within 3e-4 of its double; both are checked. Inception and AmoebaNet come with no such
rate at sizes that take seconds: their last batch norms have few values (with 4, PyTorch in double loses
Inception's curve by 8 % at the fourth step if weights differ by 1e-12). There, and in ResNets of 50 layers
and more, batch norms begin with a bias of 2 (calm): most, not all, of what rectifiers get is positive, and
gradients no longer grow from layer to layer.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import torch_kinks
import torch_models
import torch_ops
from comparison import DOUBLE, FLOAT, compare_step, distance

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = {"f32": FLOAT, "cpu": FLOAT, "winograd": FLOAT, "f64": DOUBLE, "ref64": DOUBLE}


class Tally:
    """Prints one line per group of comparisons and remembers failures."""

    def __init__(self):
        self.failed = 0

    def report(self, what, errors, kind="tensors", remark=""):
        """errors: [(ratio of error to tolerance, error, name)]"""
        if not errors:
            errors = [(float("inf"), float("nan"), "nothing to compare")]
        ratio, error, name = max(errors, key=lambda e: e[0])
        good = ratio <= 1
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what:58} {len(errors):4} {kind}, worst {error:.1e}"
              f" ({name}{'; ' if remark else ''}{remark})", flush=True)


# ---- operators ----

def dropout(case, attrs):
    """Drawn at random, so the mask is found in y; forward and backward must share it."""
    x, y, dy = (torch.tensor(case[k]).double() for k in ("x0", "y", "dy"))
    rate = float(torch_ops.words(attrs).get("rate", "0.5"))
    mask = (y != 0).double() / (1 - rate) if rate < 1 else torch.zeros_like(y)
    return {"y": x * mask, "dx0": dy * mask, "eval": x}


def reference(op, attrs, case):
    """What PyTorch makes of a case's inputs, in double."""
    if op == "dropout":
        return dropout(case, attrs)

    def given(letter):
        names = sorted(k for k in case if k[0] == letter and k[1:].isdigit())
        tensors = [torch.tensor(case[k]) for k in names]
        return [t.double() if t.is_floating_point() else t for t in tensors]

    x, w = given("x"), given("w")
    result = {}
    if "eval" in case:
        with torch.no_grad():
            y = torch_ops.run(op, attrs, x, w, training=False)
            result["eval"] = y[0] if isinstance(y, tuple) else y
    for name, t in [*((f"dx{i}", t) for i, t in enumerate(x)),
                    *((f"dw{i}", t) for i, t in enumerate(w))]:
        t.requires_grad_(name in case)
    y = torch_ops.run(op, attrs, x, w)
    if isinstance(y, tuple):
        y, result["y1"] = y
    result["y"] = y
    if y.requires_grad:
        y.backward(torch.tensor(case["dy"]).double().reshape(y.shape))
    for letter, tensors in (("x", x), ("w", w)):
        for i, t in enumerate(tensors):
            result[f"d{letter}{i}"] = t.grad
            result[f"after{i}" if letter == "w" else ""] = t
    return result


def compare_case(how, number, op, attrs, case):
    expected = reference(op, attrs, case)
    errors = []
    for key, tensor in case.items():
        if key == "dy" or (key[0] in "xw" and key[1:].isdigit()):
            continue
        want = expected.get(key)
        name = f"{number} '{attrs}' {key}"
        if want is None:
            errors.append((float("inf"), float("inf"), name + ": PyTorch has none"))
            continue
        error = distance(tensor, want.detach().numpy(), 1e-3 if key[0] == "d" else 0.0)
        errors.append((error / TOLERANCE[how], error, name))
    return errors


def compare_ops(a, tally):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(a.build, "dump_samples"), folder], check=True)
        for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
            op, how = os.path.basename(path).split(".")[:2]
            if a.match not in op:
                continue
            with safe_open(path, framework="numpy") as f:
                cases = f.metadata()["cases"]
            tensors = load_file(path)
            errors = []
            for text in cases.split(";"):
                number, _, _, attrs = text.split("|")
                case = {k.partition(".")[2]: t for k, t in tensors.items()
                        if k.partition(".")[0] == number}
                errors += compare_case(how, number, op, attrs, case)
            tally.report(f"{op} {how}", errors)


# ---- networks ----

def randomise(model):
    """Normalisation starts at 1 and 0, where much goes unnoticed."""
    for m in model.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.uniform_(m.weight, 0.5, 1.5)
            torch.nn.init.normal_(m.bias, 0, 0.2)
            torch.nn.init.normal_(m.running_mean, 0, 0.2)
            torch.nn.init.uniform_(m.running_var, 0.5, 1.5)


def state_of(model):
    return {k: t.detach().numpy().copy() for k, t in model.state_dict().items()
            if not k.endswith("num_batches_tracked")}


def torch_step(build, state, x, y, kind, threads):
    """Loss, gradients and running statistics of one forward and backward."""
    torch.set_num_threads(threads)
    model = build().to(kind)
    model.load_state_dict({k: torch.tensor(t) for k, t in state.items()}, strict=False)
    y = torch.tensor(y)
    loss = torch_models.loss(model, model(torch.tensor(x).to(kind)),
                             y.to(kind) if y.is_floating_point() else y)
    loss.backward()
    gradients = {k: p.grad.numpy() for k, p in model.named_parameters()}
    running = {k: t for k, t in state_of(model).items() if k not in gradients}
    return float(loss.detach()), gradients, running


def megalith_step(a, folder, name, options, device, batch):
    path = {k: os.path.join(folder, k) for k in ("w.safetensors", "x.npy", "y.npy",
                                                 "out.safetensors")}
    kernels = dict(os.environ, MEGALITH_WINOGRAD="all" if device == "winograd" else "0")
    device = "cpu" if device == "winograd" else device
    command = [os.path.join(a.build, "megalith"), "grads", name, "--options", options, "--batch",
               str(batch), "--device", device, "--weights", path["w.safetensors"], "--input",
               path["x.npy"], "--labels", path["y.npy"], "--out", path["out.safetensors"]]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=kernels).stdout
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])["loss"], load_file(path["out.safetensors"])


def draw(name, options, batch, seed):
    """Random weights and a random batch."""
    torch.manual_seed(seed)
    model, image = torch_models.build(name, options)
    randomise(model)
    return (state_of(model), *torch_models.example(model, image, batch))


def draw_smooth(name, options, batch):
    """The same, of the first seed that leaves nothing near a kink, and how near the nearest is."""
    torch.set_num_threads(2)
    for seed in range(1, torch_kinks.SEEDS + 1):
        state, x, y = draw(name, options, batch, seed)
        state, margin = torch_kinks.keep_off(lambda: torch_models.build(name, options)[0], state, x)
        if margin > torch_kinks.NEAR:
            return state, x, y, f"seed {seed}, {margin:.0e} off kinks"
    return None


def compare_batch(a, name, options, batch, devices):
    """{device: (errors, remark)}; all of `devices` in double, or all in float."""
    def build():
        return torch_models.build(name, options)[0]

    exact = "ref64" in devices
    drawn = (*draw(name, options, batch, 1), "") if exact else draw_smooth(name, options, batch)
    if not drawn:
        why = f"{torch_kinks.SEEDS} batches are near a kink: make the network smaller"
        return {d: ([(float("inf"), float("nan"), why)], "") for d in devices}
    state, x, y, remark = drawn
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        save_file(state, os.path.join(folder, "w.safetensors"))
        numpy.save(os.path.join(folder, "x.npy"), x)
        numpy.save(os.path.join(folder, "y.npy"), y)
        judge = torch_step(build, state, x, y, torch.float64, 2)
        floats = [torch_step(build, state, x, y, torch.float32, threads)
                  for threads in (1, 2) if not exact]
        for device in devices:
            ours = megalith_step(a, folder, name, options, device, batch)
            result[device] = compare_step(ours, judge, floats, TOLERANCE[device]), remark
    return result


def compare_model(a, tally, name, options, batch, devices):
    for group in ([d for d in devices if d != "ref64"], [d for d in devices if d == "ref64"]):
        for device, (errors, remark) in (compare_batch(a, name, options, batch, group).items()
                                         if group else ()):
            tally.report(f"{name} {options} {device}", errors, "tensors", remark)


# ---- training ----

STEPS, BATCHES = 20, 5
OPTIMIZERS = {"sgd": (["--momentum=0.9"], lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)),
              "adam": ([], torch.optim.Adam)}


def torch_curve(build, state, batches, optimizer, lr, kind):
    """The losses of all steps."""
    model = build().to(kind)
    model.load_state_dict({k: torch.tensor(t) for k, t in state.items()}, strict=False)
    steps = OPTIMIZERS[optimizer][1](model.parameters(), lr)
    losses = []
    for i in range(STEPS):
        x, y = (torch.tensor(t) for t in batches[i % BATCHES])
        steps.zero_grad()
        loss = torch_models.loss(model, model(x.to(kind) if x.is_floating_point() else x),
                                 y.to(kind) if y.is_floating_point() else y)
        loss.backward()
        steps.step()
        losses.append(float(loss.detach()))
    return losses


def megalith_curve(a, folder, name, options, optimizer, lr, device, batch):
    path = {k: os.path.join(folder, k) for k in ("w.safetensors", "x.npy", "y.npy")}
    tokens = numpy.load(path["x.npy"], mmap_mode="r").dtype.kind == "i"
    data = f"npy:images='{path['x.npy']}' labels='{path['y.npy']}' tokens={int(tokens)}"
    command = [os.path.join(a.build, "megalith"), "train", name, "--options", options, "--batch",
               str(batch), "--device", device, "--load", path["w.safetensors"], "--data", data,
               "--shuffle", "no", "--steps", str(STEPS), "--optimizer", optimizer, "--lr", str(lr),
               "--json", "--every", "1", *OPTIMIZERS[optimizer][0]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"torch_compare: {' '.join(command)}:\n{done.stderr}")
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [r["step_loss"] for r in records if "step_loss" in r]


def curve_errors(ours, judge):
    """[(relative error, which step and both losses)]"""
    errors = [(abs(b - j) / abs(j), f"step {i}: {b:.7f}, PyTorch {j:.7f}")
              for i, (b, j) in enumerate(zip(ours, judge), 1)]
    if len(ours) != len(judge):
        errors.append((float("inf"), f"{len(ours)} of {len(judge)} steps"))
    return [(e if numpy.isfinite(e) else float("inf"), text) for e, text in errors]


def unfit(judge, single):
    """What is wrong with the case itself: PyTorch's losses in double and in float."""
    still = judge[:BATCHES] * (STEPS // BATCHES)
    moved, drift = (max(curve_errors(other, judge))[0] for other in (still, single))
    if moved < 1e-2:
        return f"the losses hardly move: {moved:.1e}"
    return f"PyTorch's float is off by {drift:.1e} itself" if drift > 3e-4 else None


def calm(model):
    """Rectifiers behind batch norms pass most of what they get."""
    for m in model.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.constant_(m.bias, 2)


def compare_curves(a, tally, name, options, batch, rates):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, image = torch_models.build(name, options)
    if getattr(model, "restless", False):
        calm(model)
    state = state_of(model)
    batches = [torch_models.example(model, image, batch) for _ in range(BATCHES)]

    def curve(optimizer, lr, kind):
        return torch_curve(lambda: torch_models.build(name, options)[0], state, batches, optimizer,
                           lr, kind)

    with tempfile.TemporaryDirectory() as folder:
        save_file(state, os.path.join(folder, "w.safetensors"))
        for i, letter in enumerate("xy"):
            numpy.save(os.path.join(folder, letter + ".npy"),
                       numpy.concatenate([b[i] for b in batches]))
        for optimizer, lr in rates.items():
            ours = megalith_curve(a, folder, name, options, optimizer, lr, "cpu", batch)
            judge = curve(optimizer, lr, torch.float64)
            wrong = unfit(judge, curve(optimizer, lr, torch.float32))
            errors = [(e / 1e-3, e, text) for e, text in curve_errors(ours, judge)]
            if wrong:
                errors.append((float("inf"), float("nan"), wrong))
            tally.report(f"{name} {options} {optimizer} lr={lr:g} cpu", errors, "steps")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build directory")
    p.add_argument("--only", choices=["ops", "models", "curves"], help="one part")
    p.add_argument("--match", default="", help="only operators or models whose name has this")
    a = p.parse_args()
    tally = Tally()
    if a.only in (None, "ops"):
        compare_ops(a, tally)
    for name, options, batch, devices in torch_models.CASES:
        if a.only in (None, "models") and a.match in name:
            compare_model(a, tally, name, options, batch, devices)
    for name, options, batch, rates in torch_models.CURVES:
        if a.only in (None, "curves") and a.match in name:
            compare_curves(a, tally, name, options, batch, rates)
    if tally.failed:
        sys.exit(f"torch_compare: {tally.failed} comparisons failed")


if __name__ == "__main__":
    main()
