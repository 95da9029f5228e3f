"""The mesh in a process of its own, since its devices are counted once and for all."""

import pytest

from tests.checks import said
from tests.strategies.mesh_main import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_four_devices(name):
    text = said("tests.strategies.mesh_main")
    assert f"{name}: ok\n" in text, text
