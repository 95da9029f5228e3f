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
from dml.types import BadInput, Batch, Model, Step, itself, nothing

# a model of one number whose only metric tells params and batch
MODEL = Model(
    init=lambda key: jnp.zeros(()),
    loss=lambda params, batch: params,
    metrics=lambda params, batch: {"score": params * 10 + batch.inputs.sum()},
)
QUIET = Writer(lambda row: None, lambda row: None)
HELD_OUT = Batch(np.float32([2, 3]), np.zeros(2))


def steps(*losses):
    for number, loss in enumerate(losses, 1):
        seconds = {"gradient": 0.5, "wire": 0.25 * number}
        params = partial(jnp.float32, number)
        yield Step(number, loss, params, 10, seconds, words_sent=7)


def run(steps, evaluate_every=2):
    rows = []
    writer = Writer(rows.append, rows.append)
    try:
        summary = train(
            steps, partial(evaluate, MODEL, HELD_OUT), writer, evaluate_every
        )
    finally:
        run.rows = rows
    return rows, summary


def test_every_step_is_a_row_and_every_second_one_is_evaluated():
    rows, _ = run(steps(3.0, 2.0, 1.0))
    assert rows[0] == {
        "step": 1,
        "loss": 3.0,
        "examples": 10,
        "words_sent": 7,
        "seconds": 0.75,
        "gradient_seconds": 0.5,
        "wire_seconds": 0.25,
    }
    assert [row.get("score") for row in rows] == [None, 25, None]


def test_the_summary_is_flat_and_adds_up():
    _, summary = run(steps(3.0, 2.0, 1.0))
    assert summary == {
        "loss": 1.0,
        "score": 35,
        "steps": 3,
        "examples": 30,
        "words_sent": 21,
        "seconds": 3.0,
        "gradient_seconds": 1.5,
        "wire_seconds": 1.5,
        "sha256": digest(np.float32(3)),
    }


def test_a_curve_has_the_rows_and_the_summary_of_train():
    measure = partial(evaluate, MODEL, HELD_OUT)
    rows, summary = run(steps(3.0, 2.0, 1.0))
    found = curve(steps(3.0, 2.0, 1.0), measure, 2)
    assert found == (rows, summary)
    assert found.losses == [3.0, 2.0, 1.0]


def test_steps_with_epochs_are_counted_and_evaluated_by_them():
    epochs = (
        one._replace(number=100 * one.number, epoch=one.number)
        for one in steps(3.0, 2.0, 1.0)
    )
    rows, summary = run(epochs)
    assert [(row["step"], row["epoch"]) for row in rows] == [
        (100, 1),
        (200, 2),
        (300, 3),
    ]
    assert ["score" in row for row in rows] == [False, True, False]
    assert (summary["steps"], summary["epochs"]) == (300, 3)


def test_a_run_that_may_diverge_is_not_stopped():
    found = train(steps(1.0, float("nan"), 1.0), lambda params: {}, QUIET, finite=False)
    assert found["steps"] == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_and_names_the_step(bad):
    later = []

    def watched():
        for step in steps(1.0, bad, 1.0):
            later.append(step.number)
            yield step

    with pytest.raises(FloatingPointError, match=f"got {bad} at step 2; pass a lower"):
        run(watched())
    assert later == [1, 2]
    assert [row["step"] for row in run.rows] == [1]


def test_no_step_at_all_is_bad_input():
    with pytest.raises(BadInput, match="expected at least one step, got none"):
        run(steps())


def test_what_else_a_strategy_measures_is_in_the_rows_and_its_last_in_the_summary():
    found = (one._replace(measures={"norm": one.loss / 2}) for one in steps(3.0, 1.0))
    rows, summary = run(found)
    assert [row["norm"] for row in rows] == [1.5, 0.5]
    assert summary["norm"] == 0.5
    assert summary["words_sent"] == 14  # costs add up, measures do not


def test_params_that_a_call_collects_are_evaluated_where_there_are_any():
    assert run(steps(2.0))[1]["score"] == 15
    elsewhere = [one._replace(params=lambda: None) for one in steps(2.0)]
    assert "score" not in run(elsewhere)[1]


