"""Errors of MPI after deaths, and the end of a run in which ranks have died."""

from types import SimpleNamespace

import pytest
from mpi4py import MPI

from dml.types import RankFailed
from dml.wire.comm import abort, mpi_requests


@pytest.mark.parametrize(
    ("code", "revoked", "dead", "expected"),
    (
        (MPI.ERR_OTHER, False, [1], RankFailed),
        (MPI.ERR_INTERN, True, [], RankFailed),
        (MPI.ERR_OTHER, False, [], MPI.Exception),
        (MPI.ERR_TRUNCATE, True, [1], MPI.Exception),
    ),
)
def test_an_unspecific_error_after_a_death_is_a_failed_rank(
    monkeypatch, code, revoked, dead, expected
):
    monkeypatch.setattr(mpi_requests, "FAILURES", {-1})  # as with ULFM
    comm = SimpleNamespace(
        rank=0, Is_revoked=lambda: revoked, Get_failed=lambda: list(dead)
    )
    assert type(mpi_requests.translated(MPI.Exception(code), comm)) is expected


@pytest.mark.parametrize("where", ("Ibarrier", "Test"))
def test_a_rank_ends_all_ranks_with_its_problem_if_another_has_died(capsys, where):
    codes = []

    def call(name):
        if name == where:
            raise RankFailed("rank 1 has died")
        return SimpleNamespace(Test=lambda: call("Test"))

    comm = SimpleNamespace(
        rank=2, Ibarrier=lambda: call("Ibarrier"), Abort=codes.append
    )
    abort.report(comm, "expected a file, got none", 2)
    assert codes == [2]
    assert capsys.readouterr().err == "rank 2: expected a file, got none\n"
