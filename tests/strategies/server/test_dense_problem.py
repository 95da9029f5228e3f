import functools

import jax
import numpy as np
import pytest

from dml.data.digits import digits
from dml.data.images import images
from dml.data.minibatches import take
from dml.models.cnn import cnn
from dml.models.gradient import gradient
from dml.models.logistic import logistic
from dml.strategies.server import dense
from dml.strategies.server.dense import problem, unpacked
from dml.types import BadInput
from dml.wire.buffers import layout, pack

CASES = {
    "logistic": (lambda: logistic(64, 10, l2=0.01), digits),
    "cnn": (lambda: cnn((8, 8, 1), 10, width=3), lambda: images("digits")),
}
each = pytest.mark.parametrize("name", CASES)


@functools.cache
def example(name):
    make, read = CASES[name]
    model, (training, held_out) = make(), read()
    params = model.init(jax.random.key(0))
    # of no regular values: logistic's own are all zero
    noise = np.random.default_rng(0).normal(0, 0.1, layout(params).length)
    params = unpacked(noise.astype(np.float32)[:, None], params)
    return model, params, training, held_out, problem(model, params, training, held_out)


@each
def test_the_flat_gradient_has_the_bits_of_the_trees(name):
    model, params, training, _, found = example(name)
    table = found.start_TxD * np.float32(0.5)
    for numbers in (np.arange(40, 72), np.arange(9, 41)):
        loss, grads = found.gradient(table, numbers, found.touched(numbers))
        expected, tree = gradient(
            model.loss, unpacked(table, params), take(training, numbers)
        )
        packed = np.empty(len(table), np.float32)
        pack(tree, packed)
        assert loss == float(expected)
        assert grads.tobytes() == packed.tobytes()
        assert grads.any() and grads.shape == table.shape
        assert grads.flags.writeable and grads.flags.c_contiguous


@each
def test_the_table_begins_as_the_params_and_goes_back_to_them(name):
    _, params, _, _, found = example(name)
    again = unpacked(found.start_TxD, params)
    assert jax.tree.structure(again) == jax.tree.structure(params)
    for one, other in zip(*map(jax.tree.leaves, (params, again)), strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert found.touched(np.arange(3)) == slice(0, len(found.start_TxD))
    assert found.heat is None and found.examples == 1437


def test_evaluation_is_in_blocks_of_examples_from_all_over(monkeypatch):
    monkeypatch.setattr(dense, "BLOCK", 250)  # of 719 and 360
    monkeypatch.setattr(dense, "MOST", 719)  # of 1437: every second one
    model, params, training, held_out, _ = example("logistic")
    found = problem(model, params, training, held_out)
    scores = found.evaluate(found.start_TxD)
    # float32 means of 719 terms, in another order
    loss = model.loss(params, take(training, np.arange(0, 1437, 2)))
    assert scores["objective"] == pytest.approx(float(loss), rel=1e-5)
    right = model.metrics(params, held_out)["accuracy"]
    assert scores["accuracy"] == pytest.approx(float(right), rel=1e-6)


def test_parts_of_as_many_examples_compile_once():
    model, params, training, held_out, _ = example("logistic")
    traces = []

    def loss(params, batch):
        traces.append(1)  # only while it is traced
        return model.loss(params, batch)

    found = problem(model._replace(loss=loss), params, training, held_out)
    for numbers in (np.arange(9), np.arange(9, 18), np.arange(8), np.arange(20, 28)):
        found.gradient(found.start_TxD, numbers, slice(0, 650))
    assert len(traces) == 2


def test_a_part_without_examples_has_no_gradient():
    found = example("logistic")[-1]
    loss, grads = found.gradient(found.start_TxD, np.arange(0), slice(0, 650))
    assert loss == 0 and not grads.any() and len(grads) == 650
    nothing = np.arange(0)
    assert found.gradient(found.start_TxD, nothing, nothing)[1].shape == (0, 1)


def test_params_of_another_dtype_are_bad_input():
    model, params, *data, _ = example("logistic")
    params = params | {"bias": params["bias"].astype(np.float16)}
    with pytest.raises(BadInput, match="float32, got float16, float32; cast"):
        problem(model, params, *data)
