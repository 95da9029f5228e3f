import pytest

from tests.checks import said
from tests.models.layers.ring_checks import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_four_devices(name):
    text = said("tests.models.layers.axes_main")
    assert f"{name}: ok\n" in text, text
