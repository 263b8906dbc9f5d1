"""Runs ONNX's own tests on Megalith's reader and operators, and writes the result to docs/onnx.md.

    python3 tools/onnx_conformance.py [--build build] [--match WORD] [--no-write]

The `onnx` package ships tests as files: one node each or a function written out (node), and small
networks that PyTorch wrote, with its outputs (pytorch-operator, pytorch-converted). All go through
the reader; the table has those of single operators that `megalith list onnx` claims. Inputs that are
weights to a layer (Conv's second) become initializers, since a network's weights are; models of old
operator sets, which are refused, are converted and tried again. A test is

    passed        every output has the right shape and values (rtol 1e-3, atol 1e-7: ONNX's own);
                  where only the first is supported (no masks, no indices), that one
    failed        it ran, and the result is wrong; it crashed; or, of float32 and of an operator that
                  is claimed, it was refused though neither LIMITS nor OUTSIDE below has the reason
    unsupported   Megalith refused it with a message, which is printed

Of single float32 operators that are claimed, a refusal is one of two: a LIMIT of what a network is here
(the first axis is the batch), or OUTSIDE of what is claimed (`megalith list onnx` has the words).
Failures make the exit status 1; refusals do not.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test import __file__ as backend_test
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUITES = ("node", "pytorch-operator", "pytorch-converted")
RTOL, ATOL = 1e-3, 1e-7
TESTS = 1765  # node tests of the last version that ships them as files
OLDEST, TARGET = 13, 20
MARK = "<!-- Written by tools/onnx_conformance.py: do not edit below. -->\n"

# Understood only of constants and shapes: tests have them of data, if at all.
HELPERS = {"Cast", "CastLike", "Constant", "ConstantOfShape", "Shape", "Range", "Trilu", "Mod", "Floor", "Ceil",
           "Round", "Sin", "Cos", "SplitToSequence", "SequenceAt"}

OTHERS, WRITTEN_OUT = "operators that are not claimed", "functions written out, helpers"

# Inputs that are data; the others are constants of a network. Default: the first.
DATA = {op: (0, 1) for op in ("Add", "Mul", "Sub", "Div")}
DATA |= {op: range(99) for op in ("Concat", "Sum", "Max", "Min")}
CHOICES = (None, range(99), (0,), (1,), (0, 2))  # tried in turn; None: DATA

# What no operator does, by the words of the refusal: a sample does not know the others of its batch, and
# the batch is the first axis.
LIMITS = {
    "would mix, move or cut the batch": r"batch",
    "rank above 5": r"has another rank|more than 5 axes|unsqueeze|rank 6",
    "tensors without elements": r"is empty|as many elements as the input|leaves axis . open",
    "random numbers of another generator": r"another generator",
}

# Variants that could be built, and are not: outside of what is claimed.
OUTSIDE = {
    "Resize": r"mode=cubic|antialias and keep_aspect|tf_crop_and_resize|half_pixel_symmetric|"
              r"these lengths are not supported with this way to count",
    "Pad": r"mode wrap",
    "Slice": r"a step below 1",
    "MatMul": r"equal in all other axes|no matrix and no vector",
    "Gather": r"of a constant only rows of a matrix",
    "Bernoulli": r"must be a constant",
    "Pow": r"the exponent must be one number",
    "Where": r"is bool: real numbers",  # a mask that is an input of the network
}


def tensors(folder, kind, ports):
    """The tensors of a data set, by name; None if one of them is no tensor."""
    found = {}
    for i, port in enumerate(ports):
        path = os.path.join(folder, f"{kind}_{i}.pb")
        if not port.type.HasField("tensor_type"):
            return None
        with open(path, "rb") as f:
            found[port.name] = numpy_helper.to_array(onnx.load_tensor_from_string(f.read()))
    return found


def constants(model, inputs, choice):
    """The model with those inputs as initializers that are constants of a network; choice: which are not,
    None: by the operator."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    data = set()
    for node in model.graph.node:
        which = DATA.get(node.op_type, (0,)) if choice is None else choice
        data.update(name for i, name in enumerate(node.input) if i in which)
    for name, value in inputs.items():
        if name in data:
            continue
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        for port in list(model.graph.input):
            if port.name == name:
                model.graph.input.remove(port)
    return model


def plain(value):
    """Real numbers are the device's, whole ones have 32 bits; None: neither."""
    kind = numpy.int32 if value.dtype.kind in "iub" else numpy.float32
    try:
        return numpy.ascontiguousarray(value).astype(kind)
    except (TypeError, ValueError):
        return None


