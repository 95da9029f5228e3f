"""Exact sums over devices, in a process of their own, and on one device."""

import jax.numpy as jnp
import numpy as np
import pytest

from dml import BadInput
from dml.wire.mesh.exact import exact_mean
from tests.checks import said
from tests.wire.mesh.exact_main import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_eight_devices(name):
    text = said("tests.wire.mesh.exact_main")
    assert f"{name}: ok\n" in text, text


def test_a_mean_over_shards_is_that_of_their_results():
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    mean = exact_mean(lambda params, rows: params * rows.sum(), 3)
    assert mean(jnp.float32(2.0), rows) == 2 * rows.sum() / 3


@pytest.mark.parametrize("shards", (0, 4, 7))
def test_shards_of_unequal_size_are_refused(shards):
    with pytest.raises(BadInput, match=f"got {shards} shards"):
        exact_mean(lambda params, rows: rows.sum(), shards)(None, np.zeros((6, 2)))
