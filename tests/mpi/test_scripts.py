"""Scripts and programs of mpi4py find the same on real and on virtual ranks."""

from pathlib import Path

import pytest

from dml.sim import MPI
from dml.sim.__main__ import main
from tests.mpi import scripts_main

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


@pytest.mark.parametrize(
    "name, arguments",
    [("conjugate_gradient.py", ("400", "20")), ("heat.py", ("32", "30"))],
)
def test_an_example_prints_the_same(mpirun, capsys, name, arguments):
    path = str(EXAMPLES / name)
    code, out, _, _ = mpirun(4, "scripts_main", path, *arguments)
    assert code == 0 and out
    assert main(["-n", "4", path, *arguments]) == 0
    assert capsys.readouterr().out == out


def test_random_programs_find_the_same(mpirun):
    code, out, _, _ = mpirun(3, "scripts_main", "programs", 12)
    assert code == 0
    found = MPI.run(lambda comm: scripts_main.digests(comm, MPI, 12), 3)
    assert out.splitlines() == found[0]
