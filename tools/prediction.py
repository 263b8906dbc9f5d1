#!/usr/bin/env python3
"""Predicted against measured seconds of a step: models x strategies on two ranks of one thread.

    tools/prediction.py FOLDER [--only TEXT] [--rounds 14]   all of it, in four parts:

    probe      the machine's book (as first use makes it), and a copy to which every case's own kernels are added
    predict    both predictions of every case, written to FOLDER/predicted.json before the first run
    measure    each case: rounds of (reference loop, steps, reference loop) in one job; FOLDER/measured.json
    table      docs/prediction.md's rows: raw, and scaled by how much slower the loop was than when it was probed

Rounds around which the loop differs by more than 5 %, or by more than 10 % (--pace) from the book's, are dropped and
counted; a case needs 7. Virtual machines have several paces, for seconds each, as their processors share a core or do not:
predictions are for the one that was probed, which is waited for. The parts can be named one by one (--part
predict). Nothing is downloaded; build/megalith must be built.

    tools/prediction.py FOLDER --part order        what `auto` takes against the strategies that were measured best, in turns
    tools/prediction.py FOLDER --hosts 1gbit       other cases, on four hosts in name spaces with such links (root only)
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEGALITH = os.path.join(HERE, "build", "megalith")
PACE = 0.1    # of the loop around a round and the book's: --pace
ENOUGH = 5    # steps of a probe at the book's pace
AGREE = 0.05  # of the loops before and after a round
CALM = 0.08   # of looks and the pace that is waited for,
WAIT = 60     # seconds at most
SHORT = 0.02  # seconds: below, a factor of 1.3 is asked
FEWEST = 7    # rounds; until they are there, a case is run again,
ATTEMPTS = 8  # so often, all others in between
PASSES = 1    # of probing all cases
AGAIN = 4     # a probe that saw another pace

# name, words, whether batch norm asks for norm= in pipelines
LARGE = [
    ("resnet50", "resnet50 --image 3x128x128 --batch 8", True),
    ("vgg19", "vgg19 --image 3x96x96 --batch 4", False),
    ("unet", "unet --image 3x96x96 --batch 4", False),
    ("cosmoflow", "cosmoflow --image 4x64x64x64 --pools 4 --batch 8", False),
    ("vit_b_32", "vit_b_32 --image 3x160x160 --layers 5 --batch 8", False),
    ("amoebanet-d", "amoebanet-d --image 3x96x96 --batch 8 --layers 6", True),
]
SMALL = [
    ("alexnet", "alexnet --image 3x96x96 --batch 8 --classes 100", False),
    ("vgg11", "vgg11 --image 3x64x64 --batch 8 --width 32 --hidden 512 --classes 100", False),
    ("resnet18", "resnet18 --image 3x64x64 --batch 8 --classes 100", True),
    ("resnet-cifar", "resnet-cifar --depth 20 --batch 32", True),
    ("inception-v3", "inception-v3 --image 3x107x107 --aux 0 --batch 4 --classes 100", True),
    ("relaynet", "relaynet --image 1x64x64 --batch 4", True),
    ("unet3d", "unet3d --image 1x32x32x32 --batch 4 --width 8", True),
    ("gpt", "gpt --tokens 128 --layers 4 --width 256 --heads 8 --classes 2000 --batch 4", False),
    ("cnn", "cnn --batch 32", True),
]
TINY = [
    ("tiny cnn", "cnn --batch 4", True),
    ("tiny resnet-cifar", "resnet-cifar --depth 8 --batch 4", True),
    ("tiny gpt", "gpt --tokens 32 --layers 2 --width 64 --heads 2 --classes 200 --batch 4", False),
]
PIPE = "--stages 2 --micro 4 --schedule "
STRATEGIES = [  # name, words, ranks
    ("serial", "", 1),
    ("data 2", "--replicas 2", 2),
    ("gpipe", PIPE + "gpipe", 2),
    ("1f1b", PIPE + "1f1b", 2),
    ("mast", PIPE + "mast", 2),
    ("chimera", PIPE + "chimera", 2),
    ("mesh 2x1", "--mesh 2x1", 2),
    ("filter 2", "--mesh c2 --channels filter", 2),
    ("channel 2", "--mesh c2 --channels channel", 2),
    ("zero 3", "--replicas 2 --zero 3", 2),
]

# Of four hosts, whose links are slow: little to send.
HOSTED = [
    ("resnet-cifar", "resnet-cifar --depth 20 --batch 32", True),
    ("gpt", "gpt --tokens 128 --layers 4 --width 128 --heads 8 --classes 2000 --batch 8", False),
    ("unet", "unet --image 3x64x64 --width 16 --batch 8", False),
]
HOSTED_STRATEGIES = [
    ("data 4", "--replicas 4", 4),
    ("zero 3", "--replicas 4 --zero 3", 4),
    ("1f1b", "--stages 4 --micro 8 --schedule 1f1b", 4),
    ("data 2 x 1f1b", "--replicas 2 --stages 2 --micro 4 --schedule 1f1b", 4),
    ("mesh", "--mesh w4", 4),
]
WITHIN = "MEGALITH_HOSTS"  # set inside the name spaces: the folder with the list of hosts


def named(only, case):
    return any(text in " " + case for text in only.split("|"))


def cases(only):
    groups = (("large", LARGE), ("small", SMALL), ("tiny", TINY))
    if WITHIN in os.environ:
        groups = (("hosts", HOSTED),)
    for group, models in groups:
        for name, words, norm in models:
            for strategy, more, ranks in HOSTED_STRATEGIES if group == "hosts" else STRATEGIES:
                if "--stages" in more and norm:
                    more += " --norm 1"
                if words.startswith("gpt"):  # whose tokens lie along w
                    more = more.replace("2x1", "1x2")
                if named(only, f"{name}, {strategy}"):
                    words_all = f"{words} {more} --threads 1 --goal given --momentum 0.9"
                    yield {"case": f"{name}, {strategy}", "group": group, "ranks": ranks,
                           "words": " ".join(words_all.split())}


HOSTS_RUN = '. "$source/tests/hosts/mpirun.sh"; hosts_mpirun openmpi "$@"'


def run_megalith(command, words, ranks, more=()):
    line = [MEGALITH, command] + words.split() + list(more)
    env = dict(os.environ)
    if WITHIN in env:
        env.update(source=HERE, folder=env[WITHIN])
        line = ["sh", "-c", HOSTS_RUN, "sh", str(ranks)] + line
    elif command == "plan":
        line += ["--ranks", str(ranks)]
    else:
        line += ["-np", str(ranks)]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)


def megalith(command, words, ranks, more=()):
    """The last JSON object that it prints; a dict with `refused` where it fails."""
    run = run_megalith(command, words, ranks, more)
    lines = [x for x in run.stdout.splitlines() if x.startswith("{")]
    if run.returncode or not lines:
        said = run.stderr.strip().splitlines() or ["?"]
        return {"refused": said[-1][:200], "code": run.returncode}
    return {**json.loads(lines[-1]), "lines": lines[:-1]}


def book(folder, ranks, kind):
    return os.path.join(folder, f"{kind}-{ranks}.txt")


def look(ranks):
    """Seconds of a turn of the loop, as it is now, on so many ranks."""
    said = megalith("bench", "cnn --batch 4 --threads 1 --goal given --prices builtin --reference --repeat 4 "
                    f"--iterations 20 --json --replicas {ranks}", ranks)
    return said.get("loops", [])


def await_pace(ranks, turn):
    """Until the machine is as quick as it was; or for some time. Four hosts on two cores have no one pace: their loop
    waits for messages of ranks that are not running."""
    if WITHIN in os.environ:
        return False
    end = time.monotonic() + WAIT
    while turn:
        loops = look(ranks)
        if loops and all(abs(x / turn - 1) <= CALM for x in loops):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return False


def turn_of(path):
    with open(path) as f:
        rates = f.read().split(" turn=")
    return float(rates[1].split()[0]) if len(rates) > 1 else None


def probe_machine(path, ranks):
    """Again, if the machine had been quicker before."""
    if WITHIN in os.environ:
        megalith("probe", f"--threads 1 --seconds 30 --prices {path}", ranks)
        return
    quick = min(x for _ in range(8) for x in look(ranks) or [1])
    for i in range(AGAIN):
        print(f"{ranks} ranks: a turn of the loop takes {1e3 * quick:.3f} ms at best, found so: "
              f"{await_pace(ranks, quick)}", flush=True)
        megalith("probe", f"--threads 1 --seconds 30 --prices {path}", ranks)
        turn = turn_of(path)
        print(f"book of {ranks} ranks: turn {1e3 * (turn or 0):.3f} ms", flush=True)
        if not turn or turn <= (1 + CALM) * quick:
            return
        if i + 1 < AGAIN:
            os.remove(path)


def probe_case(c, path):
    """Again, if few steps were at the book's pace: the book as it was, then."""
    before = path + ".before"
    for i in range(AGAIN):
        shutil.copy(path, before)
        await_pace(c["ranks"], turn_of(path))
        said = run_megalith("probe", f"{c['words']} --seconds 1 --prices {path}", c["ranks"]).stdout
        found = re.search(r"(\d+) of (\d+) steps", said)
        kept, steps = map(int, found.groups()) if found else (0, 0)
        print(f"probed {c['case']}: {kept} of {steps} steps", flush=True)
        if not found or kept >= ENOUGH:
            return
        if i + 1 < AGAIN:
            shutil.copy(before, path)


