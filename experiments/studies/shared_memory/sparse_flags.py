"""The flags of training on one table in shared memory."""

from collections.abc import Iterable
from typing import NamedTuple

from lab import flags

from dml.strategies.shared.workers import Descent
from dml.types import BadInput
from studies.shared_memory.sparse_strategies import Settings

DTYPES = ["float32", "float64"]


class Stated(NamedTuple):
    """The default values of a problem's flags."""

    lr: float
    decay: float
    epochs: int
    batch: int
    hubs: float = 1.0  # cyclades defers rows in more than this share of the edges


def define(values: flags.FlagValues, updates: Iterable[str]) -> None:
    """Define the flags."""
    values.choice("updates", "hogwild", list(updates), "Strategy in shared memory.")
    values.integer("threads", 1, "Workers of each rank.", 1)
    values.integer("epochs", 0, "Number of epochs; 0 uses the problem's default.", 0)
    values.integer("batch", 0, "Examples in a block; 0 uses the problem's default.", 0)
    values.number(
        "lr", 0.0, "Rate of the first epoch; 0 uses the problem's default.", 0
    )
    values.number(
        "decay",
        0.0,
        "Factor of the rate from epoch to epoch; 0 uses the problem's default.",
        0,
        1,
    )
    values.number(
        "momentum",
        0.0,
        "Momentum (Polyak). Without locks it adds to asynchrony's own.",
        0,
    )
    values.number(
        "hubs",
        -1.0,
        "Share of the examples; rows in more of them wait for a batch's end, in "
        "cyclades; 1: none do; -1 uses the problem's default.",
        *(-1, 1),
    )
    values.choice(
        "dtype", "float32", DTYPES, "Type of the numbers of the table and the data."
    )
    values.switch("lost", True, "Whether lost updates are counted.")
    values.switch("reference", True, "Whether the result is compared with the optimum.")


def filled(values: flags.FlagValues, stated: Stated) -> Stated:
    """Return the defaults, replaced by flags of the command line."""
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
    """Return the arguments of all strategies in shared memory."""

    def rate(epoch: int) -> float:
        return stated.lr * stated.decay ** (epoch - 1)

    return Settings(
        Descent(rate, values.momentum),
        stated.batch,
        values.seed,
        stated.hubs,
        values.threads,
        values.lost,
        blocks=values.blocks if "blocks" in values else 0,
    )
