"""Flags of parameter servers: roles of ranks, consistency and options of workers."""

from collections.abc import Callable
from functools import partial

from lab import flags

from dml import extend
from dml.models.sparse.logistic import kkt
from dml.strategies.server.roles import Roles, replicated_roles
from dml.strategies.server.roles import roles as divide_ranks
from dml.strategies.server.workers import SKIP, STOP, RowFilter, WorkerOptions
from dml.types import BadInput, spec
from dml.types.ranges import Updates
from dml.wire.server.consistency import CONSISTENCIES, Choice, Consistency, consistency
from studies.server.problems import PROBLEMS


def define(values: flags.FlagValues) -> None:
    """Add the flags of every experiment with parameter servers."""
    values.integer(
        "servers", 0, "Number of servers; 0 uses 1 rank in 4, or all if colocated.", 0
    )
    values.switch(
        "colocated", False, "Workers on all ranks; the first ranks are also servers."
    )
    values.integer(
        "replicas",
        1,
        "Number of replicas of each server; more than 1 implies --elastic.",
        1,
    )
    values.integer("spares", 0, "Number of spares of each replicated server.", 0)
    values.switch("elastic", False, "Continuation of the run without dead workers.")
    values.define_consistency("bsp", "the workers")
    values.integer(
        "staleness", 3, "Staleness bound of ssp and essp, a difference of clocks.", 0
    )
    values.integer(
        "softsync", 1, "Number n of softsync; an update has workers/n gradients.", 1
    )
    values.integer(
        "backup", 1, "Number of backup workers, which no clock waits for.", 0
    )
    values.switch("staleness_lr", False, "Division of a gradient by its staleness.")
    values.integer("n_push", 1, "Clocks between two pushes of a worker.", 1)
    values.integer(
        "n_fetch", 0, "Clocks between two pulls; 0 uses the consistency's default.", 0
    )
    values.switch(
        "prefetch", False, "Request of the next rows before the gradient is computed."
    )
    values.integer(
        "microbatches",
        1,
        "Number of parts of a worker's minibatch; between parts a colocated server "
        "handles requests.",
        1,
    )
    values.integer(
        "key_lists", 64, "Number of key lists that a server caches per worker.", 0
    )
    values.choice(
        "on_nonfinite", STOP, [SKIP, STOP], "Action at a gradient with NaN or infinity."
    )


def images(
    values: flags.FlagValues, *, servers: int, batch: int, clocks: int, snapshots: int
) -> None:
    """Add the flags of a study of images, with its default values."""
    dense = [name for name, defaults in PROBLEMS.items() if defaults.dense]
    values.choice("problem", "digits", dense, "Data set.")
    values.integer("servers", servers, "Number of ranks that serve.", 1)
    values.integer(
        "batch", batch, "Number of images in a minibatch, over all workers.", 1
    )
    values.integer("clocks", clocks, "Number of minibatches.", 1)
    values.integer("snapshots", snapshots, "Clocks between two evaluations.", 1)
    values.number(
        "scale", 0.02, "Seconds that a real worker sleeps per unit of --law.", 1e-4
    )


def roles(values: flags.FlagValues, size: int) -> Roles:
    """Return the workers and the servers among `size` ranks."""
    if values.replicas > 1 or values.spares:
        if values.colocated:
            raise BadInput(
                f"expected servers on ranks of their own with --replicas="
                f"{values.replicas}, got colocated ones; delete --colocated"
            )
        return replicated_roles(size, values.servers, values.replicas, values.spares)
    return divide_ranks(size, values.servers, values.colocated)


def rule(values: flags.FlagValues, workers: int) -> Consistency:
    """Return the consistency of the flags for a number of workers."""
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


def parse_consistency(text: str) -> Callable[[int], Consistency]:
    """Parse a consistency such as ssp:3; return a function of the number of workers."""
    if extend.is_known(text, CONSISTENCIES, extend.CONSISTENCIES):
        return partial(consistency, text, bounded())
    choice = spec.call(text, dict.fromkeys(CONSISTENCIES, bounded), "a consistency")
    return partial(consistency, spec.name_of(text), choice)


def bounded(n: Updates = 1) -> Choice:
    """Return the options of a consistency with one number."""
    return Choice(staleness=n, softsync=n, backup=n)


def worker_options(values: flags.FlagValues) -> WorkerOptions:
    """Return the options of workers of the flags."""
    return WorkerOptions(
        values.n_push, values.prefetch, values.microbatches, values.on_nonfinite
    )


def kkt_filter(values: flags.FlagValues) -> RowFilter | None:
    """Return the KKT filter of keys, or None to send all keys."""
    if values.kkt_margin < 0:
        return None
    if not values.l1:
        raise BadInput(
            f"expected --l1 above 0 with --kkt_margin={values.kkt_margin:g}, got 0; "
            "pass --l1, or delete --kkt_margin"
        )
    return partial(kkt, l1=values.l1, margin=values.kkt_margin)
