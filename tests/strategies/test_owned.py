"""Updates divided among ranks by leaves."""

from functools import cache
from itertools import islice

import jax
import numpy as np
import pytest

from dml.data.minibatches import take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.sim.run import run
from dml.strategies.owned import owned
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, Model
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.owners import owners, words
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free
from dml.wire.reducers.names import reducer as reducer_named
from tests.strategies import small

CLIP, STEPS, SHARDS = 0.5, 3, 5


@cache
def tied():
    """Return a network whose ends share a matrix, with two hidden layers."""
    return problem(small.MODEL, small.data())


@cache
def features():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((12, 5)).astype(np.float32)
    return problem(mlp((5,), 3, (4,)), Batch(inputs, np.arange(12) % 3))


@cache
def normalised():
    """Return a linear model whose running statistics are the mean of the inputs."""

    def loss(params, batch):
        inputs, mean = batch.inputs, params["statistics"]
        distance = jax.lax.stop_gradient(inputs.mean(0)) - mean
        predicted = inputs @ params["weights"]
        error = jax.numpy.mean((predicted - batch.targets) ** 2)
        return error + jax.numpy.sum(distance**2) / 2

    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((12, 5)).astype(np.float32) + 9
    params = {"statistics": np.zeros(5, np.float32), "weights": np.ones(5, np.float32)}
    model = Model(lambda key: params, loss, lambda params, batch: {})
    return problem(model, Batch(inputs, np.arange(12, dtype=np.float32)))


def problem(model, data):
    params = model.init(jax.random.key(1))
    return model_problem(
        model, params, examples=12, take=lambda index: take(data, index)
    )


@cache
def optimizer(name, clip):
    return make(name, 0.01, clip=clip, decay=0.1, outputs=("head", "embed"))


def train(make_problem, name, ranks, strategy=owned, steps=STEPS, reducer=None, **own):
    """Return the parameters, the state and the words of each rank."""
    task = make_problem()
    update = optimizer(name, np.inf if strategy is owned else CLIP)
    if strategy is owned:
        own["clip"] = CLIP
    rng = np.random.default_rng(2)
    batches = [rng.integers(0, 12, 10) for _ in range(STEPS)][-steps:]
    chosen = reducer or order_free(ALLREDUCE["tree"])
    own["shards"] = 0 if reducer else SHARDS

    def program(comm):
        taken = strategy(
            task,
            iter(batches),
            update,
            comm=Metered(comm),
            timer=Timer(comm.Wtime),
            reducer=chosen,
            **own,
        )
        sent = 0
        for last in islice(taken, steps):
            sent += last.words_sent
        state = jax.device_get(last.state())
        return last.params(), state, sent, last.measures

    return run(program, ranks)


def assert_equal(trees, others):
    leaves, others = jax.tree.leaves(trees), jax.tree.leaves(others)
    assert len(leaves) == len(others)
    for leaf, other in zip(leaves, others, strict=True):
        assert np.array_equal(leaf, other)


@pytest.mark.parametrize(
    ("task", "name", "sizes"),
    [(tied, "muon", [2]), (features, "adamw", [1, 3])],
)
def test_owned_updates_equal_those_of_one_process_bit_for_bit(task, name, sizes):
    expected = train(task, name, 1, synchronous)[0][:2]
    for ranks in sizes:
        results = train(task, name, ranks)
        for params, *_ in results:
            assert_equal(params, expected[0])
        assert_equal(results[0][1], expected[1])


def test_running_statistics_are_not_clipped():
    expected = train(normalised, "momentum", 1, synchronous)[0][0]
    assert_equal(train(normalised, "momentum", 2)[0][0], expected)


def test_exact_sums_have_the_bits_of_the_star_and_the_predicted_words():
    reducer = exact(ALLREDUCE["star"])
    expected = train(features, "adamw", 3, synchronous, reducer=reducer)[0][0]
    results = train(features, "adamw", 3, reducer=reducer)
    assert_equal(results[0][0], expected)
    leaves = [leaf.shape for leaf in jax.tree.leaves(features().params)]
    plan = owners(leaves, 3, scalars=1)
    counts = [len(own) for own in plan.leaves]
    for rank, (_, _, sent, _) in enumerate(results):
        squares = len(leaves) - counts[(rank + 1) % 3]  # of the clip
        assert sent == STEPS * (words(plan)[rank] + squares)


def test_more_ranks_than_leaves_train():
    ranks = len(jax.tree.leaves(features().params)) + 2
    results = train(features, "adamw", ranks, reducer=exact(ALLREDUCE["star"]))
    assert_equal(results[0][0], results[-1][0])
    assert results[-1][3]["state_bytes"] == 4  # the number of updates


@cache
def two_types():
    """Return a linear model with weights in half precision and a bias in float32."""

    def loss(params, batch):
        predicted = batch.inputs @ params["weights"] + params["bias"]
        return jax.numpy.mean((predicted - batch.targets) ** 2)

    inputs = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
    params = {"bias": np.float32(0), "weights": np.ones(5, jax.numpy.bfloat16)}
    model = Model(lambda key: params, loss, lambda params, batch: {})
    return problem(model, Batch(inputs, np.arange(12, dtype=np.float32)))


def test_clipped_gradients_keep_the_types_of_their_leaves():
    expected = train(two_types, "adamw", 1, synchronous)[0][:2]
    for params, state, *_ in train(two_types, "adamw", 2):
        assert_equal(params, expected[0])
        assert_equal(state, expected[1])
        types = [leaf.dtype for leaf in jax.tree.leaves((params, state))]
        assert types == [leaf.dtype for leaf in jax.tree.leaves(expected)]


def test_a_rank_stores_the_state_of_its_leaves():
    alone, divided = train(features, "adamw", 1), train(features, "adamw", 4)
    total = sum(measures["state_bytes"] for *_, measures in divided)
    counts = 4 * 3  # the number of updates, on three more ranks
    assert total == alone[0][3]["state_bytes"] + counts


def test_training_resumes_on_another_number_of_ranks():
    full = train(features, "adamw", 1)
    task = features()
    params, state, *_ = train_first(3)

    def resumed():
        return task._replace(params=params)

    results = train(resumed, "adamw", 2, steps=1, state=state)
    assert_equal(results[0][0], full[0][0])
    assert_equal(results[0][1], full[0][1])


def train_first(ranks):
    """Return params and state before the last update."""
    task, update = features(), optimizer("adamw", np.inf)
    rng = np.random.default_rng(2)
    batches = [rng.integers(0, 12, 10) for _ in range(STEPS)][:-1]

    def program(comm):
        taken = owned(
            task,
            iter(batches),
            update,
            comm=Metered(comm),
            timer=Timer(comm.Wtime),
            reducer=order_free(ALLREDUCE["tree"]),
            clip=CLIP,
            shards=SHARDS,
        )
        *_, last = taken
        return jax.device_get(last.params()), last.state()

    return run(program, ranks)[0]


def test_a_reducer_that_needs_the_full_buffer_is_refused():
    reducer = reducer_named("median:0", ALLREDUCE["star"])
    with pytest.raises(BadInput, match="pass --reduce=exact or --reduce=order_free"):
        train(features, "adamw", 2, reducer=reducer)
