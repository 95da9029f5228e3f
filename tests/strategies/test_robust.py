"""Training with robust reducers: equal replicas, any number of ranks, resumption."""

from functools import partial

import jax
import pytest

from dml import sim
from dml.strategies.local import local
from dml.strategies.synchronous import synchronous
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.names import reducer
from tests.strategies import small

SHARDS, HALF = 8, 2 * small.BATCH


def train(comm, name, strategy=synchronous, **options):
    """Train the small network with a reducer."""
    own = {"reducer": reducer(name, ALLREDUCE["ring"])}
    return small.train(strategy, comm=Metered(comm), **own, **options)


@pytest.mark.parametrize("name", ("trimmed_mean:2", "krum:2", "median:1+momentum"))
@pytest.mark.parametrize("bucket_mb", (0, 1e-9))
def test_a_network_has_equal_bits_on_any_number_of_ranks(name, bucket_mb):
    """Distances are those of a bucket: buckets select for themselves."""
    options = {"shards": SHARDS, "bucket_mb": bucket_mb, "drawn": HALF}
    program = partial(train, name=name, **options)
    (expected,) = sim.run(program, 1)
    for size in (3, SHARDS):
        for found in sim.run(program, size):
            assert small.same_bits(found, expected), size


@pytest.mark.parametrize("name", ("median:1+momentum", "centred_clipping:1+momentum"))
def test_a_run_continues_after_a_checkpoint(name):
    """Momentum is that of a logical shard, and moves with it to another rank."""
    expected = sim.run(partial(train, name=name, shards=SHARDS), 4)[0][-1].params
    program = partial(train, name=name, shards=SHARDS, drawn=HALF)
    first = sim.run(program, 3)

    def resume(comm, forget):
        last = first[0][-1]
        saved = [jax.tree.leaves(steps[-1].memory) for steps in first]
        own = {"state": last.state, "params": last.params}
        memory = None if forget else saved
        options = {"start": HALF, "shards": SHARDS, "memory": memory}
        return train(comm, name, **own, **options)

    for forget in (False, True):
        rest = sim.run(partial(resume, forget=forget), 4)[0]
        assert (small.apart(rest[-1].params, expected) > 1e-5) == forget


@pytest.mark.parametrize("name", ("median:1", "krum:1", "geometric_median:1"))
def test_local_averages_are_robust_means_of_parameters(name):
    """Workers have equal shares, also where they have unequal numbers of examples."""
    steps = sim.run(partial(train, name=name, strategy=local, every=2), 5)
    for found in steps:
        assert small.same_bits(found, steps[0])
    mean = sim.run(partial(train, name="exact", strategy=local, every=2), 5)[0]
    assert small.apart(steps[0][-1].params, mean[-1].params) < 0.1


def test_the_local_mean_without_attackers_is_the_exact_mean():
    options = {"strategy": local, "every": 2, "drawn": HALF}
    found, expected = (
        sim.run(partial(train, name=name, **options), 4)[0][-1].params
        for name in ("trimmed_mean:0", "exact")
    )
    assert small.apart(found, expected) < 1e-6


def test_too_few_ranks_are_refused_with_the_bound():
    with pytest.raises(BadInput, match=r"n >= 2f\+3 = 9 workers with krum:3, got 8"):
        sim.run(partial(train, name="krum:3"), 8)
