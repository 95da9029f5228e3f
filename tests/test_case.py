"""A case is measured as a hand-written loop on virtual ranks measures it."""

from functools import cache, partial

import jax
import numpy as np
import pytest

from dml import sim
from dml.case import Case, mean, measure, over_seeds, steps
from dml.evaluation.scores import digest
from dml.metrics.timer import Timer
from dml.problems import find_problem, given, network
from dml.strategies.synchronous import synchronous
from dml.types import BadInput
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact

NETWORK = sim.Uniform(alpha=1e-3, beta=8e-9)
STEPS, BATCH = 3, 12


@cache
def entry(seed=0):
    """Return a network of digits and its minibatches."""
    problem = network("mlp", "digits", 8).problem(seed)
    numbers = np.random.default_rng(seed).integers(0, problem.examples, (STEPS, BATCH))
    return given(problem, list(numbers), make("adam", 1e-2))


def case(ranks=4, seed=0, **own):
    options = {"reducer": exact(ALLREDUCE["ring"]), **own}
    return Case(entry(seed), "synchronous", options, ranks=ranks, network=NETWORK)


def by_hand(comm):
    """Train on a rank as the case does; return what is measured."""
    comm, made = Metered(comm), entry()
    problem = made.make()
    taken = synchronous(
        problem,
        made.batches(problem, BATCH, 0),
        made.update,
        comm=comm,
        timer=Timer(comm.Wtime),
        reducer=exact(ALLREDUCE["ring"]),
    )
    losses, sent = [], [0]
    for step in taken:
        losses.append(step.loss)
        sent.append(comm.bytes_sent)
    seconds, params = comm.Wtime(), step.params()
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(step.state()))
    measures = {} if comm.rank else problem.evaluate(params)
    return losses, np.diff(sent), seconds, state, digest(params), measures


@pytest.mark.parametrize("ranks", (1, 4))
def test_a_case_has_the_bits_bytes_and_seconds_of_a_loop_by_hand(ranks):
    measured, expected = measure(case(ranks)), sim.run(by_hand, ranks, NETWORK)
    for rank, (losses, sent, seconds, state, sha256, measures) in zip(
        measured, expected, strict=True
    ):
        assert [row["loss"] for row in rank.rows] == losses[-len(rank.rows) :]
        assert rank.rows[-1]["step"] == STEPS
        assert rank.bytes == 4 * rank.words == sum(sent)
        assert rank.peak_bytes == max(sent)
        assert (rank.bytes > 0) == (ranks > 1)
        assert rank.seconds == seconds and (seconds > 0) == (ranks > 1)
        assert rank.state_bytes == state > 0
        assert (rank.sha256, rank.evaluation) == (sha256, measures)
    assert [len(rank.rows) for rank in measured] == [STEPS, *[1] * (ranks - 1)]
    assert measured[0].evaluation["sha256"] == measured[0].sha256


def test_the_ranks_of_a_communicator_are_those_of_the_case():
    found = sim.run(partial(measure, case()), 4, NETWORK)
    expected = measure(case())
    assert [rank.sha256 for (rank,) in found] == [rank.sha256 for rank in expected]
    assert [rank.seconds for (rank,) in found] == [rank.seconds for rank in expected]


def test_names_of_problem_and_strategy_make_a_case():
    named = Case("mlp:digits,8", "gossip", ranks=3, steps=2, seed=5)
    problem = find_problem("mlp:digits,8")
    (first, *_), (other, *_) = measure(named), measure(named._replace(problem=problem))
    assert first.sha256 == other.sha256 != measure(named._replace(seed=6))[0].sha256
    assert [row["examples"] for row in first.rows] == [48, 48]
    assert 0 <= first.evaluation["accuracy"] <= 1


def test_options_may_be_a_function_and_the_evaluation_one_of_every_rank():
    function = case(2)._replace(options=lambda: case().options)
    measured = measure(function, evaluate=lambda comm, last: {"rank": comm.rank})
    assert [rank.evaluation["rank"] for rank in measured] == [0, 1]
    assert measured[0].sha256 == measure(case(2))[0].sha256


def test_trainings_with_several_seeds_are_reduced():
    rows = [measure(case(seed=seed))[0].rows[-1] for seed in range(3)]
    losses = [row["loss"] for row in rows]
    assert len(set(losses)) == 3
    found = over_seeds(rows, mean, "loss") | over_seeds(rows, max, "step", by_seed=True)
    assert found == {"loss": sum(losses) / 3, "step_by_seed": [3, 3, 3], "step": 3}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"problem": "nowhere"}, "expected one of .*linear.*'nowhere'"),
        ({"problem": "mlp:nowhere,8"}, "nowhere"),
        ({"problem": "mlp:digits,wide"}, "got 'mlp:digits,wide': WIDTH is 'wide'"),
        (
            {"problem": "cnn:digits,4,4"},
            "got 'cnn:digits,4,4': the number of arguments",
        ),
        ({"problem": "svm", "strategy": "mesh"}, "a problem with model for"),
        ({"strategy": "serial"}, "expected one rank with --strategy=serial, got 4"),
        ({"strategy": "gosip"}, "'gosip'"),
        ({"options": {"every": 0}, "strategy": "local"}, "every"),
        ({"steps": 0}, "expected at least one step, got none"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changes, message):
    with pytest.raises(BadInput, match=message) as error:
        measure(case()._replace(**changes))
    assert "\n" not in str(error.value)


def test_another_number_of_ranks_is_refused():
    with pytest.raises(BadInput, match="expected 4 ranks of the case, got 3"):
        sim.run(partial(measure, case()), 3)
    with pytest.raises(BadInput, match="symmetric weights for d2"):
        own = case()._replace(strategy="d2", options={"topology": "exponential"})
        sim.run(partial(steps, own), 4)
