"""Energy, CO2 equivalent and price of devices that run for some hours.

Strubell 2019 (arXiv 1906.02243, equation 1) and Patterson 2021 (arXiv 2104.10350) have
one formula; PUE, the power usage effectiveness, is the energy of a data centre divided
by that of its computers.
"""

from typing import NamedTuple

POUND = 0.45359237  # kg


class Footprint(NamedTuple):
    """Energy, and the CO2 equivalent in the unit of the given intensity."""

    kwh: float
    co2: float


def footprint(watts: float, hours: float, pue: float, intensity: float) -> Footprint:
    """Return the footprint of computers by their watts; intensity is of a kWh."""
    kwh = pue * watts * hours / 1000
    return Footprint(kwh, intensity * kwh)


class Price(NamedTuple):
    """Dollars an hour, interruptible and on demand, as listed at a time."""

    spot: float
    on_demand: float
    listed: str


GOOGLE_2019 = "Google Cloud 2019-06, by Strubell 2019"
PRICES = {  # by a part of the device's name
    "core": Price(0.0100, 0.0475, "Google Cloud n1, us-central1, 2019-06"),
    "P100": Price(0.43, 1.46, GOOGLE_2019),
    "V100": Price(0.74, 2.48, GOOGLE_2019),
    "TPUv2": Price(1.35, 4.50, GOOGLE_2019),
    "TPUv3": Price(2.40, 8.00, GOOGLE_2019),
    "A100": Price(1.47, 3.67, "Google Cloud a2, us-central1, 2023-06"),
    "H100": Price(3.93, 12.29, "AWS p5 an eighth, on demand, 2023-07"),
}


def hourly(device: str) -> float | None:
    """Return the dollars of a device's hour on demand; None without a listed price."""
    prices = (price.on_demand for name, price in PRICES.items() if name in device)
    return next(prices, None)


def rent(devices: float, hours: float, price: float) -> float:
    """Return the dollars for devices at a price an hour."""
    return devices * hours * price
