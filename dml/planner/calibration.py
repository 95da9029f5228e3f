"""The fitted numbers: coefficients of all devices, two constants of each device.

    kind               A100-80GB SXM (4 x 100 Gb/s RoCE), bf16   as fitted, else
    device's text      A100-80GB SXM (4 x 100 Gb/s RoCE)         any precision, else
    chip               A100-80GB SXM                             any network, else
    typical            71 % of the peak, 80 % of other rates

calibration.json is written by `python experiments/plan.py --fit=published`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.planner.memory import MemoryCoefficients
from dml.planner.physics import TYPICAL, Constants, Physics

PATH = Path(__file__).with_name("calibration.json")


class Calibration(NamedTuple):
    """Fitted numbers, and the rows that they were fitted to."""

    physics: Physics
    sizes: MemoryCoefficients
    constants: dict[str, Constants]  # by `kinds` of a device and precision
    band: tuple[float, float]  # quantiles 0.1 and 0.9 of measured over predicted
    wide_band: tuple[float, float]  # the same for a kind without fitted rows
    rows: tuple[str, ...]  # digests of the fitted rows


def kinds(text: str, precision: str) -> tuple[str, ...]:
    """Return the names of a device in `Calibration.constants`, the closest first."""
    chip = text.split(" (")[0]
    return f"{text} | {precision}", text, f"{chip} | any network"


def lookup(
    calibration: Calibration, text: str, precision: str
) -> tuple[Constants, bool]:
    """Return the constants of a device, and whether its kind was fitted."""
    names = kinds(text, precision)
    for name in names:
        if name in calibration.constants:
            return calibration.constants[name], name == names[0]
    return TYPICAL, False


@cache
def load(path: Path = PATH) -> Calibration:
    """Return the fitted numbers of a file."""
    data = json.loads(path.read_text("utf-8"))
    return Calibration(
        Physics(**data["physics"]),
        MemoryCoefficients(**data["sizes"]),
        {name: Constants(*pair) for name, pair in data["constants"].items()},
        tuple(data["band"]),
        tuple(data["wide_band"]),
        tuple(data["rows"]),
    )


def save(calibration: Calibration, path: Path) -> None:
    """Write the fitted numbers to a file."""

    def short(value: Any) -> float:
        return float(f"{value:.4g}")

    data = {
        "physics": {n: short(v) for n, v in calibration.physics._asdict().items()},
        "sizes": {n: short(v) for n, v in calibration.sizes._asdict().items()},
        "constants": {
            name: [short(v) for v in pair]
            for name, pair in calibration.constants.items()
        },
        "band": [short(v) for v in calibration.band],
        "wide_band": [short(v) for v in calibration.wide_band],
        "rows": list(calibration.rows),
    }
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


def constants_of(
    calibration: Calibration, texts: Any, precisions: Any
) -> tuple[Constants, np.ndarray]:
    """Return the constants of many devices as columns, and which kinds were fitted."""
    found = [lookup(calibration, t, p) for t, p in zip(texts, precisions, strict=True)]
    columns = np.array([tuple(constants) for constants, _ in found])
    return Constants(*columns.T), np.array([fitted for _, fitted in found])
