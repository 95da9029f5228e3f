"""Claims on one table in shared memory, judged by runs of hogwild.py and cyclades.py.

Niu et al., HOGWILD!, NIPS 2011; Pan et al., CYCLADES, NIPS 2016.

Speeds are compared by their speed-up over serial: the median over pairs of consecutive
timings, so that a slow phase of the host affects both. Updates per second are medians
of each strategy separately and are not compared. A difference of 5 % is noise: two runs
on a quiet machine differ by as much.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from lab.claims import Verdict, claim, grouped, nonempty, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

HOGWILD_POLICY, ROUND_ROBIN = "hogwild", "roundrobin"
POLICIES = (HOGWILD_POLICY, "locked", ROUND_ROBIN)  # the published order, fastest first
NOISE = 0.05  # relative difference of speeds of two runs on a quiet machine
LEVEL = 0.9  # share of HOGWILD!'s speed that counts as equal to it
PARITY_US, PARITY_FACTOR = 1000.0, 3.0  # published microseconds; accepted factor
MIN_CORES = 0.5  # least share of the published cores to test a speed-up
NIU_CORES, PAN_CORES = 10, 18  # published
RATE_RATIO = 1.25  # least ratio of two rates, each searched to a ratio of 1.25
SVM_SPEEDUP, SPEEDUP_SHARE = 3.0, 0.8  # published speed-up; required share of it


def rows_of_most_workers(run: Run) -> dict[str, dict[str, Row]]:
    """Return the rows of the most workers, by problem and strategy."""
    runs = rows(run, kind="race")
    most = max(row["workers"] for row in runs)
    widest = [row for row in runs if row["workers"] == most]
    return {
        name: {row["strategy"]: row for row in group}
        for name, group in grouped(widest, "problem").items()
    }


@claim("lock-free >= locked >= round robin", "cut 9x, round robin 5x; RCV1 3x")
def ordered(run: Run) -> Verdict:
    """On every problem, with the most workers, hogwild >= locked >= round robin.

    Speed-ups over serial are compared, with a tolerance of 5 %.
    """
    complete = {
        name: [rows_by_policy[policy]["speedup"] for policy in POLICIES]
        for name, rows_by_policy in rows_of_most_workers(run).items()
        if all(policy in rows_by_policy for policy in POLICIES)
    }
    violations, texts = [], []
    for name, speeds in nonempty(complete, ", ".join(POLICIES)).items():
        if any(fast < slow * (1 - NOISE) for fast, slow in pairwise(speeds)):
            violations.append(name)
        texts.append(f"{name} {' / '.join(f'{speed:.2f}' for speed in speeds)}")
    reason = (
        f"another order: {', '.join(violations)}"
        if violations
        else "this order on every problem"
    )
    return verdict(not violations, f"speed-ups {', '.join(texts)}", reason)


@claim("round robin catches up with long gradients", "figure")
def level(run: Run) -> Verdict:
    """Round robin has less than 90 % of HOGWILD!'s speed with the shortest gradients.

    With the longest gradients it has 90 % or more.
    """
    times, ratios = round_robin_ratios(rows(run, kind="delay"))
    measured = (
        f"{ratios[0]:.2f} at {times[0]:.2g} us, {ratios[-1]:.2f} at {times[-1]:.3g} us"
    )
    return verdict(ratios[0] < LEVEL <= ratios[-1], measured, f"required {LEVEL:g}")


@claim("round robin is as fast only with gradients of 1 ms or more", "> 1 ms")
def late(run: Run) -> Verdict:
    """Round robin has 90 % of HOGWILD!'s speed only with gradients of 1 ms or more.

    A third of 1 ms is accepted, as machines differ.
    """
    times, ratios = round_robin_ratios(rows(run, kind="delay"))
    last_below = max((i for i, ratio in enumerate(ratios) if ratio < LEVEL), default=-1)
    parity = times[last_below + 1] if last_below + 1 < len(times) else math.inf
    measured = (
        f"with {parity:.3g} us or more"
        if parity < math.inf
        else f"not up to {times[-1]:.3g} us"
    )
    required = PARITY_US / PARITY_FACTOR
    if parity == math.inf and times[-1] < required:
        return untested("no gradient took as long", measured)
    return verdict(parity >= required, measured, f"required {required:.0f} us or more")


def round_robin_ratios(
    delays: Sequence[Row], other: str = HOGWILD_POLICY
) -> tuple[list[float], list[float]]:
    """Return microseconds of a gradient, and round robin's speed over another's.

    delays: rows of kind "delay".
    other: locking policy, or "serial".
    """
    speeds, base = (
        {
            row["gradient_us"]: row["speedup"]
            for row in delays
            if row["strategy"] == policy
        }
        for policy in (ROUND_ROBIN, other)
    )
    times = sorted(nonempty(speeds, ROUND_ROBIN))
    if other == "serial":  # the reference of speed-ups, which has no rows
        base = dict.fromkeys(times, 1.0)
    return times, [speeds[us] / base[us] for us in times]


@claim("the speed-up falls with rho", "rho 0.44: 3x, less: 4 to 9x")
def falls(run: Run) -> Verdict:
    """HOGWILD!'s speed-up is lower by more than 5 % if one row is in every edge.

    The two generated problems differ only in rho, which is 0.0002 and 1.
    """
    by_problem = rows_of_most_workers(run)
    sparse = by_problem["sparse"][HOGWILD_POLICY]["speedup"]
    dense = by_problem["dense"][HOGWILD_POLICY]["speedup"]
    most = sparse * (1 - NOISE)
    measured = f"{sparse:.2f}x at rho = 0.0002, {dense:.2f}x at 1"
    return verdict(dense < most, measured, f"required less than {most:.2f}x")


@claim("many cores train an SVM faster", "3x at 10 of 12 cores")
def threefold(run: Run) -> Verdict:
    """On 5 cores or more, HOGWILD!'s SVM is 2.4 times as fast as serial, or faster."""
    by_problem = rows_of_most_workers(run)
    if "svm" not in by_problem:
        return untested("no SVM was timed")
    row = by_problem["svm"][HOGWILD_POLICY]
    used = min(row["workers"], run.summary["cores"])
    measured = f"{row['speedup']:.2f}x by {row['workers']} workers"
    if used < MIN_CORES * NIU_CORES:
        return untested(f"{used} cores of {NIU_CORES}", measured)
    required = SPEEDUP_SHARE * SVM_SPEEDUP
    return verdict(row["speedup"] >= required, measured, f"required {required:.2g}x")


