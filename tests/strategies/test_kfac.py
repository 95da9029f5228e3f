"""K-FAC on a grid of ranks."""

from functools import cache

import jax
import numpy as np
import pytest

from dml.data.minibatches import draws, take
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.sim.run import run
from dml.strategies.kfac.kfac import kfac
from dml.strategies.kfac.plan import make_plan
from dml.types import BadInput, Batch, Model
from dml.update.curvature import CurvatureRule
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.curvature import nbytes, words
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free
from dml.wire.reducers.names import reducer as reducer_named

EXAMPLES, BATCH, SHARDS = 40, 12, 6
RULE = CurvatureRule(
    damping=0.1, average=0.8, curvature_every=2, inverses_every=4, limit=0.1
)


@cache
def problem():
    model = mlp((6,), 3, (5, 4))
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((EXAMPLES, 6)).astype(np.float32)
    data = Batch(inputs, rng.integers(0, 3, EXAMPLES).astype(np.int32))
    return model_problem(
        model,
        model.init(jax.random.key(1)),
        examples=EXAMPLES,
        take=lambda index: take(data, index),
    )


@cache
def optimizer():
    return make("momentum", 0.1)


def train(ranks, fraction, *, first=0, updates=6, task=None, reducer=None, **own):
    """Return params, state, words by update, and bytes of each rank."""
    own.setdefault("rule", RULE)
    if reducer is None:
        reducer, own["shards"] = order_free(ALLREDUCE["tree"]), SHARDS

    def program(comm):
        steps = kfac(
            task or problem(),
            draws(EXAMPLES, BATCH, 3, updates * BATCH, first * BATCH),
            optimizer(),
            comm=Metered(comm),
            timer=Timer(comm.Wtime),
            reducer=reducer,
            fraction=fraction,
            **own,
        )
        sent = []
        for last in steps:
            sent.append(last.words_sent)
        state = jax.device_get(last.state())
        return jax.device_get(last.params()), state, sent, last.measures

    return run(program, ranks)


def assert_same_bits(tree, other):
    leaves, others = jax.tree.leaves(tree), jax.tree.leaves(other)
    assert len(leaves) == len(others)
    for leaf, another in zip(leaves, others, strict=True):
        assert np.array_equal(leaf, another)


def test_every_fraction_on_every_number_of_ranks_has_equal_bits():
    params, state, *_ = train(1, 1)[0]
    for ranks, fraction in [(3, 1), (4, 0.5), (6, 1 / 6)]:  # 3 layers
        for result in train(ranks, fraction):
            assert_same_bits(result[:2], (params, state))


def test_a_run_resumes_between_computations_of_inverses():
    params, state, *_ = train(1, 1)[0]
    for done, ranks, fraction in [(3, 4, 0.5), (5, 3, 1 / 3)]:
        before, saved, *_ = train(2, 0.5, updates=done)[0]
        task = problem()._replace(params=before)
        for result in train(ranks, fraction, first=done, task=task, state=saved):
            assert_same_bits(result[:2], (params, state))


def test_words_and_bytes_are_as_predicted():
    length = 1 + sum(leaf.size for leaf in jax.tree.leaves(problem().params))
    for ranks, fraction in [(4, 0.25), (4, 0.5), (4, 1)]:
        results = train(ranks, fraction, reducer=exact(ALLREDUCE["star"]))
        plan = make_plan(problem(), np.arange(1), ranks, fraction).grid
        sent = np.sum([each[2] for each in results], axis=0)
        for rank, (*_, measures) in enumerate(results):
            assert measures["curvature_bytes"] == nbytes(plan, rank)
        parts = words(plan)
        every = 2 * (ranks - 1) * length + parts.gradients
        due = every + parts.curvature
        assert sent.tolist() == [due + parts.inverses, every, due, every] + [
            due + parts.inverses,
            every,
        ]


