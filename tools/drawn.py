#!/usr/bin/env python3
"""The plan that `auto` takes against five that a person would write, in cases that nobody tuned.

    tools/drawn.py [--cases 20] [--seed 13] [--megalith build/megalith]

A case is drawn by the seed: a network, a machine, 2 to 8 ranks, a budget of memory (none, or a part of what one rank
needs). By hand an expert writes

    data        replicas on all ranks
    zero        the same with weights and states cut over the replicas
    pipeline    a stage on each rank, 1f1b, four micro-batches a rank where the norm allows
    mesh        an image cut over all ranks, tokens by channels
    hybrid      replicas of pairs: two stages, or an image in two halves

each with recompute=segments where it does not fit otherwise. Seconds are of the replay (built-in prices, so the table is the same
on every machine). Prints a row for each case; fails if auto is slower than the best of the five by more than 5 %, or finds
nothing where one of them fits.
"""
import argparse
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 1.05

# words, batches, batch norm, mesh of so many ranks
IMAGE = {2: "2x1", 3: "3x1", 4: "2x2", 6: "3x2", 8: "4x2"}
VOLUME = {2: "d2", 3: "d3", 4: "d2h2", 6: "d3h2", 8: "d2h2w2"}
TOKENS = {n: f"c{n}" for n in IMAGE}
NETWORKS = [
    ("resnet50 --image 3x224x224", (24, 48, 96), True, IMAGE),
    ("resnet18 --image 3x128x128 --classes 100", (48, 96), True, IMAGE),
    ("resnet-cifar --depth 56 --version 2 --image 3x256x256", (24, 48), True, IMAGE),
    ("vgg16 --image 3x224x224", (24, 48), False, IMAGE),
    ("alexnet --image 3x224x224", (48, 192), False, IMAGE),
    ("unet --image 3x512x512 --width 32", (24,), False, IMAGE),
    ("amoebanet-d --image 3x192x192 --layers 6", (24,), True, IMAGE),
    ("inception-v3 --image 3x299x299", (24,), True, IMAGE),
    ("cosmoflow --image 4x96x96x96 --pools 4", (24,), False, VOLUME),
    ("unet3d --image 1x96x96x96 --width 16", (24,), True, VOLUME),
    ("vit_b_16", (24, 48), False, TOKENS),
    ("gpt --tokens 256 --layers 8 --width 768 --heads 12 --classes 16384", (24, 48), False, TOKENS),
]
MACHINES = [  # name, words for so many ranks
    ("one node", lambda n: f"ranks={n} cores={n} inside=2us,6GB/s,cpu:1"),
    ("slow links", lambda n: f"nodes={n} ranks=1 cores=1 between=40us,117MB/s,all:117MB/s"),
    ("pairs", lambda n: f"nodes={(n + 1) // 2} ranks=2 cores=2 inside=2us,6GB/s between=10us,1.2GB/s,all:1.2GB/s"),
    ("accelerators", lambda n: f"ranks={n} cores={n} flops=14T bandwidth=900GB/s launch=10us inside=9us,50GB/s"),
]
BUDGETS = (None, 0.4, 0.2, 0.1)


class Planner:
    def __init__(self, megalith):
        self.megalith = megalith
        self.env = {**os.environ, "MEGALITH_PRICES": "builtin"}

    def plan(self, words):
        """The JSON of a plan; None where it is refused."""
        run = subprocess.run([self.megalith, "plan"] + words + ["--json"], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, env=self.env)
        lines = [x for x in run.stdout.splitlines() if x.startswith("{")]
        return json.loads(lines[-1]) if run.returncode == 0 and lines else None


def draw(rng):
    network, batches, normalises, meshes = rng.choice(NETWORKS)
    ranks = rng.choice(sorted(IMAGE))
    machine, describe = rng.choice(MACHINES)
    batch = rng.choice(batches)
    words = network.split() + ["--batch", str(batch), "--momentum", "0.9", "--threads", "1"]
    if normalises and rng.random() < 0.5:  # or else no micro-batches
        words += ["--norm", "1"]
        normalises = False
    return {"network": network, "words": words, "ranks": ranks, "machine": machine, "batch": batch,
            "describe": describe(ranks), "budget": rng.choice(BUDGETS), "micro": not normalises,
            "mesh": meshes}


def by_hand(case):
    n, micro = case["ranks"], case["micro"]
    most = max(m for m in range(1, 4 * n + 1) if case["batch"] % m == 0) if micro else 1
    pairs = f"--stages 2 --schedule 1f1b --micro {8 if micro else 1}" if micro or case["mesh"] is TOKENS \
        else f"--mesh {case['mesh'][2]}"
    yield "data", f"--replicas {n}"
    yield "zero", f"--replicas {n} --zero 3"
    yield "pipeline", f"--stages {n} --schedule 1f1b --micro {most}"
    yield "mesh", f"--mesh {case['mesh'][n]}"
    if n % 2 == 0:
        yield "hybrid", f"--replicas {n // 2} {pairs}"
    else:
        yield "hybrid", f"--stages {n} --schedule gpipe --micro {most} --recompute segments"


def judge(planner, case):
    alone = planner.plan(case["words"] + ["--ranks", "1", "--goal", "given"])
    words = case["words"] + ["--ranks", str(case["ranks"]), "--machine", case["describe"]]
    if case["budget"]:
        words += ["--budget", str(int(case["budget"] * alone["predicted_peak_bytes"]))]
    auto = planner.plan(words)
    hands = {}
    for name, more in by_hand(case):
        for again in ("", " --recompute segments"):
            said = planner.plan(words + (more + again).split() + ["--goal", "given"]) \
                if "segments" not in more or not again else None
            if said:
                hands[name] = said["predicted_seconds_per_step"]
                break
    return auto, hands


def row(number, case, auto, hands):
    """Prints it; is auto worse?"""
    best = min(hands, key=hands.get) if hands else None
    seconds = auto["predicted_seconds_per_step"] if auto else None
    ratio = seconds / hands[best] if auto and best else None
    norm = " --norm 1" if "--norm" in case["words"] else ""
    cells = [number, f"`{case['network']} --batch {case['batch']}{norm}`", f"{case['ranks']}, {case['machine']}",
             f"{100 * case['budget']:.0f} %" if case["budget"] else "none", chosen(auto),
             f"{seconds:.4g}" if auto else "-", f"{best}: {hands[best]:.4g}" if best else "none fits",
             f"{ratio:.3f}" if ratio else ""]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return ratio is not None and ratio > MOST or bool(best) and auto is None


def chosen(auto):
    return f"`{auto.get('chosen') or 'replicas alone'}`" if auto else "nothing fits"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--cases", type=int, default=20)
    p.add_argument("--seed", type=int, default=13)
    p.add_argument("--megalith", default=os.path.join(HERE, "build", "megalith"))
    a = p.parse_args()
    rng, planner, worse = random.Random(a.seed), Planner(a.megalith), 0
    print("| | network | ranks | budget | auto | s | best by hand | auto against it |")
    print("|" + "---|" * 8)
    for i in range(a.cases):
        case = draw(rng)
        worse += row(i + 1, case, *judge(planner, case))
    print(f"\n{a.cases} cases, {worse} in which auto is slower by more than {100 * (MOST - 1):.0f} %")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
