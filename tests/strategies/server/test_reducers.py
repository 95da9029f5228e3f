"""A reducer that is no sum trains by all ranks and by servers, to equal bits."""

from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches, take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, Reducer, Rows, itself
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import all_gather_parts, lengths
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from dml.wire.reducers.rows import indices
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, batches, problem

WORKERS, STAR = 3, exact(ALLREDUCE["star"])


def estimate(terms_RxD):
    """Return the median in place of the mean, times the number of terms."""
    return np.float32(len(terms_RxD)) * np.median(terms_RxD, axis=0)


def reduce(comm, buffer, lies):
    each = lengths(comm, len(buffer))
    terms_RxD = all_gather_parts(comm, buffer.copy(), each).reshape(comm.size, -1)
    buffer[: lies.length] = estimate(terms_RxD[:, : lies.length])
    buffer[lies.length :] = terms_RxD[:, lies.length :].sum(axis=0)
    return lies


def combine(terms):
    rows = np.unique(np.concatenate([indices(term.index) for term in terms]))
    stack_RxNxD = np.zeros((len(terms), len(rows), terms[0].values.shape[1]), "f")
    for terms_NxD, term in zip(stack_RxNxD, terms, strict=True):
        terms_NxD[np.searchsorted(rows, indices(term.index))] = term.values
    return Rows(rows, estimate(stack_RxNxD))


MEDIAN = Reducer(itself, reduce, combine)


def of_tree():
    draws = np.random.default_rng(0)
    inputs, targets = draws.standard_normal((60, 5)), draws.integers(4, size=60)
    data, model = Batch(inputs.astype("f"), targets.astype("i")), logistic(5, 4)
    start = model.init(jax.random.key(0))
    task = model_problem(model, start, examples=60, take=partial(take, data))
    return task, islice(minibatches(60, 24, 1), 8), make("momentum", 0.1)


def of_rows():
    return problem(), batches(8), lambda rows: Descent(rows.copy())


KINDS = {"tree": of_tree, "rows": of_rows}


def trained(kind, strategy, size, **own):
    def program(comm):
        how = {"comm": Metered(comm), "timer": Timer(comm.Wtime), **own}
        *_, last = strategy(*KINDS[kind](), **how)
        leaves = jax.tree.leaves(last.params())
        return np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else None

    return sim.run(program, size)[0]


def by_all_ranks(kind, reducer):
    return trained(kind, synchronous, WORKERS, reducer=reducer)


def by_servers(kind, reducer, servers=1, name="bsp"):
    who = roles(WORKERS + servers, servers)
    rule = consistency(name, Choice(backup=0), WORKERS)
    setup = Setup(who, rule, reducer=reducer)
    return trained(kind, server, WORKERS + servers, setup=setup)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_median_has_equal_bits_on_all_ranks_and_on_servers(kind, servers):
    expected = by_all_ranks(kind, MEDIAN)
    assert by_servers(kind, MEDIAN, servers).tobytes() == expected.tobytes()
    assert expected.tobytes() != by_all_ranks(kind, STAR).tobytes()


def test_a_backup_server_divides_the_reducers_sum_by_the_share_of_its_terms():
    """Where no worker is left out the share is 1, but for rounding."""
    found, expected = (
        by_servers("tree", MEDIAN, 1, "backup"),
        by_all_ranks("tree", MEDIAN),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_servers_refuse_a_reducer_that_needs_all_ranks():
    with pytest.raises(BadInput, match="expected a reducer with `combine`"):
        by_servers("rows", STAR._replace(combine=None))
