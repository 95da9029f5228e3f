"""Claims of Pan et al., CYCLADES, NIPS 2016, judged by a run of cyclades.py.

The larger stable step is asked on every problem, against the latest simulated reads. (A
larger step on some problem is a weaker claim: one problem in three has it by chance.)
"""

import math

from claims import Verdict, claim, nonempty, untested, verdict
from hogwild_claims import CORES, NOISE

from dml.metrics.results import Run

CORES_USED = 18  # published
LARGER = 1.25  # of two steps, each of which is searched to within 1.19


@claim("the bits of serial on any workers", "exact")
def same_bits(run: Run) -> Verdict:
    """The hash is that of one worker, for all numbers of workers and batches."""
    rows = nonempty([row for row in run.rows if row["kind"] == "bits"], "bits")
    same = sum(row["equal"] for row in rows)
    counts = ", ".join(sorted({f"{row['workers']}" for row in rows}))
    ours = f"{same} of {len(rows)} equal, by {counts} workers"
    return verdict(same == len(rows), ours, "bit for bit")


@claim("faster than HOGWILD!", "up to 40 % on 18 cores")
def quicker(run: Run) -> Verdict:
    """CYCLADES makes over 5 % more updates a second than HOGWILD! on some problem.

    If not, that is no evidence on less than half of the published 18 cores.
    """
    rows = [row for row in run.rows if row["kind"] == "race"]
    most = max(row["workers"] for row in rows)
    found = {
        row["problem"]: row["to_hogwild"]
        for row in rows
        if row["workers"] == most and row["way"] == "cyclades"
    }
    ours = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in found.items())
    used = min(most, run.summary["cores"])
    holds = max(found.values()) > 1 + NOISE
    if not holds and used < CORES * CORES_USED:
        return untested(f"{used} cores of {CORES_USED}", ours)
    return verdict(holds, ours, f"{most} workers")


@claim("a larger stable step", "figure")
def larger(run: Run) -> Verdict:
    """On every problem the largest stable step is 1.25 times HOGWILD!'s, or more.

    HOGWILD! on many workers is simulated: all reads are late by that many updates.
    """
    rows = [row for row in run.rows if row["kind"] == "step"]
    steps = {(row["problem"], row["way"]): row["rate"] for row in rows}
    delays = [int(way.split()[1]) for _, way in steps if way.startswith("late")]
    latest = max(nonempty(delays, "late"))
    ratios = {
        name: steps[name, "cyclades"] / (steps[name, f"late {latest}"] or math.nan)
        for name in dict.fromkeys(name for name, _ in steps)
    }
    ours = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    holds = all(ratio >= LARGER for ratio in ratios.values())
    return verdict(holds, ours, f"reads {latest} updates late")


CLAIMS = (same_bits, quicker, larger)
