"""Trees as tables of one column on servers, and reducers other than sums."""

from functools import cache, partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.images.datasets import images
from dml.data.images.digits import digits
from dml.data.minibatches import minibatches, take
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.models.model_problem import model_problem
from dml.models.networks.cnn import cnn
from dml.models.networks.logistic import logistic
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.tables import flatten, unpack_table
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, Reducer, Rows, identity
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.reducers.exact import exact
from dml.wire.reducers.names import reducer
from dml.wire.reducers.rows import indices
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, batches, problem

WORKERS, STAR = 3, exact(ALLREDUCE["star"])


def estimate(terms_RxD):
    """Return the median in place of the mean, times the number of terms."""
    return np.float32(len(terms_RxD)) * np.median(terms_RxD, axis=0)


def reduce(comm, buffer, lies):
    each = gather_lengths(comm, len(buffer))
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


MEDIAN = Reducer(identity, reduce, combine)


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


def by_all_ranks(kind, made):
    return trained(kind, synchronous, WORKERS, reducer=made)


def by_servers(kind, made, servers=1, name="bsp"):
    who = roles(WORKERS + servers, servers)
    rule = consistency(name, Choice(backup=0), WORKERS)
    setup = Setup(who, rule, reducer=made)
    return trained(kind, server, WORKERS + servers, setup=setup)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_median_has_equal_bits_on_all_ranks_and_on_servers(kind, servers):
    expected = by_all_ranks(kind, MEDIAN)
    assert by_servers(kind, MEDIAN, servers).tobytes() == expected.tobytes()
    assert expected.tobytes() != by_all_ranks(kind, STAR).tobytes()


@pytest.mark.parametrize("name", ["trimmed_mean:1", "krum:0", "median:1+nnm"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_robust_rule_of_a_server_is_that_of_all_ranks(kind, name):
    """A rule by coordinate on any server; others need all rows on one server."""
    rule = reducer(name, ALLREDUCE["star"])
    expected = by_all_ranks(kind, rule)
    for servers in (1, 2) if name.startswith("trimmed") else (1,):
        assert by_servers(kind, rule, servers).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["async", "ssp", "softsync", "backup"])
def test_servers_refuse_updates_with_too_few_gradients_for_a_rule(name):
    most = reducer("krum:0", ALLREDUCE["star"])._replace(least_terms=WORKERS + 1)
    with pytest.raises(BadInput, match=f"at least {WORKERS + 1} gradients"):
        by_servers("rows", most, name=name)


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


CASES = {
    "logistic": (lambda: logistic(64, 10, l2=0.01), digits),
    "cnn": (lambda: cnn((8, 8, 1), 10, width=3), lambda: images("digits")),
}


@cache
def example(name):
    """Return a problem with random params, and its data."""
    make, read = CASES[name]
    model, (training, _) = make(), read()
    lies = layout(model.init(jax.random.key(0)))
    noise = np.random.default_rng(0).normal(0, 0.1, lies.length).astype("f")
    options = {"examples": 1437, "take": partial(take, training)}
    return model_problem(model, unpack_table(noise[:, None], lies), **options), training


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by", ["program", "leaves"])
def test_a_flat_problem_has_the_bits_of_the_tree(name, by):
    task, training = example(name)
    loss_of, lies = task.model.loss, layout(task.params)
    task = task._replace(evaluate=lambda tree: tree)
    found = flatten(task._replace(model=None) if by == "leaves" else task)
    again = found.evaluate(found.params)
    assert jax.tree.structure(again) == jax.tree.structure(task.params)
    for one, other in zip(*map(jax.tree.leaves, (task.params, again)), strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert found.touched(found.take(np.arange(3))) == slice(0, lies.length)
    assert found.frequency is None and found.examples == 1437
    table = found.params * np.float32(0.5)
    for numbers in (np.arange(40, 72), np.arange(9, 41)):
        loss, (rows, grads) = found.gradient(table, found.take(numbers))
        expected, tree = gradient(
            loss_of, unpack_table(table, lies), take(training, numbers)
        )
        packed = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        assert loss == float(expected)
        assert grads.tobytes() == packed.tobytes()
        assert grads.any() and grads.shape == table[rows].shape == table.shape
        assert grads.flags.writeable and grads.flags.c_contiguous


def test_parts_of_as_many_examples_compile_once():
    task, _ = example("logistic")
    traces = []

    def loss(params, batch):
        traces.append(1)  # only while it is traced
        return task.model.loss(params, batch)

    traced = task._replace(model=task.model._replace(loss=loss))
    for numbers in (np.arange(9), np.arange(9, 18), np.arange(8), np.arange(20, 28)):
        found = flatten(traced)  # as each training does
        found.gradient(found.params, found.take(numbers))
    assert len(traces) == 2


def test_params_of_another_dtype_are_bad_input():
    task, _ = example("logistic")
    params = task.params | {"bias": task.params["bias"].astype(np.float16)}
    with pytest.raises(BadInput, match="float32, got float16, float32; cast"):
        flatten(task._replace(params=params))
