"""Volunteers on real ranks agree on groups and means, also if one of them vanishes."""

from ast import literal_eval

from tests.mpi.volunteers_main import VANISHED


def test_peers_vanish_and_join_late_on_real_ranks(mpirun, tmp_path):
    ended = mpirun(5, "volunteers_main", tmp_path / "rank")
    assert (ended.code, ended.err) == (0, "")
    by_rank = [literal_eval((tmp_path / f"rank{r}").read_text()) for r in range(5)]
    by_round = {(r, t): row for r, rows in enumerate(by_rank) for t, *row in rows}
    for (rank, t), (members, counts, value) in by_round.items():
        assert rank in members
        for other in set(members) - {VANISHED, rank}:
            assert by_round[other, t][0] == members
            if counts[-1] == by_round[other, t][1][-1] > 0:  # the last part has a mean
                assert by_round[other, t][2] == value
    assert len(by_rank[VANISHED]) == 3
    assert {tuple(rows[-1][:2]) for r, rows in enumerate(by_rank) if r != VANISHED} == {
        (by_rank[0][-1][0], (0, 2, 3, 4))
    }
