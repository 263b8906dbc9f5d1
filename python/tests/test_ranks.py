"""The same script on one rank and on several: losses, predictions, weights are the same."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
from megalith import _library  # noqa: E402
from megalith.check import command  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DOUBLE, FLOAT = 1e-9, 1e-4
ROUNDED = 1e-6  # weights and predictions come out in float
pytestmark = pytest.mark.skipif(not (_library.has("meg_step") and _library.has("meg_predict")), reason="an older library")


def run(folder, ranks, device, plan, *more):
    out = os.path.join(folder, "out.npz")
    script = [os.path.join(HERE, "fit_on_ranks.py"), out, device, json.dumps(plan), *more]
    call = [command(), "run", "-np", str(ranks), *script] if ranks > 1 else [sys.executable, *script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(HERE), *[p for p in sys.path if p]]),
                   "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=300)
    return done, dict(np.load(out)) if os.path.exists(out) and done.returncode == 0 else None


def distance(a, b):
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-6))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    found = {}
    for device in ("ref64", "cpu"):
        done, found[device] = run(str(tmp_path_factory.mktemp("one")), 1, device, {})
        assert found[device] is not None, done.stderr
        assert found[device]["losses"][1] < found[device]["losses"][0] - 0.01, "the reference does not learn"
    return found


PLANS = [(2, {}), (2, {"replicas": 2}), (2, {"stages": 2, "micro": 2, "norm": 4}), (2, {"mesh": "2x1"}), (3, {"stages": 3})]


@pytest.mark.parametrize("ranks, plan", PLANS)
@pytest.mark.parametrize("device", ["ref64", "cpu"])
def test_same(ranks, plan, device, alone, tmp_path):
    if "norm" in plan:  # other groups of samples are another network
        one, want = run(str(tmp_path), 1, device, {"micro": 2, "norm": 4})
        assert want is not None, one.stderr
    else:
        want = alone[device]
    done, got = run(str(tmp_path), ranks, device, plan)
    assert got is not None, done.stderr
    assert got["size"] == ranks
    limit = DOUBLE if device == "ref64" else FLOAT
    for k in want:
        if k not in ("size", "1.num_batches_tracked"):
            own = limit if k in ("losses", "evaluated") else max(limit, ROUNDED)
            assert distance(got[k].astype(float), want[k].astype(float)) <= own, k


def test_an_exception_ends_the_job_once(tmp_path):
    done, _ = run(str(tmp_path), 2, "cpu", {}, "fail")
    assert done.returncode != 0
    assert done.stderr.count("ValueError: on purpose") == 1, done.stderr
