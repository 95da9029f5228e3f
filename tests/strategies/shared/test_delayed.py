"""Training with late reads: serial where there is no delay, noisier the later."""

from itertools import islice

import numpy as np
import pytest

from dml import sim
from dml.data.sparse.svmlight import generate
from dml.metrics.timer import Timer
from dml.models.sparse import svm
from dml.models.sparse.problem import problem
from dml.sim.delays import delay_distribution
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import Descent, orders
from tests.strategies.shared import quadratic
from tests.strategies.shared.small import How, visits

EXAMPLES, FEATURES, BATCH = 203, 40, 8


def settings(rate=0.2, seed=0, momentum=0.0):
    return How(lambda epoch: rate / epoch, BATCH, seed, momentum)


def documents(dtype=np.float32):
    return svm.documents(generate(EXAMPLES, FEATURES, 5, 3), 1e-3, dtype)


def train(
    text,
    epochs=3,
    model=svm,
    data=None,
    table=None,
    rate=0.2,
    seed=0,
    momentum=0.0,
    **given,
):
    data = documents() if data is None else data
    table = np.zeros(FEATURES, data.values.dtype) if table is None else table

    def program(comm):
        steps = []
        for step in delayed(
            problem(model, data, table),
            islice(orders(EXAMPLES, BATCH, seed), epochs),
            Descent(lambda epoch: rate / epoch, momentum),
            comm=comm,
            timer=Timer(),
            distribution=delay_distribution(text),
            seed=seed,
            **given,
        ):
            steps.append((step, step.params()))
        return steps

    return sim.run(program, 1)[0]


def serial(data, table, momentum, epochs):
    """The plain loop: blocks in turn, the model's own gradient, no history."""
    kind = data.values.dtype.type
    velocity, losses = np.zeros_like(table), []
    for epoch in range(1, epochs + 1):
        rate = 0.2 / epoch
        paced, grads = svm.paced(data, rate), np.zeros(5, table.dtype)
        edges = np.concatenate(
            [
                np.arange(EXAMPLES)[b * BATCH : (b + 1) * BATCH]
                for b in visits(settings(), epoch, EXAMPLES).visits
            ]
        )
        losses.append(0.0)
        for t, e in enumerate(edges):
            loss, moves = svm.gradient(table, paced, e, t, grads)
            losses[-1] += loss
            for s, r in enumerate(data.edges.rows[5 * e : 5 * e + 5] if moves else ()):
                if momentum:
                    velocity[r] = kind(momentum) * velocity[r] + grads[s]
                    grads[s] = velocity[r]
                svm.move(table, r, grads, s, kind(rate))
                table[r] += grads[s]
        for rows in (table, velocity):
            svm.settle(rows, paced, EXAMPLES)
    return table, [loss / EXAMPLES for loss in losses]


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_delay_it_is_serial_bit_for_bit(dtype, momentum):
    data, start = documents(dtype), np.zeros(FEATURES, dtype)
    steps = train("constant:0.9", data=data, table=start, momentum=momentum)
    wanted, losses = serial(data, np.zeros(FEATURES, dtype), momentum, epochs=3)
    assert steps[-1][1].dtype == dtype
    np.testing.assert_array_equal(steps[-1][1], wanted)
    assert [step.loss for step, _ in steps] == losses
    assert losses[-1] < losses[0]
    assert not start.any()  # it is the caller's


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_a_seed_repeats_all_delays_and_bits(per_coordinate):
    def run(**given):
        steps = train(
            "shifted_exponential:0,0.1", per_coordinate=per_coordinate, **given
        )
        return steps[-1][1].tobytes(), [step.measures for step, _ in steps]

    assert run(seed=5) == run(seed=5)
    assert run(seed=5)[0] != run(seed=6)[0]
    assert run(seed=5)[0] != run(seed=5, most=2)[0]


def test_delays_are_the_laws_but_for_what_has_not_been():
    (first, _), (second, _), _ = train("constant:30.5")
    assert first.measures["delay_max"] == second.measures["delay_max"] == 30
    assert first.measures["delay_mean"] == 30 - sum(range(31)) / EXAMPLES
    assert second.measures["delay_mean"] == 30  # reaches into the epoch before
    late = train("pareto:5,1.1", most=40)[1][0].measures
    assert late["delay_max"] == 40
    assert 5 < late["delay_mean"] < 40


def test_rows_of_one_update_are_late_together_or_each_by_itself():
    """A mean of whole updates' delays varies as one of 203 draws, not of 1015."""

    def spread(per_coordinate):
        means = [
            train(
                "shifted_exponential:0,0.1", 2, seed=seed, per_coordinate=per_coordinate
            )[1][0].measures["delay_mean"]
            for seed in range(40)
        ]
        return np.std(means)

    assert 1.5 < spread(False) / spread(True) < 3.3  # √5 is 2.2


def test_weights_are_settled_in_the_past_too():
    """A norm that halves the weights in an epoch, and no gradient in the second.

    Whoever reads weights of the first epoch unsettled finds other margins.
    """
    data = documents(np.float64)._replace(mu=np.log(2) / EXAMPLES / 0.2)
    known = svm.paced(data, 0.2)
    one, two = train("constant:150", 2, data=data, most=150)
    tables, t0 = [np.zeros(FEATURES)], 0
    for epoch in (1, 2):
        paced, grads = svm.paced(data, 0.2 / epoch), np.zeros(5)
        order = visits(settings(), epoch, EXAMPLES).visits
        blocks = [np.arange(EXAMPLES)[b * 8 : b * 8 + 8] for b in order]
        for t, e in enumerate(np.concatenate(blocks)):
            old = tables[max(t0 + t - 150, 0)]
            _, moves = svm.gradient(old, paced, e, t, grads)
            new = tables[-1].copy()
            rows = data.edges.rows[5 * e : 5 * e + 5]
            new[rows] -= 0.2 / epoch * grads * moves
            tables.append(new)
        for table in tables:
            svm.settle(table, paced, EXAMPLES)
        t0 += EXAMPLES
        np.testing.assert_allclose((one, two)[epoch - 1][1], tables[-1], atol=1e-12)
    assert known.low[1] < 1


def test_late_reads_undo_large_steps_and_leave_small_ones():
    data = quadratic.pulls(EXAMPLES, 6, 3)
    start = np.zeros((6, 3))

    def error(delay, rate):
        steps = train(f"constant:{delay}", 6, quadratic, data, start, rate)
        return quadratic.objective(steps[-1][1], data)

    small = [error(delay, 0.02) for delay in (0, 16, 64)]
    large = [error(delay, 0.6) for delay in (0, 16, 64)]
    assert max(small) < 1.05 * small[0]
    assert large[0] < 1.5 * small[0]
    assert large[2] > 3 * large[0]
    assert large[0] < large[1] < large[2]
