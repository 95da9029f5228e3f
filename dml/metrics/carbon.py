"""LOG: watts and hours in; kWh, what was emitted for them, and their price out.

Strubell 2019 (arXiv 1906.02243, equation 1) and Patterson 2021 (arXiv 2104.10350) have
one formula; PUE, the power usage effectiveness, is what a data centre draws for each
watt that its computers do.
"""

from typing import NamedTuple

POUND = 0.45359237  # kg


class Footprint(NamedTuple):
    """Energy, and the CO2 equivalent in the unit of the intensity that was given."""

    kwh: float
    co2: float


def footprint(watts: float, hours: float, pue: float, intensity: float) -> Footprint:
    """Return what computers of so many watts draw and emit; intensity is of a kWh."""
    kwh = pue * watts * hours / 1000
    return Footprint(kwh, intensity * kwh)


def rent(devices: float, hours: float, price: float) -> float:
    """Return the dollars for devices at a price an hour."""
    return devices * hours * price