def probe(folder, only):
    for ranks in sorted({c["ranks"] for c in cases(only)}):
        path = book(folder, ranks, "machine")
        if not os.path.exists(path):
            probe_machine(path, ranks)
        shutil.copy(path, book(folder, ranks, "models"))
    for _ in range(PASSES):
        for c in cases(only):
            probe_case(c, book(folder, c["ranks"], "models"))


def predict(folder, only):
    out = []
    for c in cases(only):
        for kind in ("machine", "models"):
            path = book(folder, c["ranks"], kind)
            said = megalith("plan", f"{c['words']} --prices {path} --json", c["ranks"])
            c[kind] = said.get("predicted_seconds_per_step")
            if "refused" in said:
                c["refused"] = said["refused"]
        c["loop"] = turn_of(book(folder, c["ranks"], "machine"))
        out.append(c)
    with open(os.path.join(folder, "predicted.json"), "w") as f:
        json.dump(out, f, indent=1)
    print(f"{len(out)} cases predicted", flush=True)


def run_case(c, folder, rounds):
    guess = c["models"] or 0.1
    steps = max(1, round(0.2 / guess))
    said = megalith("bench", f"{c['words']} --reference --repeat {rounds} --iterations {steps} "
                    f"--warmup 3 --json --prices {book(folder, c['ranks'], 'models')}", c["ranks"])
    if "refused" in said:
        return said
    return {k: said[k] for k in ("rounds", "loops", "measured_peak_bytes", "predicted_peak_bytes")}


