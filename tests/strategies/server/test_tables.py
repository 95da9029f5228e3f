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
from dml.wire.comm.buffers import layout, pack

CASES = {
    "logistic": (lambda: logistic(64, 10, l2=0.01), digits),
    "cnn": (lambda: cnn((8, 8, 1), 10, width=3), lambda: images("digits")),
}
each = pytest.mark.parametrize("name", CASES)


def problem(model, params, training):
    count = len(training.targets)
    return model_problem(
        model, params, examples=count, take=functools.partial(take, training)
    )


@functools.cache
def example(name):
    make, read = CASES[name]
    model, (training, _) = make(), read()
    start = model.init(jax.random.key(0))
    # not regular values: logistic's own are all zero
    noise = np.random.default_rng(0).normal(0, 0.1, layout(start).length)
    params = unpacked(noise.astype(np.float32)[:, None], layout(start))
    return model, params, training, flattened(problem(model, params, training))


@each
@pytest.mark.parametrize("by", ["program", "leaves"])
def test_the_flat_gradient_has_the_bits_of_the_trees(name, by):
    model, params, training, found = example(name)
    if by == "leaves":
        found = flattened(problem(model, params, training)._replace(model=None))
    table = found.params * np.float32(0.5)
    for numbers in (np.arange(40, 72), np.arange(9, 41)):
        loss, (rows, grads) = found.gradient(table, found.take(numbers))
        expected, tree = gradient(
            model.loss, unpacked(table, layout(params)), take(training, numbers)
        )
        packed = np.empty(len(table), np.float32)
        pack(tree, packed)
        assert loss == float(expected)
        assert grads.tobytes() == packed.tobytes()
        assert grads.any() and grads.shape == table[rows].shape == table.shape
        assert grads.flags.writeable and grads.flags.c_contiguous


@each
def test_the_table_begins_as_the_params_and_goes_back_to_them(name):
    _, params, _, found = example(name)
    again = unpacked(found.params, layout(params))
    assert jax.tree.structure(again) == jax.tree.structure(params)
    for one, other in zip(*map(jax.tree.leaves, (params, again)), strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert found.touched(found.take(np.arange(3))) == slice(0, len(found.params))
    assert found.frequency is None and found.examples == 1437


def test_evaluation_receives_the_tree():
    model, params, training, _ = example("logistic")
    whole = problem(model, params, training)._replace(evaluate=lambda tree: tree)
    found = flattened(whole)
    again = found.evaluate(found.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, again, params))


def test_parts_of_as_many_examples_compile_once():
    model, params, training, _ = example("logistic")
    traces = []

    def loss(params, batch):
        traces.append(1)  # only while it is traced
        return model.loss(params, batch)

    found = flattened(problem(model._replace(loss=loss), params, training))
    for numbers in (np.arange(9), np.arange(9, 18), np.arange(8), np.arange(20, 28)):
        found.gradient(found.params, found.take(numbers))
    assert len(traces) == 2


def test_params_of_another_dtype_are_bad_input():
    model, params, training, _ = example("logistic")
    params = params | {"bias": params["bias"].astype(np.float16)}
    with pytest.raises(BadInput, match="float32, got float16, float32; cast"):
        flattened(problem(model, params, training))
