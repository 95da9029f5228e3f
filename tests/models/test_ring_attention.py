import pytest

from tests.models.axes_main import said
from tests.models.ring_checks import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_four_devices(name):
    assert f"{name}: ok\n" in said(), said()
