"""What layers over an axis must do on four devices; prints the name of each check."""

import jax

from tests.checks import run
from tests.models.layers import experts_checks, ring_checks
from tests.models.layers.four_devices import DEVICES

if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    run([*experts_checks.CHECKS, *ring_checks.CHECKS], DEVICES)
