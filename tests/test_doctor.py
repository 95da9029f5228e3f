"""The doctor's findings on machines that are made up."""

import os
import socket
from types import SimpleNamespace

import pytest

from dml import doctor
from dml.doctor import FAIL, OK, WARN, Finding, Place, library, lines
from dml.types import BadInput
from dml.wire.mesh import devices


def place(ranks=4, hosts=1, rank=0):
    return Place(None, rank, ranks, [f"h{n * hosts // ranks}" for n in range(ranks)])


def only(findings):
    (found,) = findings
    return found.level, found.text


@pytest.mark.parametrize(
    "text, name",
    [
        ("MPICH Version:      5.0.2\nMPICH Release date", "MPICH 5.0.2"),
        ("HYDRA build details:\n    Version:   4.3.1", "MPICH 4.3.1"),
        ("Open MPI v5.0.8, package: Open MPI root@", "Open MPI 5.0.8"),
        (
            "mpirun (Open MPI) 5.0.8\n\nReport bugs to https://www.open-mpi.org",
            "Open MPI 5.0.8",
        ),
        ("Intel(R) MPI Library 2021.13", "Intel(R) MPI 2021.13"),
        ("", "an unknown MPI"),
    ],
)
def test_a_library_is_named_by_its_version_text(text, name):
    assert library(text) == name


def test_threads_of_all_ranks_fit_into_the_cores(monkeypatch):
    monkeypatch.setattr(doctor, "cores_of_host", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert only(doctor.check_threads(place(4)))[0] == OK
    monkeypatch.delenv("OMP_NUM_THREADS")
    level, text = only(doctor.check_threads(place(4)))
    assert (level, text.split("; ")[1]) == (WARN, "set OMP_NUM_THREADS=2")
    assert only(doctor.check_threads(place(8, hosts=8)))[0] == OK
    assert "take turns" in only(doctor.check_threads(place(9)))[1]


@pytest.mark.parametrize(
    "address, hosts, level",
    [("10.0.0.1", 2, OK), ("127.0.1.1", 1, OK), ("127.0.1.1", 2, FAIL), ("", 2, FAIL)],
)
def test_names_lead_to_addresses_that_other_hosts_reach(
    monkeypatch, address, hosts, level
):
    def resolve(name, port):
        if not address:
            raise OSError
        return [(None, None, None, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert only(doctor.check_names(place(4, hosts)))[0] == level


@pytest.mark.parametrize(
    "gpus, ranks, plugin, level, said",
    [
        (0, 4, False, OK, "none"),
        (4, 4, True, OK, "rank k of a host"),
        (4, 4, False, WARN, "unused by JAX"),
        (2, 4, True, FAIL, "one rank for each GPU"),
    ],
)
def test_gpus_are_compared_with_ranks(
    monkeypatch, tmp_path, gpus, ranks, plugin, level, said
):
    for name in ("nvidiactl", *(f"nvidia{n}" for n in range(gpus))):
        (tmp_path / name).touch()
    monkeypatch.setattr(doctor, "DEVICES", tmp_path)
    found = monkeypatch.setattr
    found(doctor.importlib.util, "find_spec", lambda name: plugin or None)
    what = only(doctor.check_gpus(place(ranks)))
    assert what[0] == level and said in what[1]


def test_little_shared_memory_is_reported(monkeypatch):
    free = SimpleNamespace(f_bavail=1 << 10, f_frsize=64 << 10)  # 64 MB
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    assert only(doctor.check_memory(place(1)))[0] == OK
    level, text = only(doctor.check_memory(place(4)))
    assert level == FAIL and "256 MB are needed" in text


def test_equal_findings_are_one_line_with_their_ranks():
    found = [[Finding(OK, "a", "x"), Finding(OK, "b", "y")] for _ in range(4)]
    found[2][1] = Finding(FAIL, "b", "z")
    assert [line.split(maxsplit=2) for line in lines(found)] == [
        ["ok", "a", "x"],
        ["ok", "b", "y (ranks 0-1, 3)"],
        ["FAIL", "b", "z"],
    ]


def test_a_machine_without_mpi_is_looked_at(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "this_place", lambda: place(1))
    assert doctor.main([]) == 0
    out = capsys.readouterr().out
    assert "no MPI library" in out and "dml.doctor measures" in out


def test_a_world_of_one_rank_under_mpirun_is_refused(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    world = SimpleNamespace(size=1)
    monkeypatch.setattr("dml.wire.comm.mpi.world", lambda: world)
    with pytest.raises(BadInput, match="the 3 ranks that mpirun has started, got 1"):
        devices.start()


def test_tasks_of_srun_are_started_by_jax_with_their_gpu(monkeypatch):
    calls = []
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        devices.jax.distributed, "initialize", lambda **options: calls.append(options)
    )
    devices.start()
    assert not calls  # one process
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_LOCALID", "3")
    devices.start()
    assert calls == [{"local_device_ids": 3}]
