"""The two networks that were cut before there were frameworks for it."""

import pytest
import translate

from dml.types import BadInput
from tests.commands import PYTHON, output
from tests.experiments.run_folder import check_folder, read_rows, read_summary

QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # to compile


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the folder of both runs, and what they said."""
    out = tmp_path_factory.mktemp("historical")
    argv = [PYTHON, "-W", "error", "-m", "tests.experiments.deep.historical_main", out]
    return out, output(*argv, JAX_PLATFORMS="cpu", **QUICK)


def read(path):
    summary = read_summary(path)
    check_folder(path, summary, f"{path.name}.svg", f"{path.name}.png")
    return summary, read_rows(path)


def test_two_towers_learn_as_one_device_and_send_the_words_of_the_formula(ran):
    summary, rows = read(ran[0] / "two_towers")
    assert [(row["crossings"], row["devices"]) for row in rows] == [
        ("3678", 1),
        ("3678", 2),
    ]
    one, two = (row["losses"] for row in rows)
    assert two == pytest.approx(one, rel=1e-5)
    assert len(set(one)) == 3
    assert summary["largest_difference"] == max(
        abs(a - b) for a, b in zip(one, two, strict=True)
    )
    for row in rows:  # counted by shapes, and read from what XLA made of it
        assert row["compiled_bytes"] == row["formula_bytes"]
    assert [row["formula_bytes"] > 0 for row in rows] == [False, True]


def test_a_wavefront_learns_as_one_device_in_fewer_ticks(ran):
    summary, (one, sweep) = read(ran[0] / "translate")
    assert sweep["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert len(set(one["losses"])) == 3
    assert (one["ticks"], sweep["ticks"]) == (2 * 6, 6 + 2 - 1)
    assert summary["ticks_wavefront"] == 7
    assert one["accuracy"] == sweep["accuracy"] == summary["accuracy"]
    lines = ran[1].splitlines()
    assert "layer 2   · r1 r2 r3 w1 w2 w3" in lines
    assert "layer 1  r1 r2 r3 w1 w2 w3  ·" in lines
    assert sum(" -> " in line for line in lines) == 4


def test_a_translator_without_layers_is_refused():
    with pytest.raises(BadInput, match="layers"):
        translate.main(["translate.py", "--layers=0"])
