"""Flags of parameter servers: roles, consistency and options of workers."""

from collections.abc import Callable
from functools import partial

from lab import flags

from dml.strategies.server.roles import Roles
from dml.strategies.server.roles import roles as divided
from dml.strategies.server.workers import SKIP, STOP, WorkerOptions
from dml.types import BadInput
from dml.wire.server.consistency import CONSISTENCIES, Choice, Consistency, consistency
from studies.server.problems import PROBLEMS


def define(values: flags.FlagValues) -> None:
    """Add the flags of every experiment with parameter servers."""
    values.integer(
        "servers", 0, "Number of servers; 0 uses 1 rank in 4, or all if colocated.", 0
    )
    values.switch("colocated", False, "Every rank works, and the first ones serve too.")
    values.choice(
        "consistency", "bsp", list(CONSISTENCIES), "Consistency of the workers."
    )
    values.integer("staleness", 3, "Largest difference of clocks in ssp and essp.", 0)
    values.integer(
        "softsync", 1, "Number n of softsync: an update has 1 gradient of n workers.", 1
    )
    values.integer(
        "backup", 1, "Number of backup workers, which no clock waits for.", 0
    )
    values.switch("staleness_lr", False, "Divide a gradient by its staleness.")
    values.integer("n_push", 1, "Clocks after which a worker pushes.", 1)
    values.integer(
        "n_fetch", 0, "Clocks after which a worker pulls; 0 uses the consistency's.", 0
    )
    values.switch(
        "prefetch", False, "Request the next rows before the gradient is computed."
    )
    values.integer(
        "microbatches",
        1,
        "Parts of a worker's minibatch; a colocated server serves in between.",
        1,
    )
    values.integer(
        "key_lists", 64, "Number of key lists that a server remembers of a worker.", 0
    )
    values.choice(
        "on_nonfinite", STOP, [SKIP, STOP], "Action at a gradient with NaN or infinity."
    )


def images(
    values: flags.FlagValues, *, servers: int, batch: int, clocks: int, snapshots: int
) -> None:
    """Add the flags of a study of images, with its default values."""
    dense = [name for name, stated in PROBLEMS.items() if stated.dense]
    values.choice("problem", "digits", dense, "Data set.")
    values.integer("servers", servers, "Number of ranks that serve.", 1)
    values.integer("batch", batch, "Images in a minibatch, over all workers.", 1)
    values.integer("clocks", clocks, "Number of minibatches.", 1)
    values.integer("snapshots", snapshots, "Clocks between two evaluations.", 1)
    values.number(
        "scale", 0.02, "Seconds that a real worker sleeps for each of --law.", 1e-4
    )


def roles(values: flags.FlagValues, size: int) -> Roles:
    """Return the workers and the servers."""
    return divided(size, values.servers, values.colocated)


def rule(values: flags.FlagValues, workers: int) -> Consistency:
    """Return the consistency for a number of workers."""
    return consistency(
        values.consistency,
        Choice(
            staleness=values.staleness,
            softsync=values.softsync,
            backup=values.backup,
            staleness_scaled=values.staleness_lr,
            pull_period=values.n_fetch,
        ),
        workers,
    )


def way(name: str) -> Callable[[int], Consistency]:
    """Parse a consistency such as ssp:3; return a function of the number of workers."""
    kind, _, value = name.partition(":")
    if kind not in CONSISTENCIES or not (value or "0").isdecimal():
        raise BadInput(
            f"expected --consistency of {', '.join(CONSISTENCIES)}, each with a whole "
            f"number after a colon if it has one, got {name!r}; correct it"
        )
    n = int(value or 1)
    return partial(consistency, kind, Choice(staleness=n, softsync=n, backup=n))


def worker_options(values: flags.FlagValues) -> WorkerOptions:
    """Return the options of workers."""
    return WorkerOptions(
        values.n_push, values.prefetch, values.microbatches, values.on_nonfinite
    )