def test_digests_differ_when_one_bit_does():
    params = {"a": np.float32([1, 2]), "b": np.float32(0)}
    assert digest(params) == digest({k: jnp.asarray(v) for k, v in params.items()})
    assert digest(params) != digest(params | {"b": np.float32(-0.0)})


# what is checked: params of two leaves, one of which rank 1 may hold otherwise


def check(every, wrong_from, numbers=(1, 2, 3, 4)):
    """Return what each of three ranks passed on, and the error it met."""

    def program(comm):
        passed = []

        def differing():
            for number in numbers:
                wrong = comm.rank == 1 and number >= wrong_from
                params = {"a": np.ones(2), "b": np.float32([number, wrong])}
                yield Step(
                    number, 1.0, partial(itself, params), 1, {}, 0, replicas=True
                )

        try:
            for step in verified(differing(), comm, every):
                passed.append(step.number)
        except Diverged as error:
            return passed, str(error)
        return passed, None

    return sim.run(program, 3)


def test_replicas_that_differ_stop_all_ranks_naming_step_and_leaf():
    for every, wrong_from, step in ((1, 3, 3), (2, 3, 4), (2, 1, 2)):
        for passed, error in check(every, wrong_from):
            assert passed == list(range(1, step))
            assert error.startswith(
                f"expected equal replicas on 3 ranks at step {step}, got different "
                "bits in params['b']; resume"
            )


def test_equal_replicas_are_passed_on_as_are_those_that_nobody_checks():
    assert check(2, 9) == check(0, 1) == check(5, 1) == [([1, 2, 3, 4], None)] * 3


def test_steps_of_many_updates_are_checked_when_they_pass_by_a_multiple():
    for passed, error in check(10, 2, numbers=(3, 7, 11, 15)):
        assert passed == [3, 7] and "at step 11," in error


def test_params_without_replicas_are_not_compared():
    step = Step(1, 1.0, lambda: pytest.fail("was called"), 1, {}, 0)
    found = sim.run(lambda comm: list(verified([step], comm, 1)), 2)
    assert found == [[step]] * 2


# what is kept: save gets the numbers of the steps that were saved


def keep(size=1, every=0.0, ask=lambda number, rank: False, losses=(3.0, 2.0, 1.0)):
    """Keep steps on virtual ranks; return what each rank passed on and saved."""

    def program(comm):
        passed, saved, current = [], [], [0]

        def counted():
            for step in steps(*losses):
                current[0] = step.number
                yield step

        for step in checkpointed(
            counted(),
            comm,
            lambda step: saved.append(step.number),
            every,
            lambda: ask(current[0], comm.rank),
        ):
            passed.append(step.number)
        return passed, saved

    return sim.run(program, size)


def test_the_last_step_is_saved_and_those_that_are_due():
    assert keep(every=3600) == [([1, 2, 3], [3])]
    assert keep(every=1e-9) == [([1, 2, 3], [1, 2, 3, 3])]
    assert keep(every=0) == [([1, 2, 3], [])]


@pytest.mark.parametrize("every", (0, 3600))
@pytest.mark.parametrize("who", range(3))
def test_when_one_rank_is_asked_all_save_that_step_and_stop(every, who):
    ask = lambda number, rank: number == 2 and rank == who  # noqa: E731
    assert keep(3, every, ask) == [([1, 2], [2])] * 3


def test_a_loss_that_is_not_finite_is_passed_on_and_not_saved():
    ask = lambda number, rank: number == 2  # noqa: E731
    assert keep(ask=ask, losses=(1.0, float("nan"), 1.0)) == [([1, 2], [])]


def test_nothing_to_pass_on_is_nothing_to_save():
    assert keep(losses=(), every=1) == [([], [])]


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_the_first_signal_is_a_yes_and_the_second_one_ends(number):
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


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_a_signal_before_there_is_anything_to_save_ends_at_once(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
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
            time.sleep(5)
            pytest.fail("no KeyboardInterrupt")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert returned == [1]


def test_a_strategy_that_overflows_says_so_by_its_loss_alone():
    def overflows():
        with_inf = np.float32([3e38]) * np.float32([10])
        yield Step(1, float((with_inf - with_inf)[0]), nothing, 1, {}, 0)

    with pytest.raises(FloatingPointError):  # and no RuntimeWarning, an error here
        run(overflows())
