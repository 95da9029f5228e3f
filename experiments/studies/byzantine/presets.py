"""Configurations of byzantine.py by name.

`byzfl` is the configuration that ByzFL 0.0.11 writes to config.json: rules, attacks,
workers, steps, rates and seeds, with digits and a small network for MNIST and its CNN.
SignFlipping of ByzFL sends the opposite of the mean, which is ipm:1. ByzFL applies
clipping at norm 2 and NNM one after the other; here clipping is ARC, and each is also
alone.
"""

from collections.abc import Mapping
from typing import Any

from lab import flags

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "quick": {
        "rules": "mean,krum,trimmed_mean,trimmed_mean+nnm",
        "attacks": "sign_flip,mimic,optimal_ipm",
        "attackers": "0,1,4",
        "steps": 100,
    },
    "byzfl": {
        "rules": ",".join(
            f"{rule}+{before}"
            for rule in ("geometric_median", "trimmed_mean")
            for before in ("clipping", "nnm", "clipping+nnm")
        ),
        "attacks": "ipm:1,optimal_ipm:0.8,optimal_alie:0.8",
        "attackers": "1,2,3,4",
        "skews": "similarity:1,similarity:0.66,similarity:0.33,similarity:0",
        "honest": 10,
        "steps": 800,
        "batch": 25,
        "lr": 0.1,
        "seeds": 3,
    },
}


def apply(values: flags.FlagValues) -> None:
    """Set the flags of --preset, except those of the command line."""
    quick = values.quick and not values["preset"].present
    for name, value in PRESETS["quick" if quick else values.preset].items():
        if not values[name].present:
            values[name].value = value
