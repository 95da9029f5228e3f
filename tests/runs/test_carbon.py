"""The formula of energy, by the numbers that Strubell 2019 printed."""

import pytest

from dml.runs.carbon import POUND, footprint, rent

PUE, POUNDS = 1.58, 0.954


@pytest.mark.parametrize(
    "watts, hours, kwh, pounds",
    [
        (1415.78, 12, 27, 26),
        (1515.43, 84, 201, 192),
        (517.66, 336, 275, 262),
        (12041.51, 79.2, 1507, 1438),
        (12041.51, 79, 1503, 1434),  # what the printed hours would be
        (1515.43, 274_120, 656_347, 626_155),
    ],
)
def test_energy_and_emissions_are_as_printed(watts, hours, kwh, pounds):
    found = footprint(watts, hours, PUE, POUNDS)
    assert (round(found.kwh), round(found.co2)) == (kwh, pounds)


def test_watts_and_hours_and_pue_count_alike_and_intensity_only_what_is_emitted():
    one = footprint(300.0, 24.0, 1.1, 0.4)
    for doubled in ((600, 24, 1.1), (300, 48, 1.1), (300, 24, 2.2)):
        assert footprint(*doubled, 0.4) == pytest.approx((2 * one.kwh, 2 * one.co2))
    assert footprint(300.0, 24.0, 1.1, 0.8) == pytest.approx((one.kwh, 2 * one.co2))
    assert one.kwh == pytest.approx(7.92)


def test_a_pound_of_a_search_makes_the_tonnes_that_patterson_quotes():
    assert round(626_155 * POUND / 1e3) == 284


def test_rent_is_by_device_and_hour():
    assert round(rent(64, 79.2, 0.74)) == 3751
    assert round(rent(32, 168, 8.0)) == 43_008
