"""The flags of training on one table in shared memory."""

from collections.abc import Iterable
from typing import NamedTuple

from lab import flags, readers

from dml.strategies.shared.workers import Descent
from dml.types import BadInput
from dml.types.ranges import MAX_THREADS
from studies.shared_memory.sparse_strategies import Settings

DTYPES = ["float32", "float64"]


READERS = {  # values of --updates that read a flag, if not all do
    **dict.fromkeys(("hot", "period"), ["hogwild_private"]),
    "blocks": ["rotation"],
}


class Defaults(NamedTuple):
    """The default values of a problem's flags.

    Attributes:
      lr: Learning rate of the first epoch.
      decay: Factor of the learning rate from epoch to epoch.
      epochs: Number of epochs.
      batch: Number of examples in a block.
      hubs: cyclades defers rows in more than this share of the edges.
    """

    lr: float
    decay: float
    epochs: int
    batch: int
    hubs: float = 1.0


def define(values: flags.FlagValues, updates: Iterable[str]) -> None:
    """Define the flags; `updates` has the names of strategies."""
    values.choice("updates", "hogwild", list(updates), "Strategy in shared memory.")
    values.integer("threads", 1, "Number of workers per rank.", 1, MAX_THREADS)
    values.integer("epochs", 0, "Number of epochs; 0 uses the problem's default.", 0)
    values.integer(
        "batch", 0, "Number of examples per block; 0 uses the problem's default.", 0
    )
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
        "Momentum (Polyak); asynchrony without locks has the effect of further "
        "momentum.",
        0,
    )
    values.number(
        "hubs",
        -1.0,
        "Share of the examples; cyclades defers rows in more examples to the end of a "
        "batch; 1: none; -1 uses the problem's default.",
        -1,
        1,
    )
    values.number(
        "hot",
        0.05,
        "Share of the examples; hogwild_private sums changes of rows in more examples "
        "in private memory.",
        0,
        1,
    )
    values.integer(
        "period",
        256,
        "Number of examples after which a worker of hogwild_private adds its sums to "
        "the table.",
        1,
    )
    values.choice(
        "dtype", "float32", DTYPES, "Type of the numbers of the table and the data."
    )
    values.switch("lost", True, "Count of lost updates.")
    values.switch("reference", True, "Comparison of the result with the optimum.")


def replace_defaults(values: flags.FlagValues, defaults: Defaults) -> Defaults:
    """Return the defaults, replaced by flags of the command line."""
    readers.check(values, "updates", READERS)
    if values.momentum >= 1:
        raise BadInput(
            f"expected --momentum below 1, got {values.momentum:g}; pass for instance "
            "--momentum=0.9"
        )
    return Defaults(
        values.lr or defaults.lr,
        values.decay or defaults.decay,
        values.epochs or defaults.epochs,
        values.batch or defaults.batch,
        values.hubs if values.hubs >= 0 else defaults.hubs,
    )


def settings(values: flags.FlagValues, defaults: Defaults) -> Settings:
    """Return the arguments of all strategies in shared memory.

    values: parsed flags.
    defaults: result of `replace_defaults`.
    """

    def rate(epoch: int) -> float:
        return defaults.lr * defaults.decay ** (epoch - 1)

    return Settings(
        Descent(rate, values.momentum),
        defaults.batch,
        values.seed,
        defaults.hubs,
        values.threads,
        values.lost,
        blocks=values.blocks if "blocks" in values else 0,
        hot=values.hot,
        period=values.period,
    )
