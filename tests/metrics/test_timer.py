from itertools import count

import pytest

from dml.metrics.timer import Timer


def test_a_lap_has_the_seconds_of_each_phase_and_starts_over():
    ticks = iter([0, 3, 10, 11, 20, 24])
    timer = Timer(lambda: next(ticks))
    for phase in ("gradient", "wire", "gradient"):
        with timer(phase):
            pass
    assert timer.lap() == {"gradient": 7, "wire": 1}
    assert timer.lap() == {}


def test_the_default_clock_runs():
    timer = Timer()
    with timer("wait"):
        sum(range(10_000))
    assert 0 < timer.lap()["wait"] < 60


def test_nested_phases_and_those_that_raise_are_counted_and_passed_on():
    phases = []
    timer = Timer(count().__next__, seen=lambda *phase: phases.append(phase))
    with pytest.raises(KeyError), timer("wire"), timer("wait"):
        raise KeyError
    assert timer.lap() == {"wait": 1, "wire": 3}
    assert phases == [("wait", 1, 2), ("wire", 0, 3)]
