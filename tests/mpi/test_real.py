"""Real ranks: collectives, training, meshes, timelines and energy."""

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dml import sim
from tests.mpi import conformance_main
from tests.mpi.conftest import OPEN_MPI
from tests.wire.comm import orders
from tests.wire.comm.programs import Player, drawn

BYTES_2_31 = (1 << 31) + 20


# Three ranks fold one rank into a power of two; more ranks than cores poll in each
# other's way, and virtual ranks have all other sizes.
def test_every_allreduce_conforms_and_two_are_under_way_at_once(mpirun, tmp_path):
    path, size = tmp_path / "found", 3
    ended = mpirun(size, "conformance_main", "conforms", path)
    assert (ended.code, ended.err) == (0, "")
    names = sorted({*orders.BASIC} - {"native"})
    assert ended.out.splitlines() == [
        f"all-reduces conform on {size} ranks",
        *(f"{name} is under way on {size} ranks" for name in names),
    ]
    assert path.read_text() == repr(sim.run(conformance_main.agreed, size))


def test_random_programs_find_on_real_ranks_what_they_find_on_virtual_ones(
    mpirun, tmp_path
):
    path, size = tmp_path / "found", 3
    ended = mpirun(size, "programs_main", 0, 32, path)
    assert (ended.code, ended.err) == (0, "")
    for seed, found in enumerate(pickle.loads(path.read_bytes())):
        program = drawn(seed, size)
        expected = sim.run(lambda comm: Player(comm, program, MPI).notes, size)  # noqa: B023
        assert found == expected, seed


def test_a_message_of_more_than_2_31_bytes_is_received(mpirun):
    if OPEN_MPI:
        pytest.skip("Open MPI 5.0 receives at most 2 GiB in a message")
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30:
        pytest.skip("two ranks need 8 GB of free memory for such a message")
    ended = mpirun(2, "conformance_main", "large")
    assert ended[:3] == (0, f"{BYTES_2_31} bytes\n", "")


@pytest.mark.parametrize(
    "size, command, said",
    [
        (2, ["glove_main"], "6 ways have their bits on 2 ranks\n"),
        (4, ["slots_main"], "all agree\n"),
        (4, ["malformed_main"], "the honest workers are served\n"),
        (2, ["sparse_main", "well"], "8 runs agree\n"),
    ],
)
def test_strategies_keep_their_bits_on_real_ranks(mpirun, size, command, said):
    if OPEN_MPI and command == ["malformed_main"]:
        pytest.skip("Open MPI 5.0 writes a too long message beyond its buffer")
    ended = mpirun(size, *command)
    assert ended == (0, said, "", 0)


@pytest.mark.parametrize("end", ("raise", "kill"))
def test_windows_are_gone_however_a_run_ends(mpirun, end):
    ended = mpirun(2, "sparse_main", end)
    assert ended.code != 0
    assert ("as asked" in ended.err) == (end == "raise")
    assert ended.left == 0


def test_ranks_of_a_mesh_train_as_one_worker_and_as_two_devices_of_one(
    mpirun, tmp_path, monkeypatch
):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiles faster
    ended = mpirun(2, "mesh_main", tmp_path / "two.npz", tmp_path / "a")
    assert (ended.code, ended.err) == (0, "")
    # gloo itself says before whom it has met
    assert ended.out.endswith("a mesh of 1 x 2 is as one worker\n")
    command = [sys.executable, "-m", "tests.mpi.mesh_main"]
    devices = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [*command, tmp_path / "one.npz", tmp_path / "b"],
        cwd=Path(__file__).parents[2],
        env=os.environ | devices,
        check=True,
    )
    one, two = (np.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name])


def test_real_ranks_are_traced_profiled_and_metered(mpirun, tmp_path):
    ended = mpirun(2, "metrics_main", tmp_path)
    assert (ended.code, ended.err) == (0, "")
    *_, profiled, together, apart = ended.out.splitlines()
    assert "profile.json.gz  one clock, within " in profiled
    within = 1e3 + float(profiled.split()[-2])  # us, and a switch of processes
    # CPU seconds of each rank count, and the GPUs of each host once
    source = "CPU time x 10 W (estimated) and NVML"
    assert together == f"{10 * (1 + 2) + 5:.3f} J by {source}"
    assert apart == f"{10 * (1 + 2) + 2 * 5:.3f} J by {source}"

    trace = json.loads((tmp_path / "ring.json").read_text())
    assert {event["tid"] for event in trace["traceEvents"]} == {0, 1}
    trace = json.loads(gzip.decompress((tmp_path / "profile.json.gz").read_bytes()))
    events = trace["traceEvents"]
    pid = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    all_of = [e for e in events if e["ph"] == "X" and e["name"] == "gradient"]
    for rank in range(2):
        host = next(pid[name] for name in pid if name.startswith(f"rank {rank} JAX"))
        phases = [e for e in all_of if (e["pid"], e["tid"]) == (0, rank)]
        inner = [e for e in all_of if e["pid"] == host]
        assert len(phases) == len(inner) == 2
        for phase, annotation in zip(phases, inner, strict=True):
            late = annotation["ts"] - phase["ts"]
            assert -within < late < phase["dur"] + within
            assert annotation["dur"] < phase["dur"]
            assert late + annotation["dur"] < phase["dur"] + within
