"""Hybrid in a process of its own, since its devices are counted once and for all."""

import pytest

from tests.checks import said
from tests.strategies.hybrid_main import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_eight_devices(name):
    text = said("tests.strategies.hybrid_main")
    assert f"{name}: ok\n" in text, text