def measure(folder, only, rounds):
    path = os.path.join(folder, "measured.json")
    seen = json.load(open(path)) if os.path.exists(path) else {}
    wanted = [c for c in json.load(open(os.path.join(folder, "predicted.json")))
              if named(only, c["case"]) and "refused" not in c]
    for attempt in range(ATTEMPTS):
        for c in wanted:
            old = seen.get(c["case"], {})
            if len(kept(c, old)) >= FEWEST or (attempt > 0 and "refused" in old):
                continue
            await_pace(c["ranks"], c["loop"])
            said = run_case(c, folder, rounds)
            if "rounds" in old and "rounds" in said:
                said["before"] = old.get("before", []) + pairs(old)
            if "rounds" in said or not old:
                seen[c["case"]] = said
            with open(path, "w") as f:
                json.dump(seen, f)
            print(row(c, said), flush=True)


def pairs(m):
    """(loop before, step, loop after) of each round."""
    return [list(x) for x in zip(m["loops"], m["rounds"], m["loops"][1:])]


def kept(c, m):
    if "rounds" not in m:
        return []
    return [x for x in m.get("before", []) + pairs(m)
            if abs(x[0] - x[2]) <= AGREE * min(x[0], x[2])
            and (not c["loop"] or c["group"] == "hosts" or abs((x[0] + x[2]) / 2 / c["loop"] - 1) <= PACE)]


