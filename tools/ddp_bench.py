"""Two ranks with one thread each, data parallel, against two that do not talk and against PyTorch.

    python3 tools/ddp_bench.py [--model resnet50] [--batch 32] [--size 224] [--turns 5]

Images/s of both ranks together:

    apart   two copies of Megalith on one rank each, at the same time: what there is to be had
    ranks   Megalith on two ranks, normalised over each rank's samples, as PyTorch does
    torch   DistributedDataParallel over gloo, in the faster memory format of two, with tcmalloc if
            there is one, gradients as views of their buckets, a static graph

--batch is that of both ranks. Contestants take turns, so that a machine that grows slower or busier
does so for all; each rank is pinned to a core of its own. CPU seconds are those of all threads of a
rank: a machine that is busy otherwise disturbs them least.
"""
import argparse
import ctypes.util
import json
import os
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = "libtcmalloc_minimal.so.4"
RANKS = 2


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default="resnet50")
    p.add_argument("--options", default="", help="of the model: \"depth=56 classes=100\"")
    p.add_argument("--size", type=int, default=0, help="image height and width (the model's own)")
    p.add_argument("--batch", type=int, default=32, help="of both ranks together")
    p.add_argument("--iterations", type=int, default=4)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--megalith", default=os.path.join("build", "megalith"), help="the command")
    p.add_argument("--mpi", default="openmpi", choices=["openmpi", "mpich"])
    p.add_argument("--extra", default="", help="more words for Megalith's two ranks: \"--bucket 4MiB\"")
    p.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    p.add_argument("--json", action="store_true", help="also print all figures as one JSON line")
    p.add_argument("--child", choices=["nchw", "channels_last"], help=argparse.SUPPRESS)
    p.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.batch % RANKS or a.batch < RANKS:
        p.error(f"--batch {a.batch} is shared by {RANKS} ranks: give a multiple of {RANKS}")
    if len(cores()) < RANKS:
        p.error(f"{RANKS} ranks need {RANKS} cores, but there is {len(cores())}")
    if a.turns < 1 or a.iterations < 1:
        p.error("--turns and --iterations must be 1 or more")
    if a.size:
        a.options = f"{a.options} image=3x{a.size}x{a.size}".strip()
    return a


# ---- PyTorch: one rank, a process of its own ----

