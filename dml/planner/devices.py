"""Accelerators and their networks: numbers of data sheets.

    ┌─ domain ──────────────────┐      link     GB/s of a device inside the domain
    │ device ═ device ═ device  │      node     devices that share network cards
    └────┬──────────────────────┘      network  GB/s of the cards of a node
         └── network ──

A node of GPUs is its domain. On a TPU a slice is the domain, and hosts of 4 chips are
the nodes. The first name that a published device begins with is its `Device`.
"""

import re
from typing import NamedTuple

from dml.types import BadInput


class Device(NamedTuple):
    """Rates of an accelerator; flops and bytes per second, memory in bytes."""

    peak: float  # Tflop/s of matrix products in bfloat16 and float16
    peak8: float  # Tflop/s in float8 or int8
    peak32: float  # Tflop/s in float32, without tensor cores
    peak_tf32: float
    memory: float  # GiB
    bandwidth: float  # TB/s of the memory
    processors: int  # streaming multiprocessors; 0: a systolic array; -1: a core
    link: float  # GB/s of a device to others of its domain, one direction
    network: float  # Gb/s of a node's cards, one direction
    node: int = 8  # devices of a node
    domain: int = 0  # devices connected by links; 0: a node
    watts: float = 400  # power of a device with its share of the node, under load
    dollars: float = 2.0  # rent of a device for an hour, about that of 2025
    hopper: bool = False  # kernels of attention differ; see `physics`


DEVICES = {
    "v100": Device(125, 125, 15.7, 15.7, 32, 0.9, 80, 150, 400, watts=450, dollars=1),
    "a100_40gb": Device(312, 312, 19.5, 156, 40, 1.555, 108, 300, 1600, watts=600),
    "a100": Device(312, 312, 19.5, 156, 80, 2.039, 108, 300, 1600, watts=650),
    "h100_96gb": Device(
        989, 1979, 67, 494, 96, 2.4, 132, 450, 3200, watts=900, hopper=True, dollars=3
    ),
    "h100_94gb": Device(
        989, 1979, 67, 494, 94, 2.4, 132, 450, 3200, watts=900, hopper=True, dollars=3
    ),
    "h100": Device(
        989, 1979, 67, 494, 80, 3.35, 132, 450, 3200, watts=1200, hopper=True, dollars=3
    ),
    "h200": Device(
        989, 1979, 67, 494, 141, 4.8, 132, 450, 3200, watts=1200, hopper=True, dollars=4
    ),
    "gb200": Device(
        2500, 5000, 80, 1250, 186, 8, 148, 900, 1600, 4, 72, 1900, 6, hopper=True
    ),
    "b200": Device(
        2250,
        4500,
        80,
        1125,
        180,
        7.7,
        148,
        900,
        3200,
        watts=1800,
        dollars=5,
        hopper=True,
    ),
    "gb300": Device(
        2500, 5000, 80, 1250, 279, 8, 148, 900, 3200, 4, 72, 2100, 7, hopper=True
    ),
    "b300": Device(
        2250, 4500, 80, 1125, 268, 8, 148, 900, 6400, watts=2000, dollars=6, hopper=True
    ),
    "mi325x": Device(
        1307, 2615, 163, 654, 256, 6, 304, 448, 3200, watts=1300, dollars=3
    ),
    "mi355x": Device(
        2300, 4600, 157, 1150, 288, 8, 256, 538, 3200, watts=1800, dollars=4
    ),
    "tpu_v3": Device(123, 123, 4, 4, 32, 0.9, 0, 160, 100, 4, 1024, 450, 2),
    "tpu_v4": Device(275, 275, 4, 4, 32, 1.2, 0, 270, 200, 4, 4096, 300, 2),
    "tpu_v5e": Device(197, 394, 3, 3, 16, 0.82, 0, 180, 100, 4, 256, 250, 1.2),
    "tpu_v5p": Device(459, 918, 7, 7, 95, 2.765, 0, 540, 200, 4, 8960, 500, 4.2),
    "trainium1": Device(
        95, 95, 24, 95, 16, 0.41, 0, 96, 800, 32, watts=250, dollars=0.7
    ),
    "ascend_910b": Device(320, 320, 80, 320, 64, 1.6, 0, 196, 1600, watts=500),
}
PUBLISHED = {  # beginnings of the texts of published_runs.csv, the longest first
    "A100-40GB": "a100_40gb",
    "A100": "a100",
    "H100-96GB": "h100_96gb",
    "H100-94": "h100_94gb",
    "H100": "h100",
    "H200": "h200",
    "GB200": "gb200",
    "GB300": "gb300",
    "B200": "b200",
    "B300": "b300",
    "MI325X": "mi325x",
    "MI355X": "mi355x",
    "V100": "v100",
    "TPU v3": "tpu_v3",
    "TPU v4": "tpu_v4",
    "TPU v5e": "tpu_v5e",
    "TPU v5p": "tpu_v5p",
    "Trainium 1": "trainium1",
    "Ascend 910B": "ascend_910b",
}
# Gb/s of a card, measured by an all-reduce of 4 GB over 4 nodes of Jean Zay, where NCCL
# does not reach the 100 of the data sheet (bigscience, experiments/bandwidth, 2022).
OMNI_PATH = 40.5
CARDS = re.compile(r"(?:(\d+) x )?(\d+) Gb/s")


def device(name: str) -> Device:
    """Return a device by its name in DEVICES."""
    if name not in DEVICES:
        raise BadInput(
            f"expected a device, got {name!r}; pass one of {', '.join(DEVICES)}"
        )
    return DEVICES[name]


def published_device(text: str) -> tuple[str, Device] | None:
    """Return the name and rates of a published device, or None if it is unknown.

    The text in parentheses may name the network: 400 Gb/s or 4 x 100 Gb/s of a node.
    """
    for begin, name in PUBLISHED.items():
        if text.startswith(begin):
            cards = CARDS.search(text)
            if cards:
                network = float(int(cards[1] or 1) * int(cards[2]))
            elif "4 x Omni-Path" in text:
                network = 4 * OMNI_PATH
            else:
                return name, DEVICES[name]
            return name, DEVICES[name]._replace(network=network)
    return None
