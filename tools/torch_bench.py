"""Megalith against PyTorch: seconds per training step and peak memory, side by side.

    python3 tools/torch_bench.py [--model resnet50] [--batch 16] [--size 224] [--pairs 5]

Every measurement is a process of its own, and the contestants take turns, so that a machine that
grows slower or busier does so for all. PyTorch runs twice: as it comes (default), and with the
faster memory format of two and tcmalloc, if there is one (tuned). A step is forward, backward and
SGD with momentum, on one synthetic batch. Peak memory is the kernel's own count (wait4) for all.
"""
import argparse
import ctypes.util
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = "libtcmalloc_minimal.so.4"


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default="resnet50")
    p.add_argument("--options", default="", help="of the model: \"depth=56 classes=100\"")
    p.add_argument("--size", type=int, default=0, help="image height and width (the model's own)")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--iterations", type=int, default=2)
    p.add_argument("--pairs", type=int, default=5, help="turns of all contestants")
    p.add_argument("--megalith", default=os.path.join("build", "megalith"), help="the command")
    p.add_argument("--extra", default="", help="more words for `megalith bench`")
    p.add_argument("--json", action="store_true", help="also print all figures as one JSON line")
    p.add_argument("--child", choices=["nchw", "channels_last"], help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.pairs < 1:
        p.error("--pairs must be 1 or more")
    if a.size:
        if "image=" in a.options:
            p.error("--size and image= in --options say the same thing: give one")
        channels = "1" if a.model == "cnn" else "3"
        a.options = f"{a.options} image={channels}x{a.size}x{a.size}".strip()
    return a


def child(a):
    """Runs in a process of its own: trains in PyTorch and prints one JSON line."""
    import torch
    import torch_models

    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model, image = torch_models.build(a.model, a.options)
    x, y = (torch.tensor(t) for t in torch_models.example(model, image, a.batch))
    if a.child == "channels_last":
        form = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
        model, x = (t.to(memory_format=form) for t in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    seconds = []
    for _ in range(a.warmup + a.iterations):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch_models.loss(model, model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds_per_step": statistics.median(seconds[a.warmup:]),
                      "imported": imported}))


def measure(command, environment=None):
    """Runs a command; returns its JSON line, with the peak memory the kernel saw."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, **(environment or {})})
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        sys.exit(f"torch_bench: failed ({process.returncode}): {shlex.join(command)}\n{text}")
    return {**json.loads(lines[-1]), "rss": usage.ru_maxrss * 1024}


def contestants(a):
    """Name -> function that measures once."""
    common = ["--batch", str(a.batch), "--threads", str(a.threads), "--warmup", str(a.warmup),
              "--iterations", str(a.iterations)]
    options = ["--options", a.options] if a.options else []
    ours = [a.megalith, "bench", a.model, *options, *common, *shlex.split(a.extra), "--json"]
    torch = [sys.executable, os.path.abspath(__file__), "--model", a.model, *options, *common]
    openmp = {"OMP_NUM_THREADS": str(a.threads)}
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
    tuned = {**openmp, "LD_PRELOAD": PRELOAD} if tcmalloc == PRELOAD else openmp

    def run(form, environment):
        return measure([*torch, "--child", form], environment)

    trial = {form: run(form, tuned)["seconds_per_step"] for form in ("nchw", "channels_last")}
    best = min(trial, key=trial.get)
    malloc = "tcmalloc" if tuned is not openmp else "no tcmalloc found"
    return shlex.join(ours), {
        "megalith": lambda: measure(ours),
        "torch default": lambda: run("nchw", openmp),
        f"torch tuned ({best}, {malloc})": lambda: run(best, tuned)}


def report(a, command, results):
    gib = 2.0 ** 30
    seconds = {k: [r["seconds_per_step"] for r in v] for k, v in results.items()}
    memory = {k: statistics.median(r["rss"] for r in v) for k, v in results.items()}
    median = {k: statistics.median(v) for k, v in seconds.items()}
    print(f"{a.model} {a.options}: batch {a.batch}, {a.threads} threads, {a.pairs} turns; medians")
    print(f"command: {command}")
    head = f"{'':46} {'s/step':>8}  {'(min .. max)':>18} {'RSS GiB':>8}"
    print(head + f" {'time / ours':>12} {'RSS / ours':>11}")
    for k in results:
        spread = f"({min(seconds[k]):.3f} .. {max(seconds[k]):.3f})"
        print(f"{k:46} {median[k]:8.3f}  {spread:>18} {memory[k] / gib:8.2f}"
              f" {median[k] / median['megalith']:12.3f} {memory[k] / memory['megalith']:11.3f}")
    imported = results["torch default"][-1]["imported"] / gib
    print(f"of PyTorch's memory {imported:.2f} GiB are there as soon as it is imported")
    predicted = results["megalith"][-1].get("predicted_seconds_per_step")
    if predicted:
        print(f"megalith predicted {predicted:.3f} s/step")
    if a.json:
        print(json.dumps({"model": a.model, "options": a.options, "batch": a.batch,
                          "threads": a.threads, "seconds": seconds, "rss": memory}))


def main():
    a = arguments()
    if a.child:
        return child(a)
    command, run = contestants(a)
    results = {k: [] for k in run}
    for turn in range(a.pairs):
        for name, once in run.items():
            results[name].append(once())
            print(f"turn {turn + 1}: {name}: {results[name][-1]['seconds_per_step']:.3f} s/step",
                  file=sys.stderr)
    report(a, command, results)


if __name__ == "__main__":
    main()
