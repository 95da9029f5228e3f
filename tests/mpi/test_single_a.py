"""Single files by mpirun, with the command of their docstring."""

import pytest

from tests.commands import PYTHON, output
from tests.mpi.conftest import MPIRUN, OPEN_MPI_VARIABLES

NAMES = ["allreduce", "parameter_server", "glove", "data_parallel", "hogwild"]
NAMES += ["byzantine", "gradient_coding", "elastic"]


@pytest.mark.parametrize("name", NAMES)
def test_a_single_file_equals_one_process_on_real_ranks(name):
    file = f"experiments/single/{name}.py"
    printed = output(MPIRUN, "-n", 4, PYTHON, file, **OPEN_MPI_VARIABLES)
    print(printed)
    assert "True" in printed
    assert len(printed.splitlines()) <= 15
