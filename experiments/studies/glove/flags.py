"""The flags of GloVe and its strategies, and values derived from them."""

from collections.abc import Iterable

from lab import flags
from lab.shared_flags import MAX_COUNT

from dml.data.text.tiles import tile_rows
from dml.strategies.glove.tiling import Order
from dml.strategies.rotation import cells
from dml.update.rows import width
from studies.server import flags as server_flags

BATCH = 16_384  # records of a minibatch
TINY = 1e-6
SERVER_BATCH = 131_072  # records of a minibatch of servers without staleness
STALE_BATCH = 32_768  # with stale gradients: biases overshoot in larger minibatches


def order(values: flags.FlagValues) -> Order:
    """Return the order of records, equal for all strategies."""
    return Order(
        cells(values.blocks, values.tables),
        values.blocks,
        values.tables,
        tile_rows(4 * width(values.dim)),
        values.seed,
        values.x_max,
        values.alpha,
    )


def define(values: flags.FlagValues, strategies: Iterable[str]) -> None:
    """Add the flags of the model and of its strategies."""
    values.choice("strategy", "rotation", list(strategies), "Strategy.")
    values.integer("dim", 50, "Dimension of a vector.", 1)
    values.integer(
        "tables", 2, "Number of tables: 2 for words and contexts, or 1 for both.", 1, 2
    )
    values.number("x_max", 10.0, "Count from which a record has full weight.", TINY)
    values.number("alpha", 0.75, "Exponent of the weight of smaller counts.", 0)
    values.number("lr", 0.05, "Learning rate of AdaGrad.", 0)
    values.integer("epochs", 15, "Number of epochs.", 1)
    values.integer(
        "blocks",
        8,
        "Number of blocks of words in rotation; at least the number of ranks.",
        1,
    )
    values.integer(
        "batch",
        0,
        f"Number of records per minibatch; 0: {BATCH}, but 1 with serial, and "
        f"{SERVER_BATCH} with server ({STALE_BATCH} if gradients are stale).",
        0,
        MAX_COUNT,
    )
    values.choice(
        "medium",
        "auto",
        ["auto", "memory", "messages"],
        "Medium of blocks in rotation.",
    )
    values.choice(
        "rows",
        "auto",
        ["auto", "sparse", "dense"],
        "Format of summed rows in an exchange.",
    )
    values.integer(
        "columns", 1, "Number of devices over which a mesh divides columns.", 1
    )
    values.define_allreduce("products or of rows")
    server_flags.define(values)
