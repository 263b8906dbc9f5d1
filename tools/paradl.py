#!/usr/bin/env python3
"""ParaDL's published cases (Kahira et al., HPDC 2021) planned for machines/abci.txt, beside its columns.

    tools/paradl.py [--megalith build/megalith] [--timeout SECONDS] [--only WORDS] > table.md

Each row is one `megalith plan`, whose seconds of a step become those of an epoch. Published figures are seconds of an
epoch: *oracle* from the logs of TruongThaoNguyen/paraDL-analysis, *measured* from the runs of ankahira/paraDL (the
median of the epochs behind the first), or, marked r, both from the table of the technical report in the former.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

IMAGENET, COSMOFLOW = 1280000, 1584  # samples of an epoch, as ParaDL counts them

ABCI = "machines/abci.txt"
# CosmoFlow's 3-D convolutions of few channels reach a small part of a V100's rates. Their serial time is taken from
# the published profile, 2.108 s a sample, as ParaDL does for all networks: rates are 0.171 of the data sheet's.
SLOW = "file=machines/abci.txt flops=2.4T bandwidth=154GB/s"
# ParaDL's halos went through the host's memory, without GPUDirect: 3 ms a message, 4 GB/s.
HOST = "inside=3ms,4GB/s"

RESNET, VGG = "resnet50", "vgg16"
COSMO = "cosmoflow --image 4x512x512x512 --form 512 --bias no"
SUM = "--allreduce ring --bucket 1GiB"  # ChainerMN sums all gradients at once, by NCCL's ring
# Of a mesh our gradients are of several teams, and summed in many small pieces: not by a ring of 256 ranks.
PIECES = "--allreduce halving_doubling --bucket 1GiB"


def data(model, ranks, each):
    norm = " --norm %d" % each if model == RESNET else ""
    return "--batch %d%s %s" % (ranks * each, norm, SUM)


def cut(ranks, batch, channels):
    return "--batch %d --mesh c%d --channels %s" % (batch, ranks, channels)


def hybrid(model, ranks, batch, mesh):
    norm = " --norm %d" % batch if model == RESNET else ""
    return "--batch %d%s --mesh %s --channels filter %s" % (ranks // 4 * batch, norm, mesh, PIECES)


# model, strategy, ranks, words, machine, batch, oracle, measured
ROWS = [
    (RESNET, "serial", 1, "--batch 64", ABCI, 64, "3993", "3680"),
    (VGG, "serial", 1, "--batch 32", ABCI, 32, "10554", None),
    (COSMO, "serial", 1, "--batch 1", SLOW, 1, "3339", None),
]
for ranks, oracle, measured in ((16, "268", "256"), (64, "68.1", "80.7"), (256, "18.0", "51.7"), (1024, "5.46", "4.70")):
    ROWS.append((RESNET, "data", ranks, data(RESNET, ranks, 64), ABCI, 64 * ranks, oracle, measured))
for ranks, oracle, measured in ((16, "917", "1144"), (64, "234", "305"), (256, "60.7", "78.6"), (512, "31.7", "43.7")):
    ROWS.append((VGG, "data", ranks, data(VGG, ranks, 32), ABCI, 32 * ranks, oracle, measured))
for ranks, oracle, measured in ((4, "3326", None), (16, "12255", None), (64, "18731", "r18364")):
    ROWS.append((RESNET, "filter", ranks, cut(ranks, 64, "filter"), ABCI, 64, oracle, measured))
for ranks, oracle in ((4, "3326"), (16, "12255"), (64, "16879")):
    ROWS.append((RESNET, "channel", ranks, cut(ranks, 64, "channel"), ABCI, 64, oracle, None))
for ranks, oracle in ((4, "6174"), (16, "17779"), (64, "20375")):
    ROWS.append((VGG, "filter", ranks, cut(ranks, 32, "filter"), ABCI, 32, oracle, None))
for ranks, oracle in ((4, "6174"), (16, "17779"), (64, "20375")):
    ROWS.append((VGG, "channel", ranks, cut(ranks, 32, "channel"), ABCI, 32, oracle, None))
for ranks, oracle, measured in ((16, "902", None), (64, "231", "r395"), (256, "59.0", None), (1024, "15.8", None)):
    ROWS.append((RESNET, "data + filter", ranks, hybrid(RESNET, ranks, 64, "c4"), ABCI, 16 * ranks, oracle, measured))
for ranks, oracle, measured in ((16, "2361", None), (64, "1287", "r1156"), (256, "167", None)):
    ROWS.append((VGG, "data + filter", ranks, hybrid(VGG, ranks, 32, "c4"), ABCI, 8 * ranks, oracle, measured))
for ranks, oracle, measured in ((16, "632", None), (64, "150", "r244")):
    for name, machine in (("", ABCI), (", through the host", "file=%s %s" % (ABCI, HOST))):
        ROWS.append((RESNET, "data + spatial" + name, ranks,
                     hybrid(RESNET, ranks, 256, "w4").replace(" --channels filter", ""), machine, 64 * ranks, oracle, measured))
for ranks, oracle, measured in ((16, "10096", None), (64, "3046", "r5691")):
    for name, machine in (("", ABCI), (", through the host", "file=%s %s" % (ABCI, HOST))):
        ROWS.append((VGG, "data + spatial" + name, ranks,
                     hybrid(VGG, ranks, 32, "w4").replace(" --channels filter", ""), machine, 8 * ranks, oracle, measured))
for ranks, oracle, measured in ((64, "216", None), (256, "54.6", "390"), (512, "28.5", "205")):
    for name, machine in (("", SLOW), (", through the host", "%s %s" % (SLOW, HOST))):
        ROWS.append((COSMO, "data + spatial" + name, ranks, "--batch %d --mesh w4/conv3:c4 %s" % (ranks // 4, PIECES), machine,
                     ranks // 4, oracle, measured))
ROWS.append((RESNET, "pipeline", 4, "--batch 64 --stages 4 --micro 8 --norm 8 --schedule gpipe", ABCI, 64, None, None))
ROWS.append((VGG, "pipeline", 4, "--batch 32 --stages 4 --micro 8 --schedule gpipe", ABCI, 32, None, None))


def command(megalith, row):
    model, _, ranks, words, machine, _, _, _ = row
    quoted = '"%s"' % machine if " " in machine else machine
    return "%s plan %s --ranks %d %s --goal given --machine %s" % (megalith, model, ranks, words, quoted)


def predict(megalith, row, timeout):
    """Seconds of an epoch, GiB of the rank that needs most; or why not."""
    model, _, ranks, words, machine, batch, _, _ = row
    args = [megalith, "plan", *model.split(), "--ranks", str(ranks), *words.split(), "--goal", "given",
            "--machine", machine, "--json"]
    around = dict(os.environ, MEGALITH_PRICES="builtin", MEGALITH_WINOGRAD="0")
    try:
        done = subprocess.run(args, env=around, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, None, "not planned in %d s" % timeout
    if done.returncode:
        return None, None, done.stderr.strip().splitlines()[-1][:200]
    found = json.loads(done.stdout.splitlines()[-1])
    samples = COSMOFLOW if model == COSMO else IMAGENET
    return found["predicted_seconds_per_step"] * samples / batch, found["predicted_peak_bytes"] / 2**30, None


def error(predicted, published):
    if predicted is None or published is None:
        return ""
    return "%+.0f %%" % (100 * (predicted / float(published.strip("r")) - 1))


def shown(text):
    return "" if text is None else text.strip("r") + (" r" if text.startswith("r") else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megalith", default="build/megalith")
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--only", default="", help="rows whose network and strategy have this")
    parser.add_argument("--commands", action="store_true", help="prints the commands and runs none")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in "%s %s" % (row[0], row[1])]
    if options.commands:
        print("\n".join(command("megalith", row) for row in rows))
        return
    print("| network | strategy | ranks | words | s an epoch | GiB | oracle | | measured | |\n|---|---|---|---|---|---|---|---|---|---|")
    errors = {"oracle": [], "measured": []}
    for row in rows:
        seconds, gib, why = predict(options.megalith, row, options.timeout)
        if why:
            print("no figure: %s: %s" % (command("megalith", row), why), file=sys.stderr)
        for name, published in (("oracle", row[6]), ("measured", row[7])):
            if seconds and published and row[2] > 1 and "through" not in row[1]:
                errors[name].append(abs(seconds / float(published.strip("r")) - 1))
        print("| %s | %s | %d | `%s` | %s | %s | %s | %s | %s | %s |" % (
            row[0].split()[0], row[1], row[2], row[3], "%.3g" % seconds if seconds and seconds < 1000 else "%.0f" % seconds if seconds else "-",
            "%.1f" % gib if gib else "-", shown(row[6]), error(seconds, row[6]), shown(row[7]), error(seconds, row[7])), flush=True)
    for name, found in errors.items():
        if found:
            print("\n%s: %d rows, mean difference %.0f %%, median %.0f %%" % (
                name, len(found), 100 * statistics.mean(found), 100 * statistics.median(found)))


if __name__ == "__main__":
    main()
