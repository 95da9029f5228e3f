"""Rounds and bytes of each method until the variance is below a target."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dml.runs.writers import Row
from dml.wire.averaging.push_sum import HEAD
from dml.wire.plans.averaging.contraction import rounds_to
from dml.wire.plans.averaging.faults import Faults
from dml.wire.plans.averaging.mixing import Topology, messages
from dml.wire.plans.trees import Tree
from studies.averaging.methods import (
    ITEMSIZE,
    METHODS,
    Trajectory,
    evaluate,
    run,
)

TARGETS = (1e-4, 1e-9)  # variances; the first values have a variance of 1
RUN_STEPS = 60_000  # messages of all ranks that are run; more are evaluated
EVALUATED_STEPS = 8e7  # messages that are evaluated; more rounds are computed
SAME = 1e-12  # largest difference of a run from its evaluation


def first_below(variances: np.ndarray, target: float) -> int | None:
    """Return the first round with a variance below a target; None if there is none."""
    below = np.flatnonzero(variances < target)
    return int(below[0]) if len(below) else None


def messages_per_round(plan: Topology | Tree) -> float:
    """Return the messages of all peers in a round; of a group, one per member."""
    if isinstance(plan, Tree):
        return 2 * (plan.size - 1)
    if plan.groups:
        return plan.size
    return sum(len(one.source) for one in messages(plan, 0))


def bytes_per_round(name: str, plan: Topology | Tree, t: int, length: int) -> float:
    """Return the bytes that all peers send in a round without faults.

    A group of g ranks sends 2(g - 1)n values; if g is no power of 2, folding adds 2n
    values for each rank beyond, and saves as many in the groups of places.
    """
    nbytes = length * ITEMSIZE
    if isinstance(plan, Tree):
        return messages_per_round(plan) * (HEAD + nbytes)
    if plan.groups:
        return float(2 * (plan.groups(t).sizes().clip(1) - 1).sum() * nbytes)
    head = HEAD if name == "push_sum" else 0
    return sum(len(one.source) for one in messages(plan, t)) * (head + nbytes)


def expected_rounds(plan: Topology | Tree) -> list[int] | None:
    """Return the rounds to each target by a formula; None if there is none."""
    if isinstance(plan, Tree):
        return [plan.diameter()] * len(TARGETS)
    if plan.spectrum is None or plan.period != 1 or plan.groups:
        return None
    return [rounds_to(plan, target) for target in TARGETS]


def rows(sizes: Sequence[int], length: int, seed: int) -> Iterator[Row]:
    """Yield a row for each method and number of peers.

    Args:
      sizes: Numbers of peers.
      length: Number of values of a peer.
      seed: Random seed.
    """
    for p in sizes:
        for name in METHODS:
            yield row(name, p, length, seed)


def row(name: str, p: int, length: int, seed: int) -> Row:
    """Return the row of a method: run, evaluated, or computed if rounds are many."""
    plan = METHODS[name].plan(p, seed)
    formula, sent = expected_rounds(plan), messages_per_round(plan)
    common = {"protocol": name, "p": p}
    if formula and formula[-1] * sent > EVALUATED_STEPS:
        return common | {"kind": "formula"} | counts(formula, name, plan, length)
    limit = 4 * formula[-1] + 10 if formula else 50 * p.bit_length()
    found = evaluate(name, p, seed, limit, TARGETS[-1])
    rounds = [first_below(found.variances, target) for target in TARGETS]
    result = common | {"kind": "evaluated"} | counts(rounds, name, plan, length)
    result["mean_error"] = abs(found.mean_error)
    if rounds[-1] is not None and rounds[-1] * sent <= RUN_STEPS:
        return result | {"kind": "run"} | counted(name, p, length, seed, found)
    return result


def counts(
    rounds: Sequence[int | None], name: str, plan: Topology | Tree, length: int
) -> Row:
    """Return the rounds to each target, and bytes per peer to the last one."""
    few, many = rounds
    size, period = plan.size, getattr(plan, "period", 1) or 1
    by_round = [bytes_per_round(name, plan, t, length) for t in range(period)]
    sent = None
    if many is not None:
        cycles, more = divmod(many, period)
        sent = (cycles * sum(by_round) + sum(by_round[:more])) / size
    return {"rounds_1e-4": few, "rounds_1e-9": many, "bytes": sent}


def counted(name: str, p: int, length: int, seed: int, found: Trajectory) -> Row:
    """Run the evaluated rounds on virtual ranks; return counted bytes and seconds."""
    rounds = len(found.variances) - 1
    ran = run(name, p, seed, rounds, length)
    difference = float(np.abs(ran.values - found.values).max())
    return {
        "bytes": ran.bytes / p,
        "seconds": ran.seconds,
        "mean_error": abs(ran.mean_error),
        "difference": difference,
        "rounds_1e-4": first_below(ran.variances, TARGETS[0]),
        "rounds_1e-9": first_below(ran.variances, TARGETS[1]),
    }


FAULTY = ("one_peer_exponential", "push_sum", "relay_tree", "random_groups", "moshpit")


def fault_rows(p: int, kinds: dict[str, Faults], rounds: int) -> Iterator[Row]:
    """Yield a row for each kind of faults and each method, run on virtual ranks.

    Args:
      p: Number of ranks.
      kinds: Faults by name.
      rounds: Number of rounds.
    """
    for kind, faults in kinds.items():
        for name in FAULTY:
            ran = run(name, p, faults.seed, rounds, 1, faults)
            evaluated = evaluate(name, p, faults.seed, rounds, 0.0, faults)
            yield {
                "faults": kind,
                "protocol": name,
                "p": p,
                "rounds_1e-4": first_below(ran.variances, TARGETS[0]),
                "rounds_1e-9": first_below(ran.variances, TARGETS[1]),
                "mean_error": abs(ran.mean_error),
                "difference": float(np.abs(ran.values - evaluated.values).max()),
            }


def fault_kinds(loss: float, absence: float, delay: int, seed: int) -> dict[str, Any]:
    """Return the faults to compare, by name."""
    return {
        "none": Faults(seed=seed),
        f"loss {loss:g}": Faults(loss=loss, seed=seed),
        f"absence {absence:g}": Faults(absence=absence, seed=seed),
        f"delay 0 to {delay}": Faults(delay=delay, seed=seed),
    }
