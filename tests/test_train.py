import signal
import time
from functools import partial
from types import FunctionType

import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.evaluation.scores import digest, evaluate
from dml.metrics.replicas import Diverged
from dml.runs.writers import Writer
from dml.train import NUMBA, checkpointed, curve, interruptible, train, verified
from dml.types import BadInput, Batch, Model, Step, identity, no_op

# a model of one number whose only metric tells params and batch
MODEL = Model(
    init=lambda key: jnp.zeros(()),
    loss=lambda params, batch: params,
    metrics=lambda params, batch: {"score": params * 10 + batch.inputs.sum()},
)
MEASURE = partial(evaluate, MODEL, Batch(np.float32([2, 3]), np.zeros(2)))


def steps(*losses, **fields):
    for number, loss in enumerate(losses, 1):
        seconds = {"gradient": 0.5, "wire": 0.25 * number}
        params = partial(jnp.float32, number)
        step = Step(number, loss, params, 10, seconds, words_sent=7)
        yield step._replace(**fields)


def run(steps, evaluate_every=2, rows=None, **options):
    rows = [] if rows is None else rows
    writer = Writer(rows.append, rows.append)
    return rows, train(steps, MEASURE, writer, evaluate_every, **options)


def test_every_step_is_a_row_and_the_summary_adds_up():
    rows, summary = run(steps(3.0, 2.0, 1.0))
    seconds = {"seconds": 0.75, "gradient_seconds": 0.5, "wire_seconds": 0.25}
    counts = {"step": 1, "loss": 3.0, "examples": 10, "words_sent": 7}
    assert rows[0] == counts | seconds
    assert [row.get("score") for row in rows] == [None, 25, None]
    seconds = {"seconds": 3.0, "gradient_seconds": 1.5, "wire_seconds": 1.5}
    counts = {"loss": 1.0, "score": 35, "steps": 3, "examples": 30, "words_sent": 21}
    assert summary == counts | seconds | {"sha256": digest(np.float32(3))}
    found = curve(steps(3.0, 2.0, 1.0), MEASURE, 2)
    assert found == (rows, summary)
    assert found.losses == [3.0, 2.0, 1.0]


def test_steps_with_epochs_are_counted_and_evaluated_by_them():
    epochs = (
        one._replace(number=100 * one.number, epoch=one.number)
        for one in steps(3.0, 2.0, 1.0)
    )
    rows, summary = run(epochs)
    places = [(row["step"], row["epoch"], "score" in row) for row in rows]
    assert places == [(100, 1, False), (200, 2, True), (300, 3, False)]
    assert (summary["steps"], summary["epochs"]) == (300, 3)


def test_measures_are_in_the_rows_and_scores_where_params_are_collected():
    found = steps(3.0, 1.0, params=no_op)
    found = (one._replace(measures={"norm": one.loss / 2}) for one in found)
    rows, summary = run(found)
    assert [row["norm"] for row in rows] == [1.5, 0.5]
    assert summary["norm"] == 0.5 and "score" not in summary


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_and_names_the_step(bad):
    later, rows = steps(1.0, bad, 1.0), []
    with pytest.raises(FloatingPointError, match=f"got {bad} at step 2; pass a lower"):
        run(later, rows=rows)
    assert [step.number for step in later] == [3]
    assert [row["step"] for row in rows] == [1]
    assert run(steps(1.0, bad, 1.0), finite=False)[1]["steps"] == 3


def test_an_overflow_of_a_strategy_raises_the_error_of_its_loss_alone():
    def overflows():
        with_inf = np.float32([3e38]) * np.float32([10])
        yield Step(1, float((with_inf - with_inf)[0]), no_op, 1, {}, 0)

    with pytest.raises(FloatingPointError):  # and no RuntimeWarning, an error here
        run(overflows())


def test_no_step_at_all_is_bad_input():
    with pytest.raises(BadInput, match="expected at least one step, got none"):
        run(steps())


def test_digests_differ_when_one_bit_does():
    params = {"a": np.float32([1, 2]), "b": np.float32(0)}
    assert digest(params) == digest({k: jnp.asarray(v) for k, v in params.items()})
    assert digest(params) != digest(params | {"b": np.float32(-0.0)})


