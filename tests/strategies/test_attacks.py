"""Training under attacks: any number of ranks, buckets, resumption, deviation."""

from functools import partial

import jax
import pytest

from dml import sim
from dml.strategies.local import local
from dml.strategies.synchronous import synchronous
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.names import reducer
from dml.wire.reducers.robust.attacks import byzantine
from tests.strategies import small

SHARDS, FEW, HALF = 8, small.BATCH, 2 * small.BATCH


def train(comm, name, attack, attackers=2, strategy=synchronous, **options):
    """Train the small network under an attack."""
    made = reducer(name, ALLREDUCE["ring"], byzantine(attack, attackers))
    return small.train(strategy, comm=Metered(comm), reducer=made, **options)


@pytest.mark.parametrize("attack", ("noise", "optimal_ipm", "late:1"))
def test_an_attacked_run_has_equal_bits_on_any_number_of_ranks(attack):
    options = {"shards": SHARDS, "bucket_mb": 1e-9, "drawn": HALF}
    program = partial(train, name="median:2", attack=attack, **options)
    (expected,) = sim.run(program, 1)
    for size in (3, SHARDS):
        for found in sim.run(program, size):
            assert small.same_bits(found, expected), size
            for step, other in zip(found, expected, strict=True):
                deviation = step.measures["deviation"]
                assert deviation == pytest.approx(other.measures["deviation"])
    (honest,) = sim.run(lambda comm: train(comm, "median:2", attack, 0, **options), 1)
    assert small.apart(honest[-1].params, expected[-1].params) > 1e-5
    assert "deviation" not in honest[-1].measures


def test_late_terms_continue_after_a_checkpoint():
    options = {"name": "mean:0", "attack": "late:2", "shards": SHARDS}
    expected = sim.run(partial(train, **options), 4)[0][-1].params
    first = sim.run(partial(train, drawn=HALF, **options), 3)
    saved = [jax.tree.leaves(steps[-1].memory) for steps in first]
    own = {"state": first[0][-1].state, "params": first[0][-1].params, "start": HALF}
    rest = sim.run(partial(train, memory=saved, **own, **options), 4)[0]
    assert small.apart(rest[-1].params, expected) == 0
    anew = sim.run(partial(train, **own, **options), 4)[0]
    assert small.apart(anew[-1].params, expected) > 1e-5


@pytest.mark.parametrize("bucket_mb", (0, 1e-9))
@pytest.mark.parametrize("attack, sent", (("silent", 0), ("ipm:0.5", -0.5)))
def test_the_deviation_of_a_mean_is_that_of_its_closed_form(attack, sent, bucket_mb):
    """The mean of n-f times μ and f times sent μ is f(1 - sent)/n of μ apart from μ."""
    program = partial(train, name="exact", attack=attack, bucket_mb=bucket_mb)
    for steps in sim.run(partial(program, drawn=FEW), SHARDS):
        deviation = steps[0].measures["deviation"]
        assert deviation == pytest.approx(2 / SHARDS * (1 - sent), rel=1e-5)


def test_attackers_of_local_change_averages_of_parameters():
    options = {"strategy": local, "every": 2, "attack": "nan"}
    steps = sim.run(partial(train, name="median:2", **options), 5)
    assert all(small.same_bits(found, steps[0]) for found in steps)
    assert 0 < steps[0][-1].measures["deviation"] < 0.1
