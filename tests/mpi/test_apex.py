"""Ape-X on real ranks, recorded and replayed on virtual ones."""

from dml import sim
from dml.runs import records
from dml.wire.comm import Log, Replayed
from tests.mpi.apex_main import train


def test_virtual_ranks_repeat_a_run_of_real_ones_bit_for_bit(mpirun, tmp_path):
    path, result = tmp_path / "record", tmp_path / "bits"
    ended = mpirun(3, "apex_main", path, result)
    assert (ended.code, ended.err, ended.left) == (0, "", 0)
    record = records.read(path)

    def program(comm):
        log = Log(record.ranks[comm.rank])
        found = train(Replayed(comm, log))
        log.finish()
        return found

    assert sim.run(program, 3)[0] == result.read_bytes()