def figures(c, m):
    """Medians over the rounds that were kept: raw, and by the loop as it was when prices were made."""
    good = kept(c, m)
    if len(good) < FEWEST:
        return None
    raw = statistics.median(x[1] for x in good)
    scaled = statistics.median(x[1] * c["loop"] / ((x[0] + x[2]) / 2) for x in good)
    every = len(m.get("before", [])) + len(m["rounds"])
    return {"raw": raw, "scaled": scaled, "kept": len(good), "dropped": every - len(good),
            "bytes": m["measured_peak_bytes"] - m["predicted_peak_bytes"]}


def off(predicted, measured):
    return 100 * (predicted / measured - 1)


def row(c, m):
    if "refused" in m:
        return f"| {c['case']} | refused: {m['refused']} |"
    f = figures(c, m)
    if not f:
        return f"| {c['case']} | only {len(kept(c, m))} rounds kept |"
    cells = [c["case"], f"{1e3 * f['raw']:.4g}", f"{1e3 * f['scaled']:.4g}"]
    for kind in ("machine", "models"):
        cells += [f"{1e3 * c[kind]:.4g}", f"{off(c[kind], f['raw']):+.1f} %",
                  f"{off(c[kind], f['scaled']):+.1f} %"]
    return "| " + " | ".join(cells + [f"{f['kept']}, {f['dropped']}", str(f["bytes"])]) + " |"


def cells(c, f):
    """A row of the document: what was measured, and both predictions with their errors."""
    model, strategy = c["case"].split(", ")
    words = dict((name, words) for name, words, _ in LARGE + SMALL + TINY + HOSTED)[model]
    first = f"`{words}`, {strategy}" if strategy in (STRATEGIES[0][0], HOSTED_STRATEGIES[0][0]) else strategy
    out = [first, f"{1e3 * f['raw']:.4g}", f"{1e3 * f['scaled']:.4g}"]
    for kind in ("machine", "models"):
        out += [f"{1e3 * c[kind]:.4g}"] + [f"{off(c[kind], f[how]):+.1f} %" for how in ("raw", "scaled")]
    return out + [f"{f['kept']}, {f['dropped']}"]


def summary(found):
    """Mean and worst errors by kind of case."""
    long = [(c, f) for c, f in found if f["scaled"] >= SHORT]
    groups = [(f"{name}, 20 ms and more", [(c, f) for c, f in long if c["group"] == group])
              for group, name in (("large", "large"), ("small", "small"), ("tiny", "tiny"), ("hosts", "hosts"))]
    groups += [("all, 20 ms and more", long), ("below 20 ms", [x for x in found if x not in long])]
    print("| | cases | fitted: mean, worst, scaled | raw | measured: mean, worst, scaled | raw | measured within 1.3 |")
    print("|" + "---|" * 7)
    for name, some in groups:
        if not some:
            continue
        line = [name, str(len(some))]
        for kind in ("machine", "models"):
            for how in ("scaled", "raw"):
                errors = [abs(off(c[kind], f[how])) for c, f in some]
                line.append(f"{statistics.mean(errors):.1f} %, {max(errors):.1f} %")
        line.append(str(sum(1 / 1.3 <= c["models"] / f["scaled"] <= 1.3 for c, f in some)))
        print("| " + " | ".join(line) + " |")
    for kind, worst in (("machine", 0.25), ("models", 0.15)):
        print(f"\nbeyond {100 * worst:.0f} %, {'fitted' if kind == 'machine' else 'measured'}: " + "; ".join(
            f"{c['case']} {off(c[kind], f['scaled']):+.1f} %" for c, f in long
            if abs(off(c[kind], f["scaled"])) > 100 * worst))
    print(f"\nrounds: {sum(f['kept'] + f['dropped'] for _, f in found)}, kept {sum(f['kept'] for _, f in found)}")


