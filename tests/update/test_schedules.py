import numpy as np
import pytest

from dml.types import BadInput
from dml.update.schedules import SCHEDULES, WARMUPS, linear_scaling, schedule

PEAK, STEPS, WARM = 0.8, 90, 10
# at 50, half way from the end of the warm-up, and at the last update and behind it
EXPECTED = {
    "constant": (0.8, 0.8, 0.8),
    "cosine": (0.4, 0.4 * (1 + np.cos(np.pi * 79 / 80)), 0),
    "linear": (0.4, 0.01, 0),
    "poly": (0.2, 0.8 / 80**2, 0),
    "steps": (0.08, 0.0008, 0.0008),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_meet_values_by_hand(name):
    rate = schedule(name, PEAK, STEPS, WARM)
    for step, expected in zip((50, 89, 90), EXPECTED[name], strict=True):
        assert float(rate(step)) == pytest.approx(expected, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_warmup_meets_every_schedule_at_its_peak(name, warmup):
    rate = schedule(name, PEAK, STEPS, WARM, warmup, start=0.1)
    first = {"none": PEAK, "constant": 0.1, "gradual": 0.1}[warmup]
    middle = {"constant": 0.1, "gradual": 0.45}.get(warmup)
    assert float(rate(0)) == pytest.approx(first)
    if middle is None:
        assert rate(5) == schedule(name, PEAK, STEPS)(5)
    else:
        assert float(rate(5)) == pytest.approx(middle)
        assert float(rate(WARM)) == np.float32(PEAK)
    if warmup == "gradual":  # were it one step longer, it would be there too
        assert 2 * rate(9) - rate(8) == pytest.approx(PEAK)


def test_drops_are_at_parts_of_all_steps_with_a_warmup_or_without():
    for warm in (0, WARM):
        rate = schedule("steps", 1.0, 90, warm)
        rates = [float(rate(step)) for step in (29, 30, 59, 60, 79, 80)]
        assert rates == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001])


def test_linear_scaling_is_in_proportion_to_the_batch():
    assert linear_scaling(0.1, 8192, 256) == pytest.approx(3.2)


def test_unknown_names_and_too_long_a_warmup_are_bad_input():
    for message, *arguments in [
        ("constant, cosine, .* got 'cos'; pass --sched", "cos", 1.0, 10),
        ("none, constant, gradual, got 'slow'", "cosine", 1.0, 10, 2, "slow"),
        ("0 to steps=10 steps of warm-up, got 11", "cosine", 1.0, 10, 11),
    ]:
        with pytest.raises(BadInput, match=message):
            schedule(*arguments)