def reference(updates):
    """Return K-FAC's params in float64, of per-example gradients and kron."""
    params = jax.device_get(problem().params)
    loss = problem().model.loss
    names, means, momentum = list(params), {}, {}
    batches = draws(EXAMPLES, BATCH, 3, updates * BATCH)
    for number, index in enumerate(batches):
        grads = [
            gradient(loss, params, problem().take(index[[n]]))[1] for n in range(BATCH)
        ]
        outputs, new, inputs = problem().take(index).inputs, {}, {}
        for name in [*names[1:], names[0]]:  # the head is last
            inputs[name] = np.hstack([outputs, np.ones((BATCH, 1))])
            outputs = np.maximum(
                outputs @ params[name]["kernel"] + params[name]["bias"], 0
            )
        for name in names:
            biases = np.array([np.asarray(one[name]["bias"]) for one in grads], float)
            kernels = np.array(
                [np.asarray(one[name]["kernel"]) for one in grads], float
            )
            pair = inputs[name].T @ inputs[name] / BATCH, biases.T @ biases / BATCH
            old, weight = (means[name], 0.8) if number else (pair, 0)
            means[name] = [
                weight * a + (1 - weight) * b for a, b in zip(old, pair, strict=True)
            ]
            first, second = means[name]
            ratio = np.sqrt(
                np.trace(first) / len(first) * len(second) / np.trace(second)
            )
            root = np.sqrt(RULE.damping)
            curvature = np.kron(
                first + root * ratio * np.eye(len(first)),
                second + root / ratio * np.eye(len(second)),
            )
            mean = np.vstack([kernels.mean(0), biases.mean(0)])
            solved = np.linalg.solve(curvature, mean.reshape(-1)).reshape(mean.shape)
            new[name] = mean, solved
        product = sum(float(np.vdot(*pair)) for pair in new.values())
        scale = min(1, np.sqrt(RULE.limit / product))
        for name, (_, solved) in new.items():
            momentum[name] = 0.9 * momentum.get(name, 0) + scale * solved
            params[name] = {
                "kernel": params[name]["kernel"] - 0.1 * momentum[name][:-1],
                "bias": params[name]["bias"] - 0.1 * momentum[name][-1],
            }
    return params


@pytest.mark.parametrize("accumulate", [1, 2])
def test_updates_are_those_of_the_definition_in_float64(accumulate):
    every = RULE._replace(curvature_every=1, inverses_every=1)
    own = {"rule": every, "accumulate": accumulate, "reducer": exact(ALLREDUCE["star"])}
    (params, *_), *_ = train(2, 0.5, updates=4, **own)
    expected = reference(4)
    for leaf, other in zip(*map(jax.tree.leaves, (params, expected)), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=2e-3, atol=2e-4)


def test_ranks_without_examples_or_layers_take_part():
    reducer = exact(ALLREDUCE["star"])
    results = train(BATCH + 4, 1 / 4, reducer=reducer, updates=2)
    for result in results[1:]:
        assert_same_bits(result[:2], results[0][:2])
    triangles = make_plan(problem(), np.arange(1), 1, 1).grid.length
    nbytes = [result[3]["curvature_bytes"] for result in results]
    assert nbytes.count(4 * triangles) > 0  # the buffer of the sum, no layers


def test_gradients_and_state_keep_the_dtype_of_the_parameters():
    half = jax.tree.map(lambda leaf: leaf.astype(np.float16), problem().params)
    task = problem()._replace(params=half)
    own = {"reducer": exact(ALLREDUCE["star"]), "updates": 1}
    params, state, *_ = train(1, 1, task=task, **own)[0]
    leaves = jax.tree.leaves(params) + jax.tree.leaves(state["optimizer"])
    assert {leaf.dtype for leaf in leaves if leaf.ndim} == {np.dtype(np.float16)}


def table_problem():
    """Return a model without products of matrices."""

    def loss(params, batch):
        return jax.numpy.mean((batch.inputs @ params["weights"] - batch.targets) ** 2)

    params = {"weights": np.ones(6, np.float32)}
    model = Model(lambda key: params, loss, lambda params, batch: {})
    return problem()._replace(params=params, model=model)


def zeros():
    """Return the problem with inputs of zeros, whose curvature is singular."""

    def take(index):
        batch = problem().take(index)
        return batch._replace(inputs=0 * batch.inputs)

    return problem()._replace(take=take)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"fraction": 0.75},
            "of 1/4, 2/4, 1 of 4 ranks, got 0.75; pass --fraction=0.5",
        ),
        ({"reducer": reducer_named("sign", None)}, "sums parts of a buffer"),
        ({"task": table_problem()}, "a model with dense layers, whose"),
        (
            {"rule": RULE._replace(inverses_every=3)},
            "got 3; pass --inverses_every=2",
        ),
        ({"rule": RULE._replace(average=1)}, "below 1, got 1; pass --average=0.95"),
        (
            {"task": zeros(), "rule": CurvatureRule(damping=0)},
            "of 0; pass a larger --damping",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(BadInput, match=message):
        train(4, **{"fraction": 1} | options)
