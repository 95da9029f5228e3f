"""The formula of energy, by the numbers that Strubell 2019 printed."""

import pytest

from dml.runs.carbon import POUND, PRICES, footprint, hourly, rent


@pytest.mark.parametrize(
    "watts, hours, kwh, pounds",
    [
        (1415.78, 12, 27, 26),
        (1515.43, 84, 201, 192),
        (517.66, 336, 275, 262),
        (12041.51, 79.2, 1507, 1438),
        (1515.43, 274_120, 656_347, 626_155),
    ],
)
def test_energy_and_emissions_are_as_printed(watts, hours, kwh, pounds):
    found = footprint(watts, hours, pue=1.58, intensity=0.954)
    assert (round(found.kwh), round(found.co2)) == (kwh, pounds)


def test_a_search_makes_the_tonnes_that_patterson_quotes_and_rent_is_by_the_hour():
    assert round(626_155 * POUND / 1e3) == 284
    assert round(rent(64, 79.2, 0.74)) == 3751
    assert hourly("NVIDIA V100 SXM2") == PRICES["V100"].on_demand
    assert hourly("unknown") is None
