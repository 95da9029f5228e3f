import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from dml.models.layers.experts import Mixture, capacity, init_params, specs
from dml.types import BadInput
from tests.checks import said
from tests.models.layers.experts_checks import CHECKS as EXPERTS_CHECKS
from tests.models.layers.ring_checks import CHECKS as RING_CHECKS


@pytest.mark.parametrize(
    "name", [check.__name__ for check in EXPERTS_CHECKS + RING_CHECKS]
)
def test_on_four_devices(name):
    text = said("tests.models.layers.axes_main")
    assert f"{name}: ok\n" in text, text


def test_capacity_is_the_equal_share_times_the_factor_and_params_have_their_specs():
    mixture = Mixture(8, 1, 1, 1, 1.25)
    assert capacity(mixture, 64) == 10
    assert capacity(mixture._replace(choices=2), 64) == 20
    assert capacity(mixture, 16) == 3  # ceil(2.5)
    assert capacity(mixture._replace(factor=99.0), 16) == 16
    assert capacity(mixture, 1) == 1
    params = init_params(Mixture(8, 6, 100), jax.random.key(0))
    spec = specs("there")
    assert jax.tree.structure(params) == jax.tree.structure(spec)
    both = zip(*map(jax.tree.leaves, (params, spec)), strict=True)
    cut = [leaf.shape[0] for leaf, lies in both if lies == PartitionSpec("there")]
    assert cut == [8] * 4
    # a number of an expert sums 6 or 100 others, whatever the count of experts
    assert np.std(params["up"]["kernel"]) == pytest.approx(6**-0.5, rel=0.05)
    assert np.std(params["down"]["kernel"]) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"choices": 9}, "expected choices of 1 to 8 experts, got 9"),
        ({"choices": 0}, "expected choices of 1 to 8 experts, got 0"),
        ({"factor": 0.0}, "expected a capacity factor above 0, got 0.0"),
        ({"factor": float("nan")}, "expected a capacity factor above 0, got nan"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, says):
    with pytest.raises(BadInput) as raised:
        capacity(Mixture(8, 4, 4)._replace(**change), 8)
    assert str(raised.value).startswith(says)
    assert "; pass " in str(raised.value) and "\n" not in str(raised.value)