HOGWILD = (ordered, level, late, falls, threefold)


@claim("bit-identical to serial for any number of workers", "exact")
def same_bits(run: Run) -> Verdict:
    """For all batches, the tables of all numbers of workers have equal hashes."""
    bits = rows(run, kind="bits")
    same = sum(row["equal"] for row in bits)
    counts = ", ".join(sorted({f"{row['workers']}" for row in bits}))
    measured = f"{same} of {len(bits)} equal, by {counts} workers"
    return verdict(same == len(bits), measured, "bit for bit")


@claim("faster than HOGWILD!", "up to 40 % on 18 cores")
def quicker(run: Run) -> Verdict:
    """CYCLADES makes over 5 % more updates per second than HOGWILD! on some problem.

    If not, the claim is untested on less than half of the published 18 cores.
    """
    by_problem = rows_of_most_workers(run)
    ratios_by_problem = {
        name: rows_by_strategy["cyclades"]["to_hogwild"]
        for name, rows_by_strategy in by_problem.items()
    }
    most = max(
        row["workers"]
        for rows_by_strategy in by_problem.values()
        for row in rows_by_strategy.values()
    )
    measured = ", ".join(
        f"{name} {ratio:.2f}x" for name, ratio in ratios_by_problem.items()
    )
    used = min(most, run.summary["cores"])
    holds = max(ratios_by_problem.values()) > 1 + NOISE
    if not holds and used < MIN_CORES * PAN_CORES:
        return untested(f"{used} cores of {PAN_CORES}", measured)
    return verdict(holds, measured, f"{most} workers")


@claim("a larger stable step", "figure")
def larger(run: Run) -> Verdict:
    """On every problem the largest stable step is 1.25 times HOGWILD!'s, or more.

    HOGWILD! is simulated, with the largest of the tested delays of reads.
    """
    steps = {
        (row["problem"], row["strategy"]): row["rate"] for row in rows(run, kind="step")
    }
    delays = [int(name.split()[1]) for _, name in steps if name.startswith("late")]
    latest = max(nonempty(delays, "late"))
    ratios = {
        name: steps[name, "cyclades"] / (steps[name, f"late {latest}"] or math.nan)
        for name in dict.fromkeys(name for name, _ in steps)
    }
    measured = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    holds = all(ratio >= RATE_RATIO for ratio in ratios.values())
    return verdict(holds, measured, f"reads delayed by {latest} updates")


CYCLADES = (same_bits, quicker, larger)
