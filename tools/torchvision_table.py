"""Tries every classification, segmentation and video model that torchvision lists: captured, and one step's loss, every gradient
and all running statistics compared with PyTorch's in double, by ref64, at 1e-9; weights are random.

    PYTHONPATH=python python3 tools/torchvision_table.py [NAME...] [--file FILE] [--limit SECONDS] [--again] [--print]

Images are the smallest that PyTorch itself takes. Each model has a process of its own, with a limit of time; what came out goes
to FILE at once, so that a later call goes on where this one ended (--again: from the start). Models of more than LARGE
parameters are captured on the meta device and planned, not computed. Prints the table of docs/python.md.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

LARGE = 3e8
DOUBLE = 1e-9
PIXELS = (17, 33, 49, 65, 97, 129, 193, 224, 257, 299)
FRAMES = (4, 9, 16)
GROUPS = ("", ".segmentation", ".video")
GROWN = 129  # pixels from which few samples are enough

# What belongs to the architecture is made for small images: vision transformers know theirs.
WORDS = {r"vit_.*_(14|16|32)": lambda m: {"image_size": 2 * int(m[1])},
         r"maxvit_t": lambda m: {"input_size": (224, 224)},
         r"googlenet|inception_v3": lambda m: {"init_weights": False}}


def words_of(name):
    return next((f(m) for pattern, f in WORDS.items() if (m := re.fullmatch(pattern, name))), {})


def all_names():
    """The smallest first, so that much is known early."""
    import torchvision
    names = []
    for group in GROUPS:
        module = torchvision.models
        for part in group.split(".")[1:]:
            module = getattr(module, part)
        names += torchvision.models.list_models(module=module)
    return sorted(names, key=parameters)


# ---- one model

def group_of(name):
    import torchvision
    module = torchvision.models.get_model_builder(name).__module__
    return "video" if ".video." in module else "segmentation" if ".segmentation." in module else "classes"


def build(name):
    import torch
    import torchvision

    from onnx_nets import CLASSES, quieten, silence
    torch.manual_seed(1)
    backbone = {"weights_backbone": None} if group_of(name) == "segmentation" else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **backbone, **words_of(name))
    silence(model)
    if not any(p.is_meta for p in model.parameters()):
        quieten(model)
    return model.train()


def shapes(name):
    """Of a sample, the smallest first."""
    words = words_of(name)
    side = words.get("image_size") or words.get("input_size", (0,))[0]
    for pixels in [side] if side else PIXELS:
        for count in FRAMES if group_of(name) == "video" else [0]:
            yield (3, count, pixels, pixels) if count else (3, pixels, pixels)


def smallest(name, model):
    """The first shape that PyTorch trains on."""
    import torch
    error = None
    for shape in shapes(name):
        try:
            with torch.no_grad():
                model(torch.zeros(2, *shape))
            return shape
        except (RuntimeError, ValueError, AssertionError) as e:
            error = e
    raise error


def samples_of(model, shape):
    import torch
    normed = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())
    large = shape[-1] >= GROWN
    if not normed:
        return 1 if large else 2
    return 2 if large else 8 if len(shape) == 3 else 4


def first_of(y):
    while not hasattr(y, "shape"):
        y = next(iter(y.values())) if isinstance(y, dict) else y[0]
    return y


def compute(name):
    """{"state": .., ..} of one model."""
    import copy

    import torch
    from torch.nn import functional

    from megalith import check
    from megalith.capture.torch import capture
    from onnx_nets import CLASSES
    torch.set_num_threads(1)
    model = build(name)
    shape = smallest(name, copy.deepcopy(model))
    count, random = samples_of(model, shape), torch.Generator().manual_seed(1)
    x = torch.randn(count, *shape, generator=random)
    labels = (count, *shape[1:]) if group_of(name) == "segmentation" else (count,)
    y = torch.randint(0, CLASSES, labels, generator=random)
    net = capture(model, x[:1])
    ours = check.megalith_step(net, [x.numpy()], y.int().numpy(), "ref64")
    judge = check.torch_step(model, [x], y, lambda output, target: functional.cross_entropy(first_of(output), target))
    return {"state": "equal", "input": list(x.shape), "error": check.compare(ours, judge, tolerance=DOUBLE)}


def plan(name):
    """Of a model that is too large to be computed here."""
    import torch

    from megalith import check, onnx_file
    from megalith.capture.torch import capture
    try:
        with torch.device("meta"):
            model = build(name)
    except NotImplementedError:  # it makes its extents of tensors
        model = build(name)
    shape = next(shapes(name))
    net = capture(model, torch.zeros(1, *shape))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        onnx_file.write(net, path)
        subprocess.run([check.command(), "plan", path, "--batch", "2"], check=True, capture_output=True)
    return {"state": "planned", "input": [2, *shape]}


def parameters(name):
    """With all classes, as torchvision says."""
    import torchvision
    return min(w.meta["num_params"] for w in torchvision.models.get_model_weights(name))


def one(name):
    from megalith import CaptureError
    from megalith.check import Mismatch
    numbers = parameters(name)
    try:
        found = (plan if numbers > LARGE else compute)(name)
    except CaptureError as e:
        found = {"state": "refused", "reason": str(e)}
    except Mismatch as e:
        found = {"state": "differs", "reason": str(e)}
    except Exception as e:  # the table says so
        found = {"state": "failed", "reason": f"{type(e).__name__}: {e}"}
    print(json.dumps({**found, "parameters": numbers}))


# ---- all

def tried(name, limit):
    begin = time.monotonic()
    try:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", name], capture_output=True, text=True,
                              timeout=limit)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else {"state": "failed", "reason": (done.stderr.strip().splitlines() or [
            f"ended by signal {-done.returncode}"])[-1]}
    except subprocess.TimeoutExpired:
        found = {"state": "slow", "reason": f"more than {limit:.0f} s"}
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


WORDS_OF_STATES = {"equal": "captured and equal", "planned": "too large, planned only", "refused": "refused", "differs": "differs",
                   "failed": "failed", "slow": "not done in time"}


def row(names, found):
    """Models with the same outcome and the same batch."""
    errors = [found[n]["error"] for n in names if "error" in found[n]]
    batch = "x".join(map(str, found[names[0]].get("input", [])))
    what = WORDS_OF_STATES[found[names[0]]["state"]]
    what += f", {max(errors):.0e}" if errors else ""
    what += ": " + found[names[0]]["reason"].replace("\n", " ")[:200] if "reason" in found[names[0]] else ""
    return f"| {', '.join(names)} | {batch} | {what} |"


def table(found, names):
    groups = {}
    for name in names:
        if name in found:
            f = found[name]
            groups.setdefault((f["state"], str(f.get("input")), f.get("reason", "")), []).append(name)
    order = list(WORDS_OF_STATES)
    rows = sorted(groups.items(), key=lambda g: (order.index(g[0][0]), g[1][0]))
    count = sum(found[n]["state"] == "equal" for n in names if n in found)
    return "\n".join([f"{count} of {len(names)} are captured and equal; {sum(n not in found for n in names)} were not tried.", "",
                      "| models | batch | outcome, largest error |", "|---|---|---|", *[row(g, found) for _, g in rows]])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--file", default="torchvision-table.json")
    p.add_argument("--limit", type=float, default=900)
    p.add_argument("--again", action="store_true")
    p.add_argument("--print", action="store_true", help="only what is known so far")
    p.add_argument("--one", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        one(a.one)
        return
    names = a.names or all_names()
    found = json.load(open(a.file)) if os.path.exists(a.file) and not a.again else {}
    for name in names if not a.print else ():
        if found.get(name, {}).get("state") in ("equal", "planned", "refused") and not a.names:
            continue
        found[name] = tried(name, a.limit)
        print(name, {k: v for k, v in found[name].items() if k != "reason"}, found[name].get("reason", "")[:300], file=sys.stderr,
              flush=True)
        with open(a.file + ".new", "w") as out:
            json.dump(found, out, indent=1)
        os.replace(a.file + ".new", a.file)
    print(table(found, names))


if __name__ == "__main__":
    main()
