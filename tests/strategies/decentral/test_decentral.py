"""Decentralised strategies: equivalences, conserved sums, closed forms, resumption."""

import inspect
from itertools import repeat

import jax
import numpy as np
import optax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies import DECENTRALISED, strategy
from dml.strategies.decentral.replicas import train_replicas
from dml.types import BadInput, Problem
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix
from dml.wire.reducers.exact import exact
from dml.wire.reducers.names import reducer

RATE, SIZE, STEPS, DIM = 0.1, 5, 12, 6
# rank r's examples pull towards TARGETS[r]: data that differ as much as possible
TARGETS = np.random.default_rng(1).standard_normal((SIZE, DIM)).astype(np.float32)
SCALES = np.linspace(0.5, 2, SIZE).astype(np.float32)
ASYNCHRONOUS = ("ad_psgd", "async_diloco")  # in test_asynchronous.py
MINIMUM = (SCALES[:, None] * TARGETS).sum(0) / SCALES.sum()


def quadratics():
    """Return f = mean over examples i of a_i/2 |x - c_i|²; example r is of rank r."""

    def gradient(params, batch):
        error = params["x"] - TARGETS[batch]
        loss = (SCALES[batch] / 2 * (error**2).sum(1)).mean()
        return loss, {"x": (SCALES[batch][:, None] * error).mean(0)}

    start = {"x": np.zeros(DIM, np.float32)}
    return Problem(start, SIZE, gradient, lambda params: {})


def local_steps(x):
    return -RATE * SCALES[:, None] * (x - TARGETS)


def arguments(name, own):
    made = dict(own)
    if name in ("synchronous", "local", "diloco"):
        made.setdefault("reducer", exact(ALLREDUCE["ring"]))
    if name == "easgd":
        made["allreduce"] = ALLREDUCE["ring"]
    return made


def train(name, steps=STEPS, size=SIZE, update=None, **own):
    """Return what each rank has after each Step.

    Its vector, the mean of all, the Step, the leaves of its memory, the optimizer's
    state.
    """
    problem, update = quadratics(), update or optax.sgd(RATE)

    def program(comm):
        comm = Metered(comm)
        batches = repeat(np.arange(SIZE), steps)
        found = []
        for step in strategy(name, problem)(
            problem,
            batches,
            update,
            comm=comm,
            timer=Timer(comm.Wtime),
            **arguments(name, own),
        ):
            mean = np.array(step.params()["x"])
            memory = [np.copy(leaf) for leaf in jax.tree.leaves(step.memory())]
            vector = memory[1] if name in DECENTRALISED else mean
            found.append((vector, mean, step, memory, jax.device_get(step.state())))
        return found

    return sim.run(program, size)


def vectors(name, **own):
    """Return rank x step x dimension: the replicas after every Step."""
    return np.array([[each[0] for each in rank] for rank in train(name, **own)])


def means(name, **own):
    return np.array([each[1] for each in train(name, **own)[0]])


@pytest.mark.parametrize(
    "name, own",
    [
        ("gossip", {"topology": "complete"}),
        ("push_sum", {"topology": "complete"}),
        ("moshpit", {"topology": "complete"}),
        ("diloco", {"outer_every": 1, "outer_lr": 1.0, "outer_momentum": 0.0}),
    ],
)
def test_a_mean_of_all_ranks_after_each_update_is_synchronous_training(name, own):
    np.testing.assert_allclose(
        means(name, **own), means("synchronous"), rtol=1e-5, atol=1e-6
    )


def test_diloco_with_outer_sgd_is_local_sgd():
    outer = {"outer_every": 4, "outer_lr": 1.0, "outer_momentum": 0.0}
    ours, theirs = train("diloco", **outer)[0], train("local", every=4)[0]
    for (_, mean, step, *_), (_, other, local, *_) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mean, other, rtol=1e-5, atol=1e-6)
        assert step.number == local.number


def test_diloco_takes_nesterov_steps_by_the_mean_change():
    found = means("diloco", outer_every=4, outer_lr=0.7, outer_momentum=0.9)
    theta, u = np.zeros(DIM), np.zeros(DIM)
    shrink = (1 - RATE * SCALES) ** 4
    for after in found:
        change = theta - (TARGETS + shrink[:, None] * (theta - TARGETS)).mean(0)
        u = 0.9 * u + change
        theta = theta - 0.7 * (change + 0.9 * u)
        np.testing.assert_allclose(after, theta, rtol=1e-4, atol=1e-5)


def equal_after(replicas, part):
    """Return the numbers of updates after which all ranks have equal values."""
    spread = np.ptp(replicas[:, :, part], axis=0).max(axis=1)
    return (np.flatnonzero(spread < 1e-6) + 1).tolist()


def test_streaming_reduces_fragments_in_turn_and_late_ones_are_mixed():
    own = {"outer_every": 4, "outer_lr": 1.0, "outer_momentum": 0.0, "fragments": 2}
    first, second = slice(0, 3), slice(3, 6)
    replicas = vectors("diloco", **own)
    assert equal_after(replicas, first) == [2, 6, 10]
    assert equal_after(replicas, second) == [4, 8, 12]
    late = vectors("diloco", **own, delay=1)
    assert equal_after(late, first) == [3, 7, 11]
    np.testing.assert_allclose(late[0, 2, first], replicas[0, 1, first], rtol=1e-6)
    kept = vectors("diloco", **own, delay=1, keep=0.25)
    assert not equal_after(kept, first)


def test_diloco_trains_with_coded_changes_and_their_feedback():
    exactly = means("diloco", steps=48, outer_every=4)[-1]
    coded = reducer("int8+feedback", ALLREDUCE["ring"])
    coarse = means("diloco", steps=48, outer_every=4, reducer=coded)[-1]
    np.testing.assert_allclose(coarse, exactly, atol=0.02)


