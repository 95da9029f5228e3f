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
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup, server
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, Reducer, Rows, itself
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import all_gather_parts, lengths
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout, pack
from dml.wire.reducers.exact import exact
from dml.wire.reducers.rows import indices
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, batches, problem

WORKERS = 3


def of_all_terms(rule):
    """Return the reducer of a rule: terms_RxD -> an estimate of their sum, D."""

    def reduce(comm, buffer, lies):
        each = lengths(comm, len(buffer))
        terms_RxD = all_gather_parts(comm, buffer.copy(), each).reshape(comm.size, -1)
        buffer[: lies.length] = rule(terms_RxD[:, : lies.length])
        buffer[lies.length :] = terms_RxD[:, lies.length :].sum(axis=0)
        return lies

    def combine(terms):
        rows = np.unique(np.concatenate([indices(term.index) for term in terms]))
        shape = (len(terms), len(rows), terms[0].values.shape[1])
        stack_RxNxD = np.zeros(shape, np.float32)
        for terms_NxD, term in zip(stack_RxNxD, terms, strict=True):
            terms_NxD[np.searchsorted(rows, indices(term.index))] = term.values
        sums = rule(stack_RxNxD.reshape(len(terms), -1)).reshape(shape[1:])
        return Rows(rows, sums)

    return Reducer(itself, reduce, combine)


def median(terms_RxD):
    return np.float32(len(terms_RxD)) * np.median(terms_RxD, axis=0)


def network_problem():
    draws = np.random.default_rng(0)
    data = Batch(
        draws.standard_normal((60, 5)).astype(np.float32),
        draws.integers(4, size=60).astype(np.int32),
    )
    model = logistic(5, 4)
    params, some = model.init(jax.random.key(0)), partial(take, data)
    return model_problem(model, params, examples=60, take=some)


def of_tree():
    return network_problem(), islice(minibatches(60, 24, 1), 8), make("momentum", 0.1)


def of_rows():
    return problem(), batches(8), lambda rows: Descent(rows.copy())


KINDS = {"tree": of_tree, "rows": of_rows}


def bits(params):
    if isinstance(params, np.ndarray):
        return params.tobytes()
    lies = layout(params)
    flat = np.empty(lies.length, np.float32)
    pack(params, flat)
    return flat.tobytes()


def by_all_ranks(kind, reducer):
    def program(comm):
        how = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "reducer": reducer}
        *_, last = synchronous(*KINDS[kind](), **how)
        return bits(last.params())

    return sim.run(program, WORKERS)[0]


def by_servers(kind, reducer, servers=1, name="bsp"):
    def program(comm):
        ranks = tuple(range(WORKERS, WORKERS + servers))
        rule = consistency(name, Choice(backup=0), WORKERS)
        setup = Setup(Roles(WORKERS, ranks), rule, reducer=reducer)
        how = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "setup": setup}
        *_, last = server(*KINDS[kind](), **how)
        table = last.params()
        return None if table is None else bits(table)

    return sim.run(program, WORKERS + servers)[0]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_median_has_equal_bits_on_all_ranks_and_on_servers(kind, servers):
    reducer = of_all_terms(median)
    expected = by_all_ranks(kind, reducer)
    assert by_servers(kind, reducer, servers) == expected
    assert expected != by_all_ranks(kind, exact(ALLREDUCE["star"]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_in_rank_order_has_the_bits_of_the_exact_reducer_on_servers(kind):
    in_order = of_all_terms(lambda terms_RxD: sum(list(terms_RxD)))
    star = exact(ALLREDUCE["star"])
    assert by_servers(kind, in_order) == by_servers(kind, star)
    assert by_all_ranks(kind, in_order) == by_servers(kind, star)


def test_a_backup_server_divides_the_reducers_sum_by_the_share_of_its_terms():
    """Where no worker is left out the share is 1, but for rounding."""
    reducer = of_all_terms(median)
    found = np.frombuffer(by_servers("tree", reducer, name="backup"), np.float32)
    expected = np.frombuffer(by_all_ranks("tree", reducer), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_servers_refuse_a_reducer_that_needs_all_ranks():
    together = exact(ALLREDUCE["star"])._replace(combine=None)
    with pytest.raises(BadInput, match="expected a reducer with `combine`"):
        by_servers("rows", together)
