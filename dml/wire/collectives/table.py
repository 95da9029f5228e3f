"""The table of collectives: collective -> algorithm -> function, schedule and cost.

    COLLECTIVES["allreduce"]["swing"].function(comm, buffer)
    COLLECTIVES["all_gather"]["bruck"].schedule(size, length, itemsize)

Functions of a collective have the same arguments:

allreduce        (comm, buffer, op=np.add)     every element, on all ranks
reduce_scatter   (comm, buffer, op=np.add)     chunk r, on rank r
all_gather       (comm, buffer)                chunk r of rank r, to all ranks
broadcast        (comm, buffer, root=0)        the buffer of the root, to all ranks
reduce           (comm, buffer, op=np.add, root=0)   every element, on the root
all_to_all       (comm, buffer)                part q of rank r, as part r of rank q

Chunks are those of `plans.topology.chunks`, one for each rank.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from dml.types import Comm, Round
from dml.wire.collectives.auto import FEW, Candidates, auto_allreduce
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.exchanges.bine import bine, bine_allreduce
from dml.wire.collectives.exchanges.multiplying import (
    multiplying,
    multiplying_allreduce,
    multiplying_seconds,
)
from dml.wire.collectives.exchanges.one_shot import (
    one_shot,
    one_shot_allreduce,
    one_shot_seconds,
)
from dml.wire.collectives.native import native_allreduce
from dml.wire.collectives.rates import CANDIDATES, machine_rates
from dml.wire.collectives.reduce_scatter import (
    all_gather,
    reduce_scatter,
    ring_gather_rounds,
    ring_gather_seconds,
    ring_scatter_rounds,
    ring_scatter_seconds,
)
from dml.wire.collectives.rings.segmented_ring import (
    segmented_ring,
    segmented_ring_allreduce,
    segmented_ring_seconds,
)
from dml.wire.collectives.rings.torus import torus, torus_allreduce, torus_seconds
from dml.wire.collectives.scans.chain import (
    chain_scan,
    chain_scan_rounds,
    chain_scan_seconds,
)
from dml.wire.collectives.scans.doubling import (
    doubling_scan,
    doubling_scan_rounds,
    doubling_scan_seconds,
)
from dml.wire.collectives.sharded_server import (
    server_allreduce,
    two_shot,
    two_shot_seconds,
)
from dml.wire.collectives.shared_copies import (
    shared_all_gather,
    shared_all_to_all,
    shared_all_to_all_seconds,
    shared_broadcast,
    shared_broadcast_seconds,
    shared_gather_seconds,
)
from dml.wire.collectives.star import star_allreduce
from dml.wire.collectives.steps import pat
from dml.wire.collectives.steps.bruck import BRUCK
from dml.wire.collectives.steps.circulant import CIRCULANT, circulant_allreduce
from dml.wire.collectives.steps.doubling import DOUBLING
from dml.wire.collectives.steps.neighbours import NEIGHBOURS
from dml.wire.collectives.steps.run import all_gather_by, reduce_scatter_by
from dml.wire.collectives.steps.swing import swing, swing_allreduce, swing_pattern
from dml.wire.collectives.steps.trivance import TRIVANCE, trivance, trivance_allreduce
from dml.wire.collectives.transposes.bruck import (
    bruck,
    bruck_all_to_all,
    bruck_seconds,
)
from dml.wire.collectives.transposes.pairwise import (
    pairwise,
    pairwise_all_to_all,
    pairwise_seconds,
    window_all_to_all,
)
from dml.wire.collectives.transposes.two_steps import (
    two_step_all_to_all,
    two_step_seconds,
    two_steps,
)
from dml.wire.collectives.tree import tree_allreduce
from dml.wire.collectives.trees import binomial, chain, scatter_gather
from dml.wire.collectives.trees import circulant as circulant_trees
from dml.wire.collectives.trees import double_tree as double_trees
from dml.wire.collectives.trees.double_tree import (
    double_tree,
    double_tree_allreduce,
    double_tree_seconds,
)
from dml.wire.collectives.trees.run import PIECE, broadcast_by, reduce_by
from dml.wire.costs import allreduce as cost
from dml.wire.costs import windows as window_cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans import broadcasts, schedules, windows
from dml.wire.plans.broadcasts import Broadcast
from dml.wire.plans.windows import Pattern


class Algorithm(NamedTuple):
    """An algorithm of a collective.

    Attributes:
      function: The algorithm.
      schedule: (size, length, itemsize) -> rounds of messages; None without messages.
      seconds: (job, rates) -> predicted seconds; None if there is no formula.
      any_size: Whether all ranks do the same for any number of ranks; otherwise the
        first ranks are folded in pairs unless the number is a power of two (or another
        number that the docstring names).
    """

    function: Callable[..., Any]
    schedule: Callable[..., Iterator[Round]] | None = None
    seconds: Callable[[Job, Rates], float] | None = None
    any_size: bool = True

    def having(self, **options: Any) -> "Algorithm":
        """Return the algorithm with options of all its functions."""
        function = partial(self.function, **options)
        schedule = self.schedule and partial(self.schedule, **options)
        seconds = self.seconds and partial(self.seconds, **options)
        return Algorithm(function, schedule, seconds, self.any_size)


def classic(name: str, function: Callable[..., None]) -> Algorithm:
    """Return an all-reduce of the tables of `plans.schedules` and `costs.allreduce`."""
    folds = name in ("butterfly", "halving_doubling")
    schedule, seconds = schedules.SCHEDULES.get(name), cost.SECONDS.get(name)
    return Algorithm(function, schedule, seconds, not folds)


def by_windows(function: Callable[..., None], pattern: Pattern) -> Algorithm:
    """Return the all-reduce of a pattern."""
    return Algorithm(
        function,
        partial(windows.allreduce_rounds, pattern),
        partial(window_cost.allreduce_seconds, pattern),
        not pattern.power,
    )


def by_patterns(
    function: Callable[..., Any],
    schedule: Callable[..., Iterator[Round]],
    seconds: Callable[[Pattern, Job, Rates], float],
) -> dict[str, Algorithm]:
    """Return an algorithm of each pattern; all functions take the pattern first."""
    return {
        name: Algorithm(
            partial(function, pattern),
            partial(schedule, pattern),
            partial(seconds, pattern),
            not pattern.power,
        )
        for name, pattern in PATTERNS.items()
    }


def by_trees(
    function: Callable[..., Any], schedule: Callable[..., Iterator[Round]], cost: str
) -> dict[str, Algorithm]:
    """Return an algorithm of each tree; its module has the cost by this name."""
    return {
        name: Algorithm(
            partial(function, tree),
            partial(schedule, tree, segment=PIECE),
            getattr(costs, cost),
        )
        for name, (tree, costs) in TREES.items()
    }


FUNCTIONS: dict[str, Callable[..., None]] = {
    "star": star_allreduce,
    "tree": tree_allreduce,
    **CANDIDATES,
}
PATTERNS: dict[str, Pattern] = {
    "doubling": DOUBLING,
    "bruck": BRUCK,
    "circulant": CIRCULANT,
    "neighbours": NEIGHBOURS,
    "swing": swing_pattern(),
    "trivance": TRIVANCE,
}
TREES: dict[str, tuple[Broadcast, Any]] = {  # and the module with its costs
    "binomial": (binomial.BINOMIAL, binomial),
    "chain": (chain.CHAIN, chain),
    "scatter_gather": (scatter_gather.SCATTER_GATHER, scatter_gather),
    "double_tree": (double_trees.DOUBLE_TREE, double_trees),
    "circulant": (circulant_trees.CIRCULANT_TREES, circulant_trees),
}
SWING = by_windows(swing_allreduce, swing_pattern())

BROADCASTS = by_trees(broadcast_by, broadcasts.broadcast_rounds, "broadcast_seconds")
BRUCK_ALL_TO_ALL = Algorithm(bruck_all_to_all, bruck, bruck_seconds)
DOUBLING_SCAN = Algorithm(doubling_scan, doubling_scan_rounds, doubling_scan_seconds)

COLLECTIVES: dict[str, dict[str, Algorithm]] = {
    "allreduce": {
        **{name: classic(name, function) for name, function in FUNCTIONS.items()},
        "swing": SWING._replace(schedule=swing),
        "trivance": by_windows(trivance_allreduce, TRIVANCE)._replace(
            schedule=trivance
        ),
        "circulant": by_windows(circulant_allreduce, CIRCULANT),
        "bine": Algorithm(bine_allreduce, bine, cost.butterfly_seconds, False),
        "multiplying": Algorithm(
            multiplying_allreduce, multiplying, multiplying_seconds, False
        ),
        "double_tree": Algorithm(
            double_tree_allreduce, double_tree, double_tree_seconds
        ),
        "segmented_ring": Algorithm(
            segmented_ring_allreduce, segmented_ring, segmented_ring_seconds
        ),
        "torus": Algorithm(torus_allreduce, torus, torus_seconds),
        "one_shot": Algorithm(one_shot_allreduce, one_shot, one_shot_seconds),
        "two_shot": Algorithm(server_allreduce, two_shot, two_shot_seconds),
        "native": classic("native", native_allreduce),
    },
    "reduce_scatter": {
        "ring": Algorithm(reduce_scatter, ring_scatter_rounds, ring_scatter_seconds),
        "pat": Algorithm(
            pat.pat_reduce_scatter, pat.pat_scatter_rounds, pat.pat_scatter_seconds
        ),
        **by_patterns(
            reduce_scatter_by, windows.scatter_rounds, window_cost.scatter_seconds
        ),
    },
    "all_gather": {
        "ring": Algorithm(all_gather, ring_gather_rounds, ring_gather_seconds),
        "pat": Algorithm(
            pat.pat_all_gather, pat.pat_gather_rounds, pat.pat_gather_seconds
        ),
        **by_patterns(all_gather_by, windows.gather_rounds, window_cost.gather_seconds),
        "shared": Algorithm(shared_all_gather, None, shared_gather_seconds),
    },
    "broadcast": BROADCASTS
    | {
        "binomial": BROADCASTS["binomial"]._replace(function=broadcast),
        "shared": Algorithm(shared_broadcast, None, shared_broadcast_seconds),
    },
    "reduce": by_trees(reduce_by, broadcasts.reduce_rounds, "reduction_seconds"),
    "scan": {
        "chain": Algorithm(chain_scan, chain_scan_rounds, chain_scan_seconds),
        "doubling": DOUBLING_SCAN,
    },
    "exclusive_scan": {
        "chain": Algorithm(
            partial(chain_scan, exclusive=True), chain_scan_rounds, chain_scan_seconds
        ),
        "doubling": DOUBLING_SCAN.having(exclusive=True),
    },
    "all_to_all": {
        "pairwise": Algorithm(pairwise_all_to_all, pairwise, pairwise_seconds),
        "window": Algorithm(window_all_to_all, pairwise, pairwise_seconds),
        "bruck": BRUCK_ALL_TO_ALL,
        "bruck_4": BRUCK_ALL_TO_ALL.having(radix=4),
        "two_step": Algorithm(two_step_all_to_all, two_steps, two_step_seconds),
        "shared": Algorithm(shared_all_to_all, None, shared_all_to_all_seconds),
    },
}


def on_network(comm: Comm, names: Iterable[str], job: Job) -> list[float]:
    """Return the seconds of all-reduces on the network of virtual ranks.

    Those of the schedule on its links; of all-reduces in shared memory, those of the
    formula.
    """
    rates, found = machine_rates(comm), []
    for name in names:
        _, schedule, seconds, _ = COLLECTIVES["allreduce"][name]
        if schedule is None or name == "hierarchical":
            assert seconds
            found.append(seconds(job, rates))
        else:
            assert comm.platform.seconds
            rounds = schedule(job.size, job.length, job.itemsize)
            found.append(comm.platform.seconds(rounds))
    return found


OWN = [name for name in COLLECTIVES["allreduce"] if name != "native"]
AUTO = {  # all-reduces that choose
    "auto": FEW,
    "auto_all": Candidates(
        "all: ",
        {name: COLLECTIVES["allreduce"][name].function for name in OWN},
        on_network,
    ),
}
COLLECTIVES["allreduce"] |= {
    "auto": Algorithm(auto_allreduce),
    "auto_all": Algorithm(partial(auto_allreduce, among=AUTO["auto_all"])),
}
ALLREDUCE: dict[str, Callable[..., None]] = {
    name: algorithm.function for name, algorithm in COLLECTIVES["allreduce"].items()
}
# All-reduces whose operands keep the order of the ranks, for every number of ranks.
ORDERED = ["star", "tree", "shared", "butterfly", "multiplying", "one_shot", "two_shot"]
