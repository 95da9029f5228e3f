import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from dml.models.layers.experts import Mixture, capacity, routes, specs, start
from dml.types import BadInput
from tests.checks import said
from tests.models.layers.experts_checks import CHECKS as EXPERTS_CHECKS
from tests.models.layers.ring_checks import CHECKS as RING_CHECKS

ROWS, EXPERTS = 24, 6
routed = functools.cache(lambda k: jax.jit(functools.partial(routes, choices=k)))


@pytest.mark.parametrize(
    "name", [check.__name__ for check in EXPERTS_CHECKS + RING_CHECKS]
)
def test_on_four_devices(name):
    text = said("tests.models.layers.axes_main")
    assert f"{name}: ok\n" in text, text


@pytest.mark.parametrize("choices", [1, 2])
def test_every_choice_takes_the_next_slot_of_its_expert(choices):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lean_E = rng.standard_normal(EXPERTS) * (seed % 4)  # from even to crowded
        scores_RxE = rng.standard_normal((ROWS, EXPERTS)) + lean_E
        way = routed(choices)(scores_RxE.astype(np.float32))
        experts_RxK, slots_RxK, gates_RxK, _ = map(np.asarray, way)

        best_RxK = np.argsort(-scores_RxE, axis=1)[:, :choices]
        assert (experts_RxK == best_RxK).all()
        # first choices before second ones, each in the order of the rows
        for expert in range(EXPERTS):
            slots = slots_RxK.T[expert == experts_RxK.T]
            assert list(slots) == list(range(len(slots)))
        assert (gates_RxK > 0).all() and (gates_RxK[:, 0] >= gates_RxK[:, -1]).all()
        # kept + dropped = all; no expert above its room
        room = capacity(Mixture(EXPERTS, 1, 1, choices, 1.0), ROWS)
        kept_RxK = slots_RxK < room
        loads_E = np.bincount(experts_RxK.reshape(-1), minlength=EXPERTS)
        assert kept_RxK.sum() == np.minimum(loads_E, room).sum()
        taken = {*zip(experts_RxK[kept_RxK], slots_RxK[kept_RxK], strict=True)}
        assert len(taken) == kept_RxK.sum()


def test_gates_are_chances_of_one_choice_and_shares_of_two():
    scores_RxE = jnp.tile(jnp.log(jnp.array([[1, 6, 3, 1, 1, 4]])), (ROWS, 1))
    np.testing.assert_allclose(routed(1)(scores_RxE).gates_RxK[0], [6 / 16], rtol=1e-6)
    np.testing.assert_allclose(routed(2)(scores_RxE).gates_RxK[0], [0.6, 0.4], 1e-6)


def test_balance_is_1_where_loads_are_equal_and_more_where_they_are_not():
    sure = 50.0  # a score that leaves the others no chance
    for used, balance in ((EXPERTS, 1), (1, EXPERTS), (3, 2)):
        scores_RxE = sure * np.eye(EXPERTS, dtype=np.float32)[np.arange(ROWS) % used]
        assert float(routed(1)(scores_RxE).balance) == pytest.approx(balance)
    scores_RxE = np.zeros((ROWS, EXPERTS), np.float32)
    scores_RxE[:, 2] = 1
    by_RxE = jax.jit(jax.grad(lambda scores: routes(scores, 1).balance))(scores_RxE)
    assert (by_RxE[:, 2] > 0).all()
    assert (np.delete(by_RxE, 2, axis=1) < 0).all()


def test_room_is_the_equal_share_times_the_factor_and_never_more_than_the_rows():
    mixture = Mixture(8, 1, 1, 1, 1.25)
    assert capacity(mixture, 64) == 10
    assert capacity(mixture._replace(choices=2), 64) == 20
    assert capacity(mixture, 16) == 3  # ceil(2.5)
    assert capacity(mixture._replace(factor=99.0), 16) == 16
    assert capacity(mixture, 1) == 1


def test_params_lie_as_specs_say():
    params = start(Mixture(8, 6, 100), jax.random.key(0))
    spec = specs("there")
    assert jax.tree.structure(params) == jax.tree.structure(spec)
    cut = [
        leaf.shape[0]
        for leaf, lies in zip(*map(jax.tree.leaves, (params, spec)), strict=True)
        if lies == PartitionSpec("there")
    ]
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
