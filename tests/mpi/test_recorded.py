"""Runs of real ranks are replayed on virtual ones, and the reverse."""

import pytest

from dml import sim
from dml.runs import records
from dml.wire.comm import Log, Recorded, Replayed
from tests.mpi.recorded_main import CONFIG, PROGRAMS


def virtual(program, path, size, seed):
    """Record on virtual ranks; return what every rank has found."""
    logs = [Log() for _ in range(size)]
    network = sim.Uniform(alpha=1e-5 * seed, eager=400)
    found = sim.run(lambda c: program(Recorded(c, logs[c.rank])), size, network)
    records.write(path, CONFIG, [log.words() for log in logs])
    return found


@pytest.mark.parametrize("which, size", [("served", 4), ("played", 3)])
def test_real_ranks_repeat_a_run_of_virtual_ones(mpirun, tmp_path, which, size):
    found = virtual(PROGRAMS[which], tmp_path / "run", size, seed=3)
    ended = mpirun(size, "recorded_main", "replay", which, tmp_path / "run", timeout=30)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == found


def test_virtual_ranks_repeat_a_run_of_real_ones(mpirun, tmp_path):
    path = tmp_path / "run"
    ended = mpirun(4, "recorded_main", "record", "served", path, timeout=30)
    assert (ended.code, ended.err) == (0, "")
    record = records.read(path)

    def program(comm):
        log = Log(record.ranks[comm.rank])
        found = PROGRAMS["served"](Replayed(comm, log))
        log.finish()
        return found

    assert sim.run(program, 4) == ended.out.splitlines()


def test_who_cut_off_computing_on_real_ranks_is_known_after_it(mpirun, tmp_path):
    ended = mpirun(2, "recorded_main", "record", "told_once", tmp_path / "run")
    assert (ended.code, ended.err, ended.out) == (0, "", "True\nTrue")
