import math

import growth
import pytest


@pytest.mark.parametrize("e", [0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_growth_above_a_constant(e):
    costs = [30 + 2 * n**e for n in (5, 50, 500)]
    assert growth.exponent(costs, 10) == pytest.approx(e)


def test_costs_that_do_not_increase_twice_have_no_exponent():
    assert growth.exponent([3, 3, 5], 10) == growth.exponent([3, 5, 5], 10) == -math.inf


def test_a_family_is_measured_at_three_sizes(tmp_path):
    family = growth.Family("words", 10, "cooccurrence.py --corpus={text} --min_count=1")
    costs = growth.measure(family, tmp_path)
    assert len(costs) == 3
    assert all(cost.seconds > 0 and cost.nbytes > 1e7 for cost in costs)
    assert len((tmp_path / "text.txt").read_text().split()) == 1000
    cells = growth.row(family, costs).split(" | ")
    assert cells[:2] == ["| words", "10 to 1,000"]
    assert cells[3] == "1.00"
    noise = [growth.Cost(seconds, 1.0) for seconds in (2.01, 2, 900)]
    assert growth.row(family, noise).split(" | ")[4] == "-"


def test_a_command_that_fails_ends_the_measurement_with_its_output(tmp_path):
    family = growth.Family("devices", 1, "plan.py --devices=x{n}")
    with pytest.raises(SystemExit, match="exit code 2\n(.*\n)*plan.py: .*devices"):
        growth.measure(family, tmp_path)


def test_an_unknown_family_is_refused(capsys):
    with pytest.raises(SystemExit):
        growth.main(["--only=nothing"])
    assert "expected a word of virtual ranks" in capsys.readouterr().err
