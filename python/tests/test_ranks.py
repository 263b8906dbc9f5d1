"""The same script on one rank and on several: losses, predictions, weights are the same."""
import json
import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest

pytest.importorskip("torch")
from megalith import context  # noqa: E402
from megalith._library import MegalithError, library  # noqa: E402
from megalith.check import command  # noqa: E402
from megalith.weights import read_safetensors  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DOUBLE, FLOAT = 1e-9, 1e-4
ROUNDED = 1e-6  # weights and predictions come out in float


ALONE = [{}, {"micro": 2, "norm": 4}]  # other groups of samples are another network
PLANS = {2: [{}, {"replicas": 2}, {"mesh": "2x1"}, {"stages": 2, "micro": 2, "norm": 4}], 3: [{"stages": 3}]}


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(HERE), *[p for p in sys.path if p]]),
               "VIRTUAL_ENV": sys.prefix}


def call_of(ranks, script, *words, mpi=None):
    script = [os.path.join(HERE, script), *words]
    return [command(), "run", "-np", str(ranks), *(["--mpi", mpi] if mpi else []), *script] if ranks > 1 else [sys.executable, *script]


def run(folder, ranks, device, plans, *more):
    """(the process, what each plan gave): one job for all of them."""
    out = os.path.join(folder, "out")
    call = call_of(ranks, "fit_on_ranks.py", out, device, json.dumps(plans), *more)
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    files = [f"{out}-{i}.npz" for i in range(len(plans))]
    return done, [dict(np.load(f)) if os.path.exists(f) else None for f in files]


def run_small(folder, ranks, what, mpi=None, **environment):
    """(the process, what on_ranks.py wrote)"""
    file = os.path.join(folder, f"{what}-{ranks}.npz")
    done = subprocess.run(call_of(ranks, "on_ranks.py", what, file, mpi=mpi), capture_output=True, text=True,
                          env={**ENVIRONMENT, **environment}, timeout=120)
    return done, dict(np.load(file)) if os.path.exists(file) else None


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


@pytest.mark.parametrize("what, plain", [("own_parts", {}), ("own_loop", {}), ("own_loop", {"PLAIN": "1"})])
def test_own(what, plain, tmp_path):
    """A loss, an optimizer and a loop of the user's own: two ranks give what one gives, and what plain PyTorch gives."""
    done, want = run_small(str(tmp_path), 1, what, **plain)
    assert done.returncode == 0, done.stderr
    assert want["losses"][-1] < 0.9 * want["losses"][0], "the reference does not learn"
    done, got = run_small(str(tmp_path), 2, what)
    assert done.returncode == 0, done.stderr
    assert got["size"] == 2
    np.testing.assert_allclose(got["losses"], want["losses"], rtol=1e-5)
    assert distance(got["weight"], want["weight"]) < FLOAT


def test_in_double(tmp_path):
    done, _ = run_small(str(tmp_path), 1, "in_double")
    assert done.returncode == 0, done.stderr


def test_weights_of_rank_0_win(tmp_path):
    """Networks that nobody has seeded."""
    one = {}
    for ranks in (1, 2):
        done, one[ranks] = run_small(str(tmp_path), ranks, "unseeded")
        assert done.returncode == 0, done.stderr
    for k in ("first", "weight", "predicted"):
        np.testing.assert_allclose(one[2][k], one[1][k], rtol=1e-4, atol=1e-5, err_msg=k)
    assert distance(one[1]["weight"], one[1]["first"]) > 1e-3
    done, got = run_small(str(tmp_path), 2, "unseeded_loop")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way, code", [("sys.exit", "1"), ("imported", "1"), ("exit", "1"), ("own", "1"), ("text", "'on purpose'")])
def test_one_rank_exits(way, code, tmp_path):
    """By whatever way, it ends the job, whose other ranks would wait for it."""
    done, _ = run_small(str(tmp_path), 2, "gives_up", WAY=way)
    assert done.returncode != 0 and f"a rank has ended the script by sys.exit({code})" in done.stderr, done.stderr