def run(megalith, model, inputs, words):
    """The outputs, or the message of a refusal; raises where Megalith crashed."""
    with tempfile.TemporaryDirectory() as folder:
        path, x, y = (os.path.join(folder, name) for name in ("m.onnx", "x", "y"))
        onnx.save(model, path)
        named = {p.name for p in model.graph.input}
        given = {k: plain(v) for k, v in inputs.items() if k in named}
        save_file({k: v for k, v in given.items() if v is not None}, x)
        command = [megalith, "forward", path, "--input", x, "--out", y, "--loss", "none",
                   "--device", "ref", "--log", "quiet"] + words
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return load_file(y), None
        if done.returncode != 1 or not done.stderr.startswith("megalith: ") or len(done.stderr) < 20:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-200:]}")
        message = done.stderr.strip()[len("megalith: "):].replace(path, "").lstrip(": ")
        return None, message


def compare(outputs, expected):
    """What is wrong with the outputs; None: nothing."""
    if not outputs:
        return "there is no output"
    for i, (name, want) in enumerate(list(expected.items())[:len(outputs)]):
        got = outputs[f"output{i}"]
        if got.shape != want.shape:
            return f"output {name} is {got.shape}, but should be {want.shape}"
        want = want.astype(got.dtype)
        if not numpy.allclose(got, want, rtol=RTOL, atol=ATOL, equal_nan=True):
            return f"output {name} is off by {numpy.abs(got - want).max():.3g}"
    return None


def attempt(megalith, model, inputs, words):
    """Some inputs as data, the others as constants; all outputs, or the first (masks, indices, statistics
    of inference are not ours): what Megalith accepts, or all that it said."""
    refusals = []
    first = ["--output", model.graph.output[0].name]
    for more in ([], first) if len(model.graph.output) > 1 else ([],):
        seen = set()
        for choice in CHOICES:
            changed = constants(model, inputs, choice)
            key = tuple(p.name for p in changed.graph.input)
            if key in seen:
                continue
            seen.add(key)
            outputs, message = run(megalith, changed, inputs, words + more)
            if outputs is not None:
                return outputs, None
            refusals.append(message)
    return None, best(model, refusals)


def reason_of(op, message):
    """(a limit or outside of the claim, in words); (None, None): neither."""
    if op in OUTSIDE and re.search(OUTSIDE[op], message):
        return "outside", message
    for words, pattern in LIMITS.items():
        if re.search(pattern, message):
            return "limit", words
    return None, None


def best(model, refusals):
    """Of several ways to ask, the refusal that says most: what is not built, a limit, the first."""
    op = model.graph.node[0].op_type if len(model.graph.node) == 1 else ""
    kinds = {reason_of(op, r)[0]: r for r in reversed(refusals)}
    return kinds.get("outside") or kinds.get("limit") or refusals[0]


def is_float32(model):
    """Are its real numbers floats? Whole numbers may be there beside them: shapes, indices."""
    kinds = [p.type.tensor_type.elem_type for p in list(model.graph.input) + list(model.graph.output)]
    whole = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    return bool(model.graph.output) and kinds[len(model.graph.input)] == onnx.TensorProto.FLOAT and \
        all(k == onnx.TensorProto.FLOAT or k in whole for k in kinds)


def judge(megalith, folder):
    """(verdict, reason) of one test."""
    try:
        return examine(megalith, folder)
    except RuntimeError as e:
        return "failed", str(e)
    except subprocess.TimeoutExpired:
        return "failed", "it hangs"


def examine(megalith, folder):
    model = onnx.load(os.path.join(folder, "model.onnx"))
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST:
        outputs, message = run(megalith, model, {}, [])
        if outputs is not None or not opset:
            return ("unsupported", message) if message else ("failed", "it was accepted")
        try:
            model = onnx.version_converter.convert_version(model, TARGET)
        except Exception as e:
            return "unsupported", f"not converted to set {TARGET}: {type(e).__name__}"
    if "training_dropout" in folder and "zero_ratio" not in folder:
        return "unsupported", "the mask is that of another generator of random numbers"
    train = any(a.name == "training_mode" and a.i for n in model.graph.node for a in n.attribute)
    given = {t.name for t in model.graph.initializer}
    reason = "no data sets"
    for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
        inputs = tensors(data, "input", [p for p in model.graph.input if p.name not in given])
        expected = tensors(data, "output", model.graph.output)
        if inputs is None or expected is None:
            outputs, message = run(megalith, model, {}, [])
            return ("unsupported", message) if message else ("failed", "what is no tensor was accepted")
        outputs, message = attempt(megalith, model, inputs, ["--train"] if train else [])
        if outputs is None:
            return "unsupported", message
        reason = compare(outputs, expected)
        if reason:
            return "failed", reason
    return ("passed", None) if reason is None else ("failed", reason)


def claimed(megalith):
    """Operators, and how much of each is claimed."""
    text = subprocess.run([megalith, "list", "onnx"], capture_output=True, text=True, check=True)
    return {op: words.strip() for op, _, words in (line.partition(":") for line in text.stdout.splitlines())
            if op.strip()}


