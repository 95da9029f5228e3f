"""Scripts of mpi4py on virtual ranks: `python -m dml.sim`."""

import json
import sys
from pathlib import Path

import pytest

from dml.sim.__main__ import main

EXAMPLES = Path(__file__).parents[3] / "docs/examples"


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_ranks_have_their_own_modules_and_objects(script, capsys):
    script("from mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\nseen = []", "helper.py")
    path = script(
        "import sys\nfrom mpi4py import MPI\nimport helper\n"
        "comm = MPI.COMM_WORLD\n"
        "class Own:\n    def __init__(self, rank): self.rank = rank\n"
        "helper.seen.append(comm.rank)\n"
        "import helper as again\nassert again is helper\n"
        "found = comm.gather(Own(helper.rank))\n"
        "assert helper.seen == [comm.rank]\n"
        "if comm.rank == 0:\n"
        "    print([one.rank for one in found if type(one) is Own], sys.argv[1:])\n"
    )
    assert main(["-n", "3", path, "a", "--b"]) == 0
    out, err = capsys.readouterr()
    assert out == "[0, 1, 2] ['a', '--b']\n"
    assert "3 virtual ranks: " in err and "2 messages" in err
    assert "helper" not in sys.modules


@pytest.mark.parametrize(
    "body, code, text",
    [
        (
            "if comm.rank == 1: raise ValueError('bad')",
            1,
            "ValueError: bad\non rank 1 of",
        ),
        ("if comm.rank == 2: sys.exit(7)", 7, ""),
        ("if comm.rank == 2: comm.Abort(5)\ncomm.Barrier()", 5, "rank 2 ended the run"),
        ("if comm.rank == 2: os._exit(6)\ncomm.Barrier()", 6, "rank 2 ended the run"),
        ("if comm.rank: comm.Barrier()", 1, "deadlock: 2 of 3 virtual ranks wait"),
        ("MPI.Finalize()", 0, "3 virtual ranks"),
    ],
)
def test_the_end_of_a_script_is_an_exit_code(script, capsys, body, code, text):
    start = "import os, sys\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
    assert main(["-n", "3", script(start + body)]) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["-n", "0", "s.py"], "expected at least 1 rank, got 0"),
        (["-n", "2", "--network=web", "s.py"], "expected a network of uniform"),
        (
            ["-n", "2", "--timeline=line.png", "s.py"],
            "expected --timeline=FILE.json or FILE.svg, got 'line.png'",
        ),
        (
            ["-n", "2", "--timeline=nowhere/line.svg", "s.py"],
            "expected a folder for --timeline",
        ),
        (["-n", "2", "missing.py"], "expected a script, got 'missing.py'"),
        (
            ["-n", "2", "--eager=-1", "s.py"],
            "expected eager of at least 0 bytes, got -1",
        ),
    ],
)
def test_bad_arguments_are_refused(script, capsys, arguments, text):
    path = script("", "s.py")
    given = [path if one == "s.py" else one for one in arguments]
    assert main(given) == 2
    assert text in capsys.readouterr().err


def test_the_critical_path_follows_the_messages_that_were_awaited(script, capsys):
    path = script(
        "import time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        "if comm.rank == 2: time.sleep(1); comm.Send(b'12', 1)\n"
        "if comm.rank == 1: comm.Recv(bytearray(2), 2); comm.Send(b'123', 0)\n"
        "if comm.rank == 0: comm.Recv(bytearray(3), 1)\n"
    )
    assert main(["-n", "3", "--path", path]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("critical path: ends on rank 0; 2 messages")
    assert "rank 2 to 1, 2 bytes" in lines[2] and "rank 1 to 0, 3 bytes" in lines[3]


def test_large_objects_are_sent_by_the_protocol_5_of_pickle(script, capsys):
    path = script(
        "import numpy as np\nfrom mpi4py import MPI\nfrom mpi4py.util import pkl5\n"
        "comm = pkl5.Intracomm(MPI.COMM_WORLD)\n"
        "after, before = (comm.rank + 1) % 3, (comm.rank - 1) % 3\n"
        "x = {'a': np.full(100_000, comm.rank), 'b': 'text'}\n"
        "y = comm.sendrecv(x, after, 3, None, before, 3)\n"
        "sums = comm.allgather(int(y['a'].sum()))\n"
        "if comm.rank == 0: print(sums, comm.bcast('all', 0))\n"
        "else: comm.bcast(None, 0)\n"
    )
    assert main(["-n", "3", path]) == 0
    found = capsys.readouterr()
    assert found.out == "[200000, 0, 100000] all\n"
    sent = int(found.err.split(" messages, ")[1].split()[0])
    assert 2_400_000 < sent < 2_410_000  # three arrays of 800,000 bytes


def test_a_timeline_has_the_calls_and_the_messages(script, tmp_path):
    path = script(
        "from mpi4py import MPI\nMPI.COMM_WORLD.allreduce(1)\n"
        "MPI.COMM_WORLD.Create_cart([2]).neighbor_allgather(1)"
    )
    assert main(["-n", "2", f"--timeline={tmp_path}/line.json", path]) == 0
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    assert {"Allreduce", "Neighbor_allgather"} <= {one["name"] for one in events}
    arrows = [one for one in events if one["ph"] == "s"]
    assert len(arrows) == 4  # of each rank one of the sum and one to its neighbour


def test_an_example_runs_on_a_thousand_ranks(capsys):
    assert main(["-n", "1000", str(EXAMPLES / "heat.py"), "200", "2"]) == 0
    assert capsys.readouterr().out.startswith("200 x 200 cells: heat ")
