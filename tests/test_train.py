from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from dml.metrics.evaluation import digest, evaluate
from dml.metrics.writers import Writer
from dml.train import train
from dml.types import BadInput, Batch, Model, Step

# a model of one number whose only metric tells params and batch
MODEL = Model(
    init=lambda key: jnp.zeros(()),
    loss=lambda params, batch: params,
    metrics=lambda params, batch: {"score": params * 10 + batch.inputs.sum()},
)
HELD_OUT = Batch(np.float32([2, 3]), np.zeros(2))


def steps(*losses):
    for number, loss in enumerate(losses, 1):
        seconds = {"gradient": 0.5, "wire": 0.25 * number}
        yield Step(number, loss, jnp.float32(number), 10, seconds, words_sent=7)


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


def test_digests_differ_when_one_bit_does():
    params = {"a": np.float32([1, 2]), "b": np.float32(0)}
    assert digest(params) == digest({k: jnp.asarray(v) for k, v in params.items()})
    assert digest(params) != digest(params | {"b": np.float32(-0.0)})
