"""The scripts of examples/ run, learn, and are as short as they claim to be."""
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
from megalith.check import command  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(HERE), *[p for p in sys.path if p]]),
               "VIRTUAL_ENV": sys.prefix, "KERAS_BACKEND": "torch"}


def losses(script, folder, ranks):
    path = os.path.join(FOLDER, script)
    call = [command(), "run", "-np", str(ranks), path] if ranks > 1 else [sys.executable, path]
    done = subprocess.run(call, capture_output=True, cwd=folder, env=ENVIRONMENT, timeout=120)  # as text \r would be \n
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.rstrip().split("\r")[-1] for line in done.stdout.decode().split("\n")]  # what a progress bar leaves
    return [float(v) for line in lines for v in re.findall(r"loss:? ([\d.]+)", line)]


@pytest.mark.parametrize("script", ["torch_fit.py", "torch_loop.py", "keras_fit.py"])
def test_example(script, tmp_path):
    if script.startswith("keras"):
        pytest.importorskip("keras.layers")
    with open(os.path.join(FOLDER, script)) as f:
        text = f.read()
    assert text.count("# new: ") == 2 and len(text.split('"""', 2)[2].strip().splitlines()) < 30
    alone = losses(script, tmp_path, 1)
    assert len(alone) == 3 and alone[2] < 0.9 * alone[0]
    if script == "torch_loop.py":
        assert losses(script, tmp_path, 2) == pytest.approx(alone, rel=1e-3)
    if script == "keras_fit.py":  # nobody has seeded it: rank 0's weights are trained
        two = losses(script, tmp_path, 2)
        assert len(two) == 3 and two[2] < 0.9 * two[0]


@pytest.mark.parametrize("script", ["pathology.py", "cosmology.py"])
def test_science(script, tmp_path):
    """On made-up data; two ranks have the losses of one."""
    with open(os.path.join(FOLDER, script)) as f:
        text = f.read()
    assert text.count("# new: ") == 2 and len(text.split('"""', 2)[2].strip().splitlines()) < 45
    alone = losses(script, tmp_path, 1)
    assert len(alone) == 3 and alone[2] < 0.8 * alone[0]
    assert losses(script, tmp_path, 2) == pytest.approx(alone, rel=1e-2)
