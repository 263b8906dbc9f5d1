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


ALONE = [{}, {"micro": 2, "norm": 4}]  # other groups of samples are another network
PLANS = {2: [{}, {"replicas": 2}, {"mesh": "2x1"}, {"stages": 2, "micro": 2, "norm": 4}], 3: [{"stages": 3}]}


def run(folder, ranks, device, plans, *more):
    """(the process, what each plan gave): one job for all of them."""
    out = os.path.join(folder, "out")
    script = [os.path.join(HERE, "fit_on_ranks.py"), out, device, json.dumps(plans), *more]
    call = [command(), "run", "-np", str(ranks), *script] if ranks > 1 else [sys.executable, *script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(HERE), *[p for p in sys.path if p]]),
                   "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=300)
    files = [f"{out}-{i}.npz" for i in range(len(plans))]
    return done, [dict(np.load(f)) if os.path.exists(f) else None for f in files]


def distance(a, b):
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-6))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    found = {}
    for device in ("ref64", "cpu"):
        done, found[device] = run(str(tmp_path_factory.mktemp("one")), 1, device, ALONE)
        assert done.returncode == 0, done.stderr
        for one in found[device]:
            assert one["losses"][1] < one["losses"][0] - 0.01, "the reference does not learn"
    return found


@pytest.mark.parametrize("device, ranks", [("ref64", 2), ("cpu", 2), ("ref64", 3)])
def test_same(device, ranks, alone, tmp_path):
    done, found = run(str(tmp_path), ranks, device, PLANS[ranks])
    assert done.returncode == 0, done.stderr
    limit = DOUBLE if device == "ref64" else FLOAT
    for plan, got in zip(PLANS[ranks], found):
        want = alone[device]["norm" in plan]
        assert got["size"] == ranks
        for k in set(want) - {"size", "1.num_batches_tracked"}:
            own = limit if k in ("losses", "evaluated") else max(limit, ROUNDED)
            assert distance(got[k].astype(float), want[k].astype(float)) <= own, (plan, k)


def test_an_exception_ends_the_job_once(tmp_path):
    done, _ = run(str(tmp_path), 2, "cpu", [{}], "fail")
    assert done.returncode != 0
    assert done.stderr.count("ValueError: on purpose") == 1, done.stderr