# checked replicas: params of two leaves, one of which differs on rank 1 from a step on


@pytest.mark.parametrize(
    "every, wrong_from, numbers, wrong",
    [
        (1, 3, (1, 2, 3, 4), 3),
        (2, 3, (1, 2, 3, 4), 4),
        (2, 1, (1, 2, 3, 4), 2),
        (10, 2, (3, 7, 11, 15), 11),  # Steps of many updates
        (2, 9, (1, 2, 3, 4), None),
        (0, 1, (1, 2, 3, 4), None),
        (5, 1, (1, 2, 3, 4), None),
    ],
)
def test_replicas_that_differ_stop_all_ranks(every, wrong_from, numbers, wrong):
    def program(comm):
        passed = []

        def differing():
            for number in numbers:
                last = [number, comm.rank == 1 and number >= wrong_from]
                params = partial(identity, {"a": np.ones(2), "b": np.float32(last)})
                yield Step(number, 1.0, params, 1, {}, 0, replicas=True)

        try:
            for step in verified(differing(), comm, every):
                passed.append(step.number)
        except Diverged as error:
            return passed, str(error)
        return passed, ""

    message = (
        f"expected equal replicas on 3 ranks at step {wrong}, got different bits in "
        "params['b']; resume"
    )
    for passed, error in sim.run(program, 3):
        assert passed == [n for n in numbers if wrong is None or n < wrong]
        assert error.startswith(message) if wrong else not error


def test_params_without_replicas_are_not_compared():
    step = Step(1, 1.0, lambda: pytest.fail("was called"), 1, {}, 0)
    found = sim.run(lambda comm: list(verified([step], comm, 1)), 2)
    assert found == [[step]] * 2


NAN = float("nan")


@pytest.mark.parametrize(
    "losses, every, asked, passed, saved",
    [
        ((3.0, 2.0, 1.0), 3600, None, [1, 2, 3], [3]),
        ((3.0, 2.0, 1.0), 1e-9, None, [1, 2, 3], [1, 2, 3, 3]),
        ((3.0, 2.0, 1.0), 0, None, [1, 2, 3], []),
        ((3.0, 2.0, 1.0), 0, 2, [1, 2], [2]),
        ((3.0, 2.0, 1.0), 3600, 2, [1, 2], [2]),
        ((1.0, NAN, 1.0), 0, 2, [1, 2], []),
        ((), 1, None, [], []),
    ],
)
def test_steps_are_saved_when_due_at_the_end_and_before_a_stop(
    losses, every, asked, passed, saved
):
    """One rank of three is asked to stop: all do."""

    def program(comm, rank):
        on, kept, current = [], [], [0]

        def counted():
            for step in steps(*losses):
                current[0] = step.number
                yield step

        save = lambda step: kept.append(step.number)  # noqa: E731
        stop = lambda: current[0] == asked and comm.rank == rank  # noqa: E731
        for step in checkpointed(counted(), comm, save, every, stop):
            on.append(step.number)
        return on, kept

    for rank in range(3):
        assert sim.run(partial(program, rank=rank), 3) == [(passed, saved)] * 3


both = pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))


@both
def test_the_first_signal_stops_and_the_second_one_ends(number):
    def second(*_):
        raise InterruptedError("the handler of before")

    before = signal.signal(number, second)
    try:
        with interruptible() as asked:
            assert not asked()
            signal.raise_signal(number)
            assert asked() and asked()
            with pytest.raises(InterruptedError):
                signal.raise_signal(number)
        assert signal.getsignal(number) is second
    finally:
        signal.signal(number, before)


@both
def test_a_signal_before_there_is_anything_to_save_ends_at_once(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@both
def test_a_signal_inside_numba_ends_once_numba_has_returned(number):
    def raises(number, returned):
        signal.raise_signal(number)
        returned.append(1)

    names, returned = {"__name__": NUMBA, "signal": signal}, []
    of_numba = FunctionType(raises.__code__, names)
    before = signal.getsignal(signal.SIGALRM)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            of_numba(number, returned)
            time.sleep(600)
            pytest.fail("no KeyboardInterrupt")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert returned == [1]
