"""Meshes of eight devices in a process of their own."""

import pytest

from tests.checks import said
from tests.strategies.glove.mesh_main import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_eight_devices(name):
    text = said("tests.strategies.glove.mesh_main")
    assert f"{name}: ok\n" in text, text
