import pytest

from dml.figures import races
from dml.runs.writers import cell


def test_a_crossover_is_where_two_straight_lines_meet():
    # on log-log axes: 1e-6·√bytes against 1e-7·bytes, equal at 100 bytes
    sizes = (1, 10_000)
    few = {size: 1e-7 * size for size in sizes}
    many = {size: 1e-6 * size**0.5 for size in sizes}
    (found,) = races.crossovers({"few": few, "many": many})
    assert (found.before, found.after) == ("few", "many")
    assert found.bytes == pytest.approx(100)
    fast, slow = {0: 3.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 2.0, 2: 2.0}
    assert races.crossovers({"fast": fast, "slow": slow}) == []


def test_the_figure_and_the_table_have_peers_without_predictions(tmp_path):
    row = {"registered": True, "p": 2, "native_seconds": 2e-3} | dict.fromkeys(
        ("words_sent", "sha256", "predicted_seconds")
    )
    with races.chart(tmp_path / "race", among=["ring"]) as writer:
        for n in (1000, 9000):
            ring = {"algorithm": "ring", "bytes": n, "seconds": n / 1e9}
            writer.row(row | ring | {"predicted_seconds": n / 2e9})
            peer = {"algorithm": "torch gloo", "bytes": n, "seconds": n / 1e8}
            writer.row(row | peer)
        writer.summary({})
    svg = (tmp_path / "race.svg").read_text()
    assert "<!-- torch gloo -->" in svg and "<!-- ring -->" in svg
    assert (tmp_path / "race.png").stat().st_size > 5000
    texts = {
        title: cell(row | peer, text) for title, (_, text) in races.COLUMNS.items()
    }
    assert (texts["x native"], texts["pred/meas"]) == ("22.2", "-")
    none = cell(row | peer | {"seconds": 0.0}, races.COLUMNS["bus GB/s"][1])
    assert (texts["bus GB/s"], none) == ("0.1", "-")
