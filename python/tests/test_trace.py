"""`megalith trace`: a factory's model as a file that the command of C reads."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("torchvision")
from megalith.check import command  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_trace(tmp_path):
    file = tmp_path / "net.onnx"
    said = subprocess.run([sys.executable, "-m", "megalith", "trace", "torchvision.models:squeezenet1_1", "--input",
                           "1,3,32,32", "-o", str(file)], capture_output=True, text=True, cwd=tmp_path, check=True,
                          env=ENVIRONMENT).stdout
    assert "1,235,496 parameters" in said
    shown = subprocess.run([command(), "plan", str(file), "--batch", "4"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr


def test_no_factory(tmp_path):
    done = subprocess.run([sys.executable, "-m", "megalith", "trace", "torchvision.models", "-o", "x.onnx"], text=True,
                          capture_output=True, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 1 and "MODULE:FUNCTION" in done.stderr
