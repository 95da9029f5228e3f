"""Single files by mpirun, with the command of their docstring."""

import pytest

from tests.commands import PYTHON, output
from tests.mpi.conftest import MPIRUN, OPEN_MPI_VARIABLES


@pytest.mark.parametrize(
    "name",
    [
        "pipeline",
        "local_sgd",
        "power_sgd",
        "gossip",
        "tensor_parallel",
        "zero",
        "impala",
    ],
)
def test_a_single_file_equals_one_process_on_real_ranks(name):
    file = f"experiments/single/{name}.py"
    printed = output(MPIRUN, "-n", 4, PYTHON, file, **OPEN_MPI_VARIABLES)
    print(printed)
    assert "True" in printed and "False" not in printed
    assert len(printed.splitlines()) <= 20
