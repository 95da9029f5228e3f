"""A tree of parameters on servers: one column, with the bits of the tree."""

import functools

import jax
import numpy as np
import pytest

from dml.data.images.datasets import images
from dml.data.images.digits import digits
from dml.data.minibatches import take
from dml.models.gradient import gradient
from dml.models.model_problem import model_problem
from dml.models.networks.cnn import cnn
from dml.models.networks.logistic import logistic
from dml.strategies.server.tables import flattened, unpacked
from dml.types import BadInput
from dml.wire.comm.buffers import layout

CASES = {
    "logistic": (lambda: logistic(64, 10, l2=0.01), digits),
    "cnn": (lambda: cnn((8, 8, 1), 10, width=3), lambda: images("digits")),
}


@functools.cache
def example(name):
    """Return a problem whose params are no regular values, and its data."""
    make, read = CASES[name]
    model, (training, _) = make(), read()
    lies = layout(model.init(jax.random.key(0)))
    noise = np.random.default_rng(0).normal(0, 0.1, lies.length).astype("f")
    options = {"examples": 1437, "take": functools.partial(take, training)}
    return model_problem(model, unpacked(noise[:, None], lies), **options), training


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by", ["program", "leaves"])
def test_a_flat_problem_has_the_bits_of_the_tree(name, by):
    task, training = example(name)
    loss_of, lies = task.model.loss, layout(task.params)
    task = task._replace(evaluate=lambda tree: tree)
    found = flattened(task._replace(model=None) if by == "leaves" else task)
    again = found.evaluate(found.params)
    assert jax.tree.structure(again) == jax.tree.structure(task.params)
    for one, other in zip(*map(jax.tree.leaves, (task.params, again)), strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert found.touched(found.take(np.arange(3))) == slice(0, lies.length)
    assert found.frequency is None and found.examples == 1437
    table = found.params * np.float32(0.5)
    for numbers in (np.arange(40, 72), np.arange(9, 41)):
        loss, (rows, grads) = found.gradient(table, found.take(numbers))
        expected, tree = gradient(
            loss_of, unpacked(table, lies), take(training, numbers)
        )
        packed = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        assert loss == float(expected)
        assert grads.tobytes() == packed.tobytes()
        assert grads.any() and grads.shape == table[rows].shape == table.shape
        assert grads.flags.writeable and grads.flags.c_contiguous


def test_parts_of_as_many_examples_compile_once():
    task, _ = example("logistic")
    traces = []

    def loss(params, batch):
        traces.append(1)  # only while it is traced
        return task.model.loss(params, batch)

    found = flattened(task._replace(model=task.model._replace(loss=loss)))
    for numbers in (np.arange(9), np.arange(9, 18), np.arange(8), np.arange(20, 28)):
        found.gradient(found.params, found.take(numbers))
    assert len(traces) == 2


def test_params_of_another_dtype_are_bad_input():
    task, _ = example("logistic")
    params = task.params | {"bias": task.params["bias"].astype(np.float16)}
    with pytest.raises(BadInput, match="float32, got float16, float32; cast"):
        flattened(task._replace(params=params))
