"""`python -m dml.conformance` says in words what is wrong with a user's all-reduce."""

import pytest

from dml import conformance

MINE = """
import numpy as np

import dml


def star(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    if comm.rank == 0:
        other = np.empty_like(words)
        for source in range(1, comm.size):
            comm.Recv(other, source, 3)
            op(words, other, out=words)
        for dest in range(1, comm.size):
            comm.Send(words, dest, 3)
    else:
        comm.Send(words, 0, 3)
        comm.Recv(words, 0, 3)


def always_add(comm, buffer, op=np.add):
    star(comm, buffer)


def wrong_above_a_segment(comm, buffer, op=np.add):
    star(comm, buffer, op)
    if buffer.size > 1 << 16:
        buffer[1 << 16] = 1


def signed(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    star(comm, words.view(np.int32) if words.dtype == np.uint32 else words, op)


def real(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    star(comm, words, op)
    if words.dtype == np.complex64:
        words.imag = 0


def waits(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    if comm.size > 1:
        comm.Recv(words, (comm.rank + 1) % comm.size, 3)


def buffers_sends(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    received = words.copy()
    total = words.copy()
    for step in range(1, comm.size):
        comm.Send(words, (comm.rank + step) % comm.size, 3)
        comm.Recv(received, (comm.rank - step) % comm.size, 3)
    dml.allreduce(comm, words, op, "ring")


def own_order(comm, buffer, op=np.add):
    words = dml.flat(comm, buffer)
    rows = [words.copy() for _ in range(comm.size)]
    for root in range(comm.size):
        if comm.rank == root:
            for dest in range(comm.size):
                if dest != root:
                    comm.Send(words, dest, 3)
        else:
            comm.Recv(rows[root], root, 3)
    for step in range(1, comm.size):
        op(words, rows[(comm.rank + step) % comm.size], out=words)


def any_buffer(comm, buffer, op=np.add):
    star(comm, np.ascontiguousarray(buffer), op)


def exits(comm, buffer, op=np.add):
    raise SystemExit(0)


def endless(comm, buffer, op=np.add):
    while True:
        pass


def outside(comm, buffer, op=np.add):
    comm.Send(dml.flat(comm, buffer), comm.rank + 1, 3)


def typo(comm, buffer, op=np.add):
    return bufer
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(
    "name, check, message",
    [
        ("always_add", "results by length", "the product of 1 elements of float16 on"),
        ("wrong_above_a_segment", "buffers above", "wrong elements, the first at"),
        ("signed", "results by length", "elements of uint32 on"),
        ("real", "results by length", "elements of complex64 on"),
        ("waits", "results by length", "no rank can continue: deadlock: 2 of 2"),
        ("buffers_sends", "long buffers", "no rank can continue: deadlock"),
        ("own_order", "results by length", "rank 1 and rank 0 differ in bits in the"),
        ("any_buffer", "unusable buffers", "it accepts every other element of an"),
        ("exits", "results by length", "it ends Python with sys.exit()"),
        ("endless", "results by length", "it did not end in 1 s; it is in line"),
        ("outside", "results by length", "expected a dest from 0 to 0 or PROC_NULL"),
        ("typo", "results by length", "NameError: name 'bufer' is not defined"),
        ("typo", "results by length", ":typo on rank 0 of 1 with 0 x float16, add"),
    ],
)
def test_a_fault_is_named(mine, capsys, monkeypatch, name, check, message):
    monkeypatch.setattr(conformance, "VIRTUAL_SIZES", (1, 2, 3))
    monkeypatch.setattr(conformance, "SEGMENTED_SIZES", (2,))
    if name == "endless":
        monkeypatch.setattr(conformance, "SECONDS", 1)
    assert conformance.main([f"{mine}:{name}", "--ranks=0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = [n for n, line in enumerate(lines) if line.endswith("FAILED")]
    assert lines[failed[0]].strip().startswith(check)
    assert message in lines[failed[0] + 1]
    assert lines[-1] == f"{mine}:{name}: wrong"


def test_bad_use_is_one_line(mine, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(conformance, "VIRTUAL_SIZES", (1, 2))
    monkeypatch.setattr(conformance, "SEGMENTED_SIZES", (2,))
    assert conformance.main([f"{mine}:nothing"]) == 2
    assert "such as star, always_add" in capsys.readouterr().err
    assert conformance.main([f"{mine}:star", "--ranks=-1"]) == 2
    assert "expected --ranks of 0 or more, got -1" in capsys.readouterr().err
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\necho not enough slots\nexit 1\n")
    mpirun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert conformance.main([f"{mine}:star"]) == 2
    ended = capsys.readouterr()
    assert "expected mpirun -n 3 to start, got code 1" in ended.err
    assert "wrong" not in ended.out
    monkeypatch.setenv("PMI_RANK", "1")
    assert conformance.main([f"{mine}:star"]) == 2
    assert "drop mpirun" in capsys.readouterr().err


@pytest.mark.mpi
def test_a_correct_allreduce_conforms_on_virtual_ranks_and_on_real_ones(
    mine, capfd, monkeypatch
):
    monkeypatch.setattr(conformance, "VIRTUAL_SIZES", (1, 2, 3))
    monkeypatch.setattr(conformance, "SEGMENTED_SIZES", (2,))
    assert conformance.main([f"{mine}:star", "--ranks=2"]) == 0
    said, err = capfd.readouterr()
    assert not err
    assert f"{mine}:star on 2 real ranks" in said
    assert said.count(" ok\n") == 8 + 6
    assert said.endswith(f"{mine}:star: conforms\n")
