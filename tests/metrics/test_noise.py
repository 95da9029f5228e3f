import math

import numpy as np
import pytest

from dml.metrics.noise import Noise, noise
from dml.types import BadInput


def test_two_sizes_of_a_batch_give_back_signal_and_noise():
    def square(count):
        return 3.0 + 20.0 / count

    for small, large in ((1, 2), (8, 32), (7, 100)):
        found = noise(square(small), square(large), small, large)
        assert found == pytest.approx((3, 20))


def test_the_scale_of_gaussian_gradients_is_their_trace_over_their_mean():
    rng, meter = np.random.default_rng(0), Noise(decay=0.999)
    mean, spread = np.array([0.5, -1.0, 0.3]), np.array([2.0, 1.0, 3.0])
    for _ in range(8000):
        grads = mean + spread * rng.standard_normal((4, 8, 3))  # 4 ranks of 8 examples
        ranks = grads.mean(axis=1)
        small = (ranks**2).sum(axis=1).mean()
        scale = meter.add(small, (ranks.mean(axis=0) ** 2).sum(), 8, 32)
    # a mean over some 2000 steps, each off by about half of what it measures
    assert scale == pytest.approx((spread**2).sum() / (mean**2).sum(), rel=0.1)
    assert meter.noise == pytest.approx((spread**2).sum(), rel=0.05)


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
