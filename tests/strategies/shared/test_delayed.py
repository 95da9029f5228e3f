"""Training with delayed reads; for training without delays see test_ways."""

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

EXAMPLES, FEATURES, BATCH, RATE = 203, 40, 8, 0.2
EXPONENTIAL = "shifted_exponential:0,0.1"


def train(distribution, epochs=3, mu=1e-3, seed=0, **own):
    """Return the table after each epoch, and the measures."""
    data = svm.documents(generate(EXAMPLES, FEATURES, 5, 3), mu, np.float64)

    def program(comm):
        steps = delayed(
            problem(svm, data, np.zeros(FEATURES)),
            islice(orders(EXAMPLES, BATCH), epochs),
            Descent(lambda epoch: RATE / epoch),
            comm=comm,
            timer=Timer(),
            distribution=delay_distribution(distribution),
            seed=seed,
            **own,
        )
        return [(step.params(), step.measures) for step in steps]

    return data, *zip(*sim.run(program, 1)[0], strict=True)


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_a_seed_repeats_all_delays_and_bits(per_coordinate):
    def run(**own):
        _, tables, measures = train(EXPONENTIAL, per_coordinate=per_coordinate, **own)
        return tables[-1].tobytes(), measures

    assert run(seed=5) == run(seed=5)
    assert run(seed=5)[0] != run(seed=6)[0]
    assert run(seed=5)[0] != run(seed=5, max_delay=2)[0]


def test_delays_are_the_laws_but_for_what_has_not_been():
    _, _, (first, second) = train("constant:30.5", 2)
    assert first["delay_max"] == second["delay_max"] == 30
    assert first["delay_mean"] == 30 - sum(range(31)) / EXAMPLES
    assert second["delay_mean"] == 30  # reaches into the epoch before
    late = train("pareto:5,1.1", 2, max_delay=40)[2][1]
    assert late["delay_max"] == 40
    assert 5 < late["delay_mean"] < 40


def test_rows_of_one_update_are_late_together_or_each_by_itself():
    """With a delay per update the mean is of 203 draws, not of 1015."""

    def spread(per_coordinate):
        own = {"epochs": 2, "per_coordinate": per_coordinate}
        runs = (train(EXPONENTIAL, seed=seed, **own)[2] for seed in range(40))
        return np.std([measures[1]["delay_mean"] for measures in runs])

    assert 1.5 < spread(False) / spread(True) < 3.3  # √5 is 2.2


def test_weights_are_settled_in_the_past_too():
    """The decay halves the weights in an epoch; reads in the second see old weights.

    Without the decay of the first epoch, these reads give other margins.
    """
    own = {"mu": np.log(2) / EXAMPLES / RATE, "max_delay": 150}
    data, found, _ = train("constant:150", 2, **own)
    tables, t0 = [np.zeros(FEATURES)], 0
    for epoch, order in enumerate(islice(orders(EXAMPLES, BATCH), 2), 1):
        current, grads = svm.with_rate(data, RATE / epoch), np.zeros(5)
        assert current.low[1] < 1
        blocks = [np.arange(EXAMPLES)[b * 8 : b * 8 + 8] for b in order.visits]
        for t, e in enumerate(np.concatenate(blocks)):
            old = tables[max(t0 + t - 150, 0)]
            _, moves = svm.gradient(old, current, e, t, grads)
            tables.append(tables[-1].copy())
            rows = data.edges.rows[5 * e : 5 * e + 5]
            tables[-1][rows] -= RATE / epoch * grads * moves
        for table in tables:
            svm.settle(table, current, EXAMPLES)
        t0 += EXAMPLES
        np.testing.assert_allclose(found[epoch - 1], tables[-1], atol=1e-12)
