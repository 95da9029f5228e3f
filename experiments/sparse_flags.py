"""The flags of training edge by edge, on one table in shared memory."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import flags

from dml.strategies.sparse.workers import Settings
from dml.types import BadInput

DTYPES = ["float32", "float64"]


class Stated(NamedTuple):
    """With what a problem is learned, where flags say nothing else."""

    lr: float
    decay: float
    epochs: int
    batch: int
    hubs: float = 1.0  # rows in more than this share of the edges wait, in cyclades


def define(values: flags.FlagValues, updates: Iterable[str]) -> None:
    """Add them to an experiment's own."""
    number = partial(flags.number, flag_values=values)
    integer = partial(flags.integer, flag_values=values)
    choice = partial(flags.choice, flag_values=values)
    choice("updates", "hogwild", list(updates), "How workers change the table.")
    integer("threads", 1, "Workers of each rank.", 1)
    integer("epochs", 0, "Times that all examples are seen; 0: as is stated.", 0)
    integer("batch", 0, "Examples in a block; 0: as is stated.", 0)
    number("lr", 0.0, "Rate of the first epoch; 0: as is stated.", 0)
    number("decay", 0.0, "Of the rate, from epoch to epoch; 0: as is stated.", 0, 1)
    number("momentum", 0.0, "Polyak's. Without locks it adds to asynchrony's own.", 0)
    number(
        "hubs",
        -1.0,
        "Rows in more than this share of the examples wait for a batch's end, in "
        "cyclades; 1: none do; -1: as is stated.",
        *(-1, 1),
    )
    choice("dtype", "float32", DTYPES, "Of the table and the data.")
    flags.switch("lost", True, "Count lost updates.", flag_values=values)
    flags.switch(
        "reference", True, "Compare with the optimum at the end.", flag_values=values
    )


def filled(values: flags.FlagValues, stated: Stated) -> Stated:
    """Return what is stated, but as the flags say where they do."""
    if values.momentum >= 1:
        raise BadInput(
            f"expected a momentum below 1, got {values.momentum:g}; pass --momentum=0.9"
        )
    return Stated(
        values.lr or stated.lr,
        values.decay or stated.decay,
        values.epochs or stated.epochs,
        values.batch or stated.batch,
        values.hubs if values.hubs >= 0 else stated.hubs,
    )


def settings(values: flags.FlagValues, stated: Stated) -> Settings:
    """Return how all ways of updating go about it."""
    return Settings(
        lambda epoch: stated.lr * stated.decay ** (epoch - 1),
        stated.batch,
        values.seed,
        values.momentum,
        values.lost,
    )
