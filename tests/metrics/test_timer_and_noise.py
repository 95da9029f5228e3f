import math
from itertools import count

import pytest

from dml.metrics.noise import Noise, noise
from dml.metrics.timer import Timer
from dml.types import BadInput


def test_a_lap_has_the_seconds_of_each_phase_and_starts_over():
    ticks = iter([0, 3, 10, 11, 20, 24])
    timer = Timer(lambda: next(ticks))
    for phase in ("gradient", "wire", "gradient"):
        with timer(phase):
            pass
    assert timer.lap() == {"gradient": 7, "wire": 1}
    assert timer.lap() == {}


def test_nested_phases_and_those_that_raise_are_counted_and_passed_on():
    phases = []
    timer = Timer(count().__next__, on_end=lambda *phase: phases.append(phase))
    with pytest.raises(KeyError), timer("wire"), timer("wait"):
        raise KeyError
    assert timer.lap() == {"wait": 1, "wire": 3}
    assert phases == [("wait", 1, 2), ("wire", 0, 3)]


def test_two_sizes_of_a_batch_give_back_signal_and_noise():
    def square(count):
        return 3.0 + 20.0 / count

    for small, large in ((1, 2), (8, 32), (7, 100)):
        found = noise(square(small), square(large), small, large)
        assert found == pytest.approx((3, 20))


def test_later_steps_replace_the_first_and_a_signal_lost_in_noise_has_no_bound():
    meter = Noise(decay=0.5)
    assert math.isnan(meter.scale)
    assert meter.add(3 + 20 / 4, 3 + 20 / 8, 4, 8) == pytest.approx(20 / 3)
    for _ in range(60):
        scale = meter.add(1 + 5 / 4, 1 + 5 / 8, 4, 8)
    assert scale == pytest.approx(5)
    assert Noise().add(1.0, 0.1, 4, 8) == math.inf


@pytest.mark.parametrize("small, large", [(8, 8), (0, 8), (9, 8)])
def test_one_size_alone_is_bad_input(small, large):
    with pytest.raises(BadInput, match="two ranks or --accumulate=2"):
        noise(1.0, 1.0, small, large)
