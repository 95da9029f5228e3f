"""Single files by mpirun, with the command of their docstring."""

import pytest

from tests.commands import PYTHON, ROOT, output
from tests.mpi.conftest import MPIRUN, OPEN_MPI_VARIABLES

NAMES = sorted(path.stem for path in (ROOT / "experiments/single").glob("*.py"))
# more than the two ranks of the others, for several workers or attackers
RANKS = {"parameter_server": 3, "gradient_coding": 4, "byzantine": 4}
# some of their methods add in another order than one process
ROUNDED = {"allreduce", "parameter_server", "hogwild", "gradient_coding"}


@pytest.mark.parametrize("name", NAMES)
def test_a_single_file_equals_one_process_on_real_ranks(name):
    file = f"experiments/single/{name}.py"
    printed = output(
        MPIRUN, "-n", RANKS.get(name, 2), PYTHON, file, **OPEN_MPI_VARIABLES
    )
    assert "True" in printed
    assert name in ROUNDED or "False" not in printed
    assert len(printed.splitlines()) <= 20