def select(known, match):
    """(suite, test, group, folder, of float32); the group is the operator that is tested, if it is claimed."""
    data = os.path.join(os.path.dirname(backend_test), "data")
    for suite in SUITES:
        for folder in sorted(glob.glob(os.path.join(data, suite, "*"))):
            name = os.path.basename(folder)
            if match not in name:
                continue
            model = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False)
            ops = [n.op_type for n in model.graph.node]
            own = all(n.domain in ("", "ai.onnx") for n in model.graph.node)
            group = suite
            if suite == "node":
                group = OTHERS if not own or not set(ops) <= set(known) else \
                    ops[0] if len(ops) == 1 and ops[0] not in HELPERS else WRITTEN_OUT
            yield suite, name, group, folder, is_float32(model)


def shorten(reason):
    """Messages that differ only in names are one reason."""
    reason = re.sub(r"'[^']*'", "'..'", reason or "")
    return reason.replace("|", "\\|")


def explain(group, verdict, reason, float32):
    """(kind, reason) of a test of a claimed operator; a refusal that nothing explains is a failure."""
    if verdict != "unsupported":
        return verdict, reason
    if not float32:
        return "types", reason
    kind, words = reason_of(group, reason)
    return (kind, words) if kind else ("failed", f"it was refused, though claimed: {reason}")


def line(rows, group, claim):
    mine = [r for r in rows if r[0] == group]
    number = collections.Counter(r[2] for r in mine)
    reasons = collections.Counter(shorten(r[3]) for r in mine if r[2] in ("failed", "limit", "outside"))
    text = "; ".join(f"{n} x {w}" for w, n in reasons.most_common())
    cells = [number[k] for k in ("passed", "failed", "limit", "outside", "types")]
    return f"| {group} | {' | '.join(str(c or '') for c in cells)} | {claim} | {text} |\n"


def rest(rows, group, why):
    mine = [r for r in rows if r[0] == group]
    number = collections.Counter(r[2] for r in mine)
    reasons = collections.Counter(shorten(r[3]) for r in mine if r[2] != "passed")
    text = "; ".join(f"{n} x {w}" for w, n in reasons.most_common()) if why else ""
    return f"| {group} | {number['passed']} | {number['failed']} | {number['unsupported']} | {text} |\n"


def report(rows, known, version):
    node = [r for r in rows if r[0] not in SUITES]
    single = [r for r in node if r[0] in known]
    number = collections.Counter(r[2] for r in single)
    passed, failed = (sum(r[2] == k for r in node) for k in ("passed", "failed"))
    lines = [MARK, "\n## ONNX's own tests\n\n",
             f"onnx {version}: {len(node)} node tests, {passed} passed, {failed} failed, "
             f"{len(node) - passed - failed} refused with a message. Of single operators that are claimed, in "
             f"float32: {number['passed']} passed, {number['failed']} failed, {number['limit']} ask for what "
             f"networks here are not (limit), {number['outside']} are variants outside of what is claimed; "
             f"{number['types']} tests of the same operators are of other types, or of no tensors.\n\n",
             "| operator | passed | failed | limit | outside | other types | claimed | why not |\n",
             "|---|---|---|---|---|---|---|---|\n"]
    lines += [line(rows, group, known[group]) for group in sorted({r[0] for r in single})]
    lines += ["\n| suite | passed | failed | unsupported | why not |\n|---|---|---|---|---|\n"]
    lines += [rest(rows, group, group in SUITES) for group in (WRITTEN_OUT, OTHERS) + SUITES[1:]
              if any(r[0] == group for r in rows)]
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--match", default="", help="only tests whose names contain this")
    parser.add_argument("--no-write", action="store_true", help="leave docs/onnx.md as it is")
    arguments = parser.parse_args()
    megalith = os.path.join(arguments.build, "megalith")
    rows, known = [], claimed(megalith)
    cases = list(select(known, arguments.match))
    if not arguments.match and sum(case[0] == "node" for case in cases) != TESTS:
        sys.exit(f"onnx {onnx.__version__} does not ship the {TESTS} tests of onnx 1.22.0, whose results "
                 "docs/onnx.md keeps: install onnx==1.22.0")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = pool.map(lambda case: judge(megalith, case[3]), cases)
        for (suite, name, group, _, float32), (verdict, reason) in zip(cases, verdicts):
            kind, why = explain(group, verdict, reason, float32) if group in known else (verdict, reason)
            rows.append((group, name, kind, why))
            print(f"{kind:12} {suite}/{name}{': ' + reason if reason else ''}", flush=True)
    text = report(rows, known, onnx.__version__)
    print(text[len(MARK):].split("\n\n")[1].strip())
    if not rows:
        sys.exit("no test was selected")
    page = os.path.join(ROOT, "docs", "onnx.md")
    if not arguments.no_write and not arguments.match:
        with open(page) as f:
            head = f.read().split(MARK)[0]
        with open(page, "w") as f:
            f.write(head + text)
    sys.exit(any(r[2] == "failed" for r in rows))


if __name__ == "__main__":
    main()
