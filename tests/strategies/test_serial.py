from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml.data.images.digits import digits
from dml.data.minibatches import minibatches, take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.strategies.serial import serial
from dml.update.dense import make
from tests.strategies.small import alone as solo

MODEL = logistic(64, 10)


def steps(optimizer, batch=64, epochs=None):
    training, _ = digits()
    params, examples = MODEL.init(jax.random.key(0)), len(training.targets)
    problem = model_problem(
        MODEL, params, examples=examples, take=partial(take, training)
    )
    batches = minibatches(examples, batch, seed=0, epochs=epochs)
    steps = serial(problem, batches, optimizer, comm=solo(), timer=Timer())
    return (step._replace(params=step.params()) for step in steps)


def test_serial_learns_the_digits():
    *_, held_out = digits()
    losses = []
    for step in islice(steps(make("momentum", 0.1)), 200):
        losses.append(step.loss)
    assert losses[0] == pytest.approx(np.log(10), rel=1e-6)
    assert np.mean(losses[-20:]) < 0.3
    assert MODEL.metrics(step.params, held_out)["accuracy"] > 0.9


def test_a_step_of_sgd_is_the_mean_gradient_of_its_minibatch():
    training, _ = digits()
    (step,) = islice(steps(make("sgd", 0.5), batch=10), 1)
    (index,) = islice(minibatches(len(training.targets), 10, seed=0), 1)
    slopes = (0.1 - np.eye(10)[training.targets[index]]) / 10  # softmax of zeros is 0.1
    # float32 sums of 10 terms
    np.testing.assert_allclose(step.params["bias"], -0.5 * slopes.sum(0), atol=1e-7)
    expected = -0.5 * training.inputs[index].T @ slopes
    np.testing.assert_allclose(step.params["weights"], expected, atol=1e-7)


def test_steps_count_and_say_what_they_used():
    found = list(steps(make("sgd", 0.1), batch=500, epochs=1))
    assert [step.number for step in found] == [1, 2, 3]
    assert [step.examples for step in found] == [500, 500, 437]
    for step in found:
        assert set(step.seconds) == {"input", "gradient", "update"}
        assert step.words_sent == 0


def test_params_of_earlier_steps_stay_readable():
    first, second = islice(steps(make("adam", 0.1)), 2)
    assert not np.array_equal(first.params["bias"], second.params["bias"])