@pytest.mark.parametrize("way", ["sys.exit", "raise"])
def test_all_ranks_exit(way, tmp_path):
    """With 0, it is an end like any other; an exit that is caught is none."""
    done, got = run_small(str(tmp_path), 2, "exits_well", WAY=way)
    assert done.returncode == 0 and got["size"] == 2, done.stderr


BAD = {
    "other_data": "the first batch: sample 0 has other numbers here than on rank 0",
    "small_batch": "a batch of 1 samples on 2 ranks: give at least one to each",
    "other_batches": "give all ranks the same batch",
    "all_fail": "ValueError: on purpose",
}


@pytest.mark.parametrize("what", BAD)
def test_bad_use(what, tmp_path):
    """One sentence, though all ranks have it."""
    done, _ = run_small(str(tmp_path), 2, what)
    assert done.returncode != 0
    assert done.stderr.count(BAD[what]) == 1, done.stderr


def need(mpi):
    """A launcher's library may be missing, with what it takes to build for it."""
    folder = os.path.dirname(library()._name)
    if not any(os.path.exists(os.path.join(folder, sub, f"libmegalith_mpi_{mpi}.so")) for sub in ("", "megalith")):
        pytest.skip(f"the library was built without {mpi}")


def need_mpi4py(abi):
    pytest.importorskip("mpi4py")
    need(abi)
    done = subprocess.run([sys.executable, "-c", "from mpi4py import MPI"], env={**ENVIRONMENT, "MPI4PY_MPIABI": abi}, capture_output=True)
    if done.returncode:
        pytest.skip(f"mpi4py finds no {abi}")


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("what, ranks", [("mpi4py_first", 2), ("mpi4py_later", 2), ("part_of_them", 3)])
def test_mpi4py(what, ranks, mpi, tmp_path):
    """MPI that mpi4py has begun, or shares later; a communicator of its own."""
    need_mpi4py(mpi)
    done, got = run_small(str(tmp_path), ranks, what, mpi, MPI4PY_MPIABI=mpi)
    assert done.returncode == 0, done.stderr
    assert got["size"] == 2 and got["losses"][-1] < got["losses"][0]


@pytest.mark.parametrize("mark, name, right", [("OMPI_COMM_WORLD_SIZE", "MPICH", "openmpi"), ("PMI_RANK", "Open MPI", "mpich")])
def test_another_mpi_in_mpi4py(mark, name, right, monkeypatch):
    """Of which two in one process are too many to try it."""
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
    monkeypatch.setenv(mark, "2")
    monkeypatch.setenv("PMIX_RANK", "0")  # Open MPI's launcher has it, too
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(get_vendor=lambda: (name, (1, 0, 0))))
    with pytest.raises(MegalithError, match=f"mpi4py has loaded {name}.*MPI4PY_MPIABI={right}"):
        context._check_mpi4py()
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(get_vendor=lambda: (context.MARKS[mark], (1, 0, 0))))
    context._check_mpi4py()


@pytest.mark.parametrize("ranks, mpi, more", [(1, None, {}), (2, "openmpi", {}), (2, "mpich", {}), (2, "openmpi", {"LOSS": "own"}),
                                              (2, "openmpi", {"SLOW": "3"})])  # longer than launchers wait
def test_interrupt(ranks, mpi, more, tmp_path):
    """Ctrl-C: weights are saved between steps, on all ranks the same ones; no traceback."""
    if mpi:
        need(mpi)
    call = call_of(ranks, "on_ranks.py", "long", str(tmp_path), mpi=mpi)
    job = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **more})
    assert any("begun" in line for line in iter(job.stdout.readline, "")), job.communicate()[1]
    job.send_signal(signal.SIGINT)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 130, said
    assert said.count("the weights are in") == 1 and "Traceback" not in said, said
    kept = read_safetensors(str(tmp_path / "interrupted.safetensors"))
    assert kept["4.weight"].shape == (5, 384) and np.isfinite(kept["4.weight"]).all()


def test_an_exception_ends_the_job_once(tmp_path):
    done, _ = run(str(tmp_path), 2, "cpu", [{}], "fail")
    assert done.returncode != 0
    assert done.stderr.count("ValueError: on purpose") == 1, done.stderr
