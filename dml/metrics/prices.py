"""LOG: what an hour of a device costs, on demand, by a table with dates; dollars out.

List prices as reported by who published them; a contract of one's own is a flag.
"""

from typing import NamedTuple


class Price(NamedTuple):
    """Dollars an hour, interruptible and on demand, as listed at a time."""

    spot: float
    on_demand: float
    listed: str


GOOGLE_2019 = "Google Cloud 2019-06, by Strubell 2019"
PRICES = {  # by a part of the name that the device gives itself
    "core": Price(0.0100, 0.0475, "Google Cloud n1, us-central1, 2019-06"),
    "P100": Price(0.43, 1.46, GOOGLE_2019),
    "V100": Price(0.74, 2.48, GOOGLE_2019),
    "TPUv2": Price(1.35, 4.50, GOOGLE_2019),
    "TPUv3": Price(2.40, 8.00, GOOGLE_2019),
    "A100": Price(1.47, 3.67, "Google Cloud a2, us-central1, 2023-06"),
    "H100": Price(3.93, 12.29, "AWS p5 an eighth, on demand, 2023-07"),
}


def hourly(device: str) -> float | None:
    """Return the dollars of a device's hour on demand; None where none is listed."""
    for name, price in PRICES.items():
        if name in device:
            return price.on_demand
    return None