def child(a):
    import torch
    import torch.distributed as dist
    import torch_models
    from torch.nn.parallel import DistributedDataParallel

    os.sched_setaffinity(0, {cores()[a.rank]})
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{a.port}", rank=a.rank,
                            world_size=RANKS)
    model, image = torch_models.build(a.model, a.options)
    x, y = (torch.tensor(t) for t in torch_models.example(model, image, a.batch // RANKS))
    if a.child == "channels_last":
        model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True,
                                       broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    seconds = []
    for step in range(2 + a.iterations):  # the first two build and rebuild the buckets
        if step == 2:
            before = used(resource.getrusage(resource.RUSAGE_SELF))
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch_models.loss(model, parallel(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    cpu = used(resource.getrusage(resource.RUSAGE_SELF)) - before
    print(json.dumps({"seconds_per_step": statistics.median(seconds[2:]),
                      "cpu_seconds_per_step": cpu / a.iterations}), flush=True)
    dist.destroy_process_group()


def cores():
    return sorted(os.sched_getaffinity(0))


def used(usage):
    return usage.ru_utime + usage.ru_stime


# ---- measuring ----

def fail(command, text):
    sys.exit(f"ddp_bench: failed: {shlex.join(command)}\n{text}")


def together(commands, environment=None):
    """Runs commands at the same time; returns the JSON lines that they print last."""
    running = [subprocess.Popen(c, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, **(environment or {})})
               for c in commands]
    results = []
    for command, process in zip(commands, running):
        text, errors = process.communicate()
        lines = [line for line in text.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            fail(command, text + errors)
        results.append(json.loads(lines[-1]))
    return results


def result(a, seconds, ranks):
    """seconds: a step's, of each rank; ranks: what they printed."""
    return {"images_per_second": sum(a.batch / RANKS / s for s in seconds),
            "cpu": statistics.mean(r["cpu_seconds_per_step"] for r in ranks),
            "exposed": ranks[0].get("exposed_seconds_per_step", 0)}


def words(a, batch):
    options = ["--options", a.options] if a.options else []
    return ["bench", a.model, *options, "--batch", str(batch), "--threads", "1", "--warmup", "2",
            "--iterations", str(a.iterations), "--repeat", "1", "--json"]


def ranks_command(a):
    return [a.megalith, "run", "-np", str(RANKS), "--mpi", a.mpi, *words(a, a.batch), "--replicas",
            str(RANKS), "--norm", str(a.batch // RANKS), *shlex.split(a.extra)]


def measure_ranks(a):
    r = together([ranks_command(a)])
    return result(a, [r[0]["seconds_per_step"]] * RANKS, r)


def measure_apart(a):
    r = together([["taskset", "-c", str(core), a.megalith, *words(a, a.batch // RANKS)]
                  for core in cores()[:RANKS]])
    return result(a, [one["seconds_per_step"] for one in r], r)


def measure_torch(a, form, environment):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    options = ["--options", a.options] if a.options else []
    r = together([[sys.executable, os.path.abspath(__file__), "--model", a.model, *options,
                   "--batch", str(a.batch), "--iterations", str(a.iterations), "--child", form,
                   "--rank", str(k), "--port", str(port)] for k in range(RANKS)], environment)
    return result(a, [one["seconds_per_step"] for one in r], r)


def contestants(a):
    """Name -> function that measures once."""
    found = {"megalith apart": lambda: measure_apart(a), "megalith ranks": lambda: measure_ranks(a)}
    if a.no_torch:
        return found
    environment = {"OMP_NUM_THREADS": "1"}
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal") == PRELOAD
    if tcmalloc:
        environment["LD_PRELOAD"] = PRELOAD
    trial = {form: measure_torch(a, form, environment)["images_per_second"]
             for form in ("nchw", "channels_last")}
    best = max(trial, key=trial.get)
    name = f"torch DDP ({best}, {'tcmalloc' if tcmalloc else 'no tcmalloc found'})"
    found[name] = lambda: measure_torch(a, best, environment)
    return found


def report(a, results):
    speed = {k: [r["images_per_second"] for r in v] for k, v in results.items()}
    median = {k: statistics.median(v) for k, v in speed.items()}
    cpu = {k: statistics.median(r["cpu"] for r in v) for k, v in results.items()}
    print(f"{a.model} {a.options}: {RANKS} x 1 thread, batch {RANKS} x {a.batch // RANKS}, "
          f"{a.mpi}, {a.turns} turns; medians")
    print(f"command: {shlex.join(ranks_command(a))}")
    print(f"{'':40} {'images/s':>9} {'(min .. max)':>18} {'CPU s/step, rank':>17} {'ranks / it':>11}")
    for k in results:
        spread = f"({min(speed[k]):.2f} .. {max(speed[k]):.2f})"
        print(f"{k:40} {median[k]:9.2f} {spread:>18} {cpu[k]:17.3f}"
              f" {median['megalith ranks'] / median[k]:11.3f}")
    exposed = statistics.median(r["exposed"] for r in results["megalith ranks"])
    print(f"exposed communication: {exposed:.4f} s/step")
    if a.json:
        print(json.dumps({"model": a.model, "options": a.options, "batch": a.batch, "mpi": a.mpi,
                          "results": results}))


def main():
    a = arguments()
    if a.child:
        return child(a)
    run = contestants(a)
    results = {k: [] for k in run}
    for turn in range(a.turns):
        for name, once in run.items():
            results[name].append(once())
            r = results[name][-1]
            print(f"turn {turn + 1}: {name}: {r['images_per_second']:.2f} images/s, "
                  f"{r['cpu']:.3f} CPU s/step", file=sys.stderr)
    report(a, results)


if __name__ == "__main__":
    main()
