"""Networks of tests are tiny: without optimizations they compile in half the time."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def without_optimizations(quick):
    pass
