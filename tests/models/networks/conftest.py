"""Networks of tests are tiny: without optimizations they compile in half the time."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
