"""Energy, CO2 equivalent and rent of devices by their hours of use.

The formula is that of Strubell 2019 (arXiv 1906.02243, equation 1) and of Patterson
2021 (arXiv 2104.10350). PUE, the power usage effectiveness, is the energy of a data
centre divided by the energy of its computers.
"""

from typing import NamedTuple

POUND = 0.45359237  # kg per pound


class Footprint(NamedTuple):
    """Energy and CO2 equivalent."""

    kwh: float
    co2: float  # in the unit of mass of `intensity`


def footprint(watts: float, hours: float, pue: float, intensity: float) -> Footprint:
    """Return the footprint of computers.

    Args:
      watts: Power of the computers.
      hours: Duration.
      pue: Power usage effectiveness of the data centre.
      intensity: CO2 equivalent per kWh, in any unit of mass.
    """
    kwh = pue * watts * hours / 1000
    return Footprint(kwh, intensity * kwh)


class Price(NamedTuple):
    """Listed price of a device."""

    spot: float  # dollars per hour, interruptible
    on_demand: float  # dollars per hour
    source: str  # price list and date


GOOGLE_2019 = "Google Cloud 2019-06, by Strubell 2019"
PRICES = {  # keys are substrings of device names
    "core": Price(0.0100, 0.0475, "Google Cloud n1, us-central1, 2019-06"),
    "P100": Price(0.43, 1.46, GOOGLE_2019),
    "V100": Price(0.74, 2.48, GOOGLE_2019),
    "TPUv2": Price(1.35, 4.50, GOOGLE_2019),
    "TPUv3": Price(2.40, 8.00, GOOGLE_2019),
    "A100": Price(1.47, 3.67, "Google Cloud a2, us-central1, 2023-06"),
    "H100": Price(3.93, 12.29, "AWS p5, an eighth of 8 GPUs, 2023-07"),
}


def dollars_per_hour(device: str) -> float | None:
    """Return the on-demand price of a device by its name; None if it is unknown."""
    prices = (price.on_demand for name, price in PRICES.items() if name in device)
    return next(prices, None)


def rent(devices: float, hours: float, price: float) -> float:
    """Return the cost in dollars; `price` is in dollars per device and hour."""
    return devices * hours * price
