import pytest

from dml.figures import allreduce_times
from dml.runs.writers import cell


def test_a_crossover_is_where_two_straight_lines_meet():
    # on log-log axes: 1e-6·√bytes against 1e-7·bytes, equal at 100 bytes
    sizes = (1, 10_000)
    few = {size: 1e-7 * size for size in sizes}
    many = {size: 1e-6 * size**0.5 for size in sizes}
    (found,) = allreduce_times.crossovers({"few": few, "many": many})
    assert (found.before, found.after) == ("few", "many")
    assert found.bytes == pytest.approx(100)


def test_one_fastest_algorithm_has_no_crossover():
    fast, slow = {0: 3.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 2.0, 2: 2.0}
    assert allreduce_times.crossovers({"fast": fast, "slow": slow}) == []


def row(name, nbytes, seconds, expected):
    return {
        "algorithm": name,
        "registered": True,
        "bytes": nbytes,
        "p": 2,
        "seconds": seconds,
        "native_seconds": 2e-3,
        "predicted_seconds": expected,
        "words_sent": None,
        "sha256": None,
    }


def test_the_figure_draws_peers_without_predictions(tmp_path):
    some = [row("ring", n, n / 1e9, n / 2e9) for n in (1000, 9000)]
    peer = [row("torch gloo", n, n / 1e8, None) for n in (1000, 9000)]
    with allreduce_times.chart(tmp_path / "race", among=["ring"]) as writer:
        for each in some + peer:
            writer.row(each)
        writer.summary({})
    svg = (tmp_path / "race.svg").read_text()
    assert "<svg" in svg
    assert (tmp_path / "race.png").stat().st_size > 5000


def test_every_column_has_a_text_for_a_peer_and_for_no_time_at_all():
    for each in (row("torch gloo", 1000, 1e-3, None), row("ring", 0, 0.0, 0.0)):
        cells = {
            title: cell(each, text)
            for title, (_, text) in allreduce_times.COLUMNS.items()
        }
        assert all(cells.values())
    assert (
        cell(row("ring", 8, 1e-3, 1e-3), allreduce_times.COLUMNS["x native"][1]) == "2"
    )