def table(folder, only):
    seen = json.load(open(os.path.join(folder, "measured.json")))
    found = []
    for group in ("large", "small", "tiny", "hosts"):
        some = [c for c in json.load(open(os.path.join(folder, "predicted.json")))
                if named(only, c["case"]) and c["group"] == group]
        if some:
            print(f"\n{group}\n\n| case | raw | scaled | fitted | raw | scaled | measured | raw | scaled | rounds |")
            print("|" + "---|" * 10)
        for c in some:
            m = seen.get(c["case"], {"refused": c.get("refused", "not run")})
            f = figures(c, m)
            print("| " + " | ".join(cells(c, f)) + " |" if f else row(c, m))
            if f:
                found.append((c, f))
            if f and f["bytes"]:
                print(f"{c['case']}: {f['bytes']} bytes more than predicted")
    print()
    summary(found)


def best_measured(folder, name, count=3):
    """Strategies of a model on two ranks, the quickest first; a norm that auto was not given is no rival."""
    seen = json.load(open(os.path.join(folder, "measured.json")))
    found = []
    for c in json.load(open(os.path.join(folder, "predicted.json"))):
        f = figures(c, seen.get(c["case"], {})) if c["ranks"] == 2 else None
        if f and c["case"].startswith(name + ",") and "--norm" not in c["words"]:
            found.append((f["scaled"], c["case"]))
    plain = {n: w for n, w, _ in STRATEGIES}
    quickest = [plain[case.split(", ")[1]] for _, case in sorted(found)[:count]]
    return [" ".join(f"{a[2:]}={b}" for a, b in zip(w.split()[::2], w.split()[1::2])) for w in quickest]


def order(folder, only, rounds):
    """What auto takes against the strategies that were measured best, in turns."""
    rows = []
    print("| case | auto | s | best measured | s | auto slower by | at most (95 %) |")
    print("|" + "---|" * 7)
    for name, words, _ in LARGE + SMALL + TINY:
        rivals = best_measured(folder, name) if named(only, name + ",") else []
        if not rivals:
            continue
        guess = next(c["models"] for c in json.load(open(os.path.join(folder, "predicted.json")))
                     if c["case"] == name + ", data 2") or 0.1
        said = megalith("compare", f"{words} --threads 1 --momentum 0.9 --rounds {rounds} --reference --json "
                        f"--steps {max(1, round(0.5 / guess))} --prices {book(folder, 2, 'models')}", 2,
                        ["--candidates", "; ".join(["auto"] + rivals)])
        if "refused" in said:
            print(f"| {name} | refused: {said['refused']} |", flush=True)
            continue
        plans = [x for x in map(json.loads, said["lines"]) if "words" in x]
        auto, best = plans[said["auto_plan"]], plans[said["best_plan"]]
        if said.get("turns_uneven"):
            print(f"{name}: {said['turns_uneven']} of {said['turns']} turns at another pace", flush=True)
        rows.append({"case": name, "auto": auto, "best": best, "most": said["auto_slower_most"],
                     "slower": said["auto_slower"]})
        print(f"| {name} | `{auto['words']}` | {auto['seconds_per_step']:.4g} | `{best['words']}` "
              f"| {best['seconds_per_step']:.4g} | {100 * said['auto_slower']:.1f} % "
              f"| {100 * (said['auto_slower_most'] or 0):.1f} % |", flush=True)
    with open(os.path.join(folder, "order.json"), "w") as f:
        json.dump(rows, f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--only", default="", help="cases whose names have one of these texts: \"vgg19,|serial\"")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--part", choices=["probe", "predict", "measure", "table", "order"])
    p.add_argument("--hosts", metavar="RATE", help="on four hosts in name spaces with links like 1gbit, 100mbit")
    p.add_argument("--pace", type=float, default=PACE, help="how far the loop may be off the book's (default 0.1)")
    a = p.parse_args()
    globals()["PACE"] = a.pace
    os.makedirs(a.folder, exist_ok=True)
    if a.hosts and WITHIN not in os.environ:
        again = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:]
        return subprocess.call(["sh", os.path.join(HERE, "tests", "hosts", "network.sh"), "4", a.hosts,
                                os.path.abspath(a.folder)] + again,
                               env={**os.environ, WITHIN: os.path.abspath(a.folder)})
    parts = [a.part] if a.part else ["probe", "predict", "measure", "table"]
    for part in parts:
        if part in ("measure", "order"):
            (measure if part == "measure" else order)(a.folder, a.only, a.rounds)
        else:
            {"probe": probe, "predict": predict, "table": table}[part](a.folder, a.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
