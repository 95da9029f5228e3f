"""Gradients of several parts of a batch, computed by one call."""

from functools import partial

import jax
import numpy as np
import pytest

from dml.models.gradient import gradient, gradients
from dml.models.networks.cnn import cnn
from dml.models.networks.logistic import logistic
from dml.types import Batch

MODELS = {
    "logistic": (logistic(9, 4), (9,)),
    "cnn": (cnn((8, 8, 1), 4), (8, 8, 1)),
}
SLICES = ((0, 7), (7, 14), (14, 15))


@pytest.mark.parametrize("name", MODELS)
def test_one_call_has_the_bits_of_a_call_for_each_part(name):
    model, shape = MODELS[name]
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((15, *shape)).astype(np.float32)
    batch = Batch(inputs, rng.integers(0, 4, 15).astype(np.int32))
    params = model.init(jax.random.key(1))
    rows = gradients(partial(gradient, model.loss), params, batch, SLICES)
    for row, (start, stop) in zip(np.asarray(rows), SLICES, strict=True):
        part = Batch(inputs[start:stop], batch.targets[start:stop])
        loss, grads = gradient(model.loss, params, part)
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(grads)]
        assert np.concatenate([*leaves, [loss]]).tobytes() == row.tobytes()
