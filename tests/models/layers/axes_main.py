"""What layers over an axis must do on four devices; prints the name of each check."""

import jax
import numpy as np
from jax.sharding import AxisType

from tests.checks import run

DEVICES = 4
# Of an array's largest number: float32's 6e-8 for each of at most 128 numbers that are
# summed in another order, and may cancel; 2e-6 is seen.
CLOSE = 1e-5


def line(axis, size=DEVICES):
    kinds = {"axis_types": (AxisType.Auto,)}
    return jax.make_mesh((size,), (axis,), devices=jax.devices()[:size], **kinds)


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def close(found, wanted):
    def near(one, other):
        assert np.abs(one - other).max() <= CLOSE * np.abs(other).max()

    jax.tree.map(near, found, wanted)


if __name__ == "__main__":
    from tests.models.layers import experts_checks, ring_checks

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    run([*experts_checks.CHECKS, *ring_checks.CHECKS], DEVICES)