def by_gossip(w, x, s, t, memory):
    return w @ (x + s)


def by_d2(w, x, s, t, memory):
    new = w @ (2 * x - memory["x"] + s - memory["s"]) if t else w @ (x + s)
    memory.update(x=x, s=s)
    return new


def by_tracking(w, x, s, t, memory):
    y = memory.get("wy", 0) + s - memory.get("s", 0)
    memory.update(wy=w @ y, s=s)
    return w @ (x + y)


@pytest.mark.parametrize(
    "name, rule",
    [("gossip", by_gossip), ("d2", by_d2), ("gradient_tracking", by_tracking)],
)
def test_replicas_are_those_of_dense_matrices(name, rule):
    weights, x, memory = matrix(topology("ring", SIZE)), np.zeros((SIZE, DIM)), {}
    found = vectors(name, topology="ring")
    for t in range(STEPS):
        x = rule(weights, x, local_steps(x), t, memory)
        np.testing.assert_allclose(found[:, t], x, rtol=1e-4, atol=1e-5)


def test_corrected_replicas_reach_the_minimum_and_those_of_gossip_do_not():
    def off(name):
        return np.abs(vectors(name, topology="ring", steps=150)[:, -1] - MINIMUM).max()

    assert off("d2") < 1e-3 and off("gradient_tracking") < 1e-3
    assert off("gossip") > 0.02


def test_relay_on_a_star_follows_its_formula():
    """A leaf has the models of other leaves a round late."""
    x, late = np.zeros((SIZE, DIM)), np.zeros((SIZE, DIM))
    found = vectors("relay", topology="star")
    for t in range(STEPS):
        after = x + local_steps(x)
        others = late.sum(0) - late  # zero before the first message
        x = (after + after[0] + others) / SIZE
        x[0] = after.mean(0)
        late = np.vstack([np.zeros((1, DIM)), after[1:]])
        np.testing.assert_allclose(found[:, t], x, rtol=1e-4, atol=1e-5)


def test_easgd_conserves_the_sum_of_replicas_and_centre():
    replicas, centres = vectors("easgd"), means("easgd")
    x, moved = np.zeros((SIZE, DIM)), np.zeros(DIM)
    for t in range(STEPS):
        moved += local_steps(x).sum(0)
        x = replicas[:, t]
        np.testing.assert_allclose(x.sum(0) + centres[t], moved, rtol=1e-4, atol=1e-5)
    assert np.ptp(x, axis=0).max() > 0.01


def test_push_sum_moves_the_mean_by_the_mean_step():
    found, replicas = means("push_sum"), vectors("push_sum")
    mean = np.zeros(DIM)
    for t in range(STEPS):
        before = replicas[:, t - 1] if t else np.zeros((SIZE, DIM))
        mean = mean + local_steps(before).mean(0)
        np.testing.assert_allclose(found[t], mean, rtol=1e-4, atol=1e-5)


def test_moshpit_averages_the_lines_of_a_grid():
    replicas = vectors("moshpit", topology="grid:5x1", steps=4)
    assert equal_after(replicas, slice(None)) == [1, 3]  # lines of all ranks, of one


def test_consensus_is_the_mean_squared_distance_of_replicas():
    ranks = train("gossip", topology="ring", consensus=True)
    replicas = np.array([[each[0] for each in rank] for rank in ranks])
    distances = ((replicas - replicas.mean(0)) ** 2).sum(2).mean(0)
    measured = [each[2].measures["consensus"] for each in ranks[0]]
    np.testing.assert_allclose(measured, distances, rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in DECENTRALISED if n not in ASYNCHRONOUS])
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_run(name):
    own = {"update": optax.sgd(RATE, momentum=0.5)}
    own |= {"topology": "grid:5x1"} if name == "moshpit" else {}
    own |= {"outer_every": 2} if name == "diloco" else {}
    complete = train(name, **own)
    memory, state = [rank[2][3] for rank in complete], complete[0][2][4]
    left = STEPS - complete[0][2][2].number
    rest = train(name, steps=left, memory=memory, state=state, **own)
    for before, after in zip(complete, rest, strict=True):
        for each, other in zip(before[3:], after, strict=True):
            assert np.array_equal(each[0], other[0])
            assert np.array_equal(each[1], other[1])
    if name != "moshpit":  # whose grid has 5 ranks
        with pytest.raises(BadInput, match="start as many"):
            train(name, steps=2, size=SIZE - 1, memory=memory, **own)


def test_a_strategy_has_the_options_of_its_protocol_and_of_the_loop():
    parameters = inspect.signature(strategy("easgd", quadratics())).parameters
    common = inspect.signature(train_replicas).parameters
    assert {*parameters} == {*common, "allreduce", "beta"} - {"protocol"}
    assert parameters["beta"].default == 0.9
    with pytest.raises(TypeError, match="topology"):
        train("easgd", topology="ring")


@pytest.mark.parametrize(
    "name, own, message",
    [
        ("gossip", {"topology": "tangle"}, "expected a topology of ring"),
        ("relay", {"topology": "ring"}, "tree, chain, star for relay"),
        ("d2", {"topology": "exponential"}, "symmetric weights for d2"),
        ("moshpit", {"topology": "ring"}, "a topology of groups for moshpit"),
        ("diloco", {"outer_every": 4, "fragments": 3}, "divides the 4 updates"),
        ("diloco", {"outer_every": 4, "delay": 4}, "a delay of 0 to 3"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, own, message):
    with pytest.raises(BadInput, match=message):
        train(name, **own)
