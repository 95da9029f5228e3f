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


def test_a_phase_that_raises_is_counted():
    phases = []
    timer = Timer(count().__next__, seen=lambda *phase: phases.append(phase))
    with pytest.raises(KeyError), timer("wait"):
        raise KeyError
    assert timer.lap() == {"wait": 1}
    assert phases == [("wait", 0, 1)]


def test_nested_phases_each_count():
    timer = Timer(count().__next__)
    with timer("wire"), timer("wait"):
        pass
    assert timer.lap() == {"wait": 1, "wire": 3}


def test_the_default_clock_runs():
    timer = Timer()
    with timer("wait"):
        sum(range(10_000))
    assert 0 < timer.lap()["wait"] < 60


def test_whoever_listens_hears_of_every_phase():
    heard = []
    timer = Timer(count().__next__, seen=lambda *phase: heard.append(phase))
    with timer("wire"), timer("wait"):
        pass
    assert heard == [("wait", 1, 2), ("wire", 0, 3)]
