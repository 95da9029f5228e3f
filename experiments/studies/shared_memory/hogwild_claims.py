"""Claims on one table in shared memory, judged by runs of hogwild.py and cyclades.py.

Niu et al., HOGWILD!, NIPS 2011; Pan et al., CYCLADES, NIPS 2016.

Speeds are compared by their speed-up over serial: the median of pairs of turns that ran
one after another, which a slow phase of the host affects alike. (Updates a second are
medians of each strategy alone, and are not compared.) A difference of 5 % is noise, not
3 %: two runs on a quiet machine differ by as much. The larger stable step is asked on
every problem, against the latest simulated reads. (A larger step on some problem only
is a weaker claim.)
"""

import math
from collections.abc import Sequence

from lab.claims import Verdict, claim, grouped, nonempty, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

LADDER = ("hogwild", "locked", "roundrobin")  # the published order, fastest first
NOISE = 0.05  # relative difference of speeds of two runs on a quiet machine
LEVEL = 0.9  # share of HOGWILD!'s speed that counts as equal to it
PARITY_US, CLOSER = 1000.0, 3.0  # published microseconds; accepted factor
CORES = 0.5  # least share of the published cores to test a speed-up
NIU_CORES, PAN_CORES = 10, 18  # published
LARGER = 1.25  # least ratio of two rates, each searched to within 1.19
THREEFOLD, GOAL = 3.0, 0.8  # published speed-up; required share of it


def of_most_workers(run: Run) -> dict[str, dict[str, Row]]:
    """Return the rows of the runs with the most workers, by problem and strategy."""
    runs = rows(run, kind="race")
    most = max(row["workers"] for row in runs)
    widest = [row for row in runs if row["workers"] == most]
    return {
        name: {row["way"]: row for row in some}
        for name, some in grouped(widest, "problem").items()
    }


@claim("lock-free >= locked >= round robin", "cut 9x, round robin 5x; RCV1 3x")
def ordered(run: Run) -> Verdict:
    """On every problem, at the most workers, hogwild >= locked >= round robin.

    Speed-ups over serial are compared; 5 % of a speed are noise.
    """
    complete = {
        name: [policies[way]["speedup"] for way in LADDER]
        for name, policies in of_most_workers(run).items()
        if all(way in policies for way in LADDER)
    }
    wrong, texts = [], []
    for name, speeds in nonempty(complete, ", ".join(LADDER)).items():
        pairs = zip(speeds, speeds[1:], strict=False)
        if not all(one >= two * (1 - NOISE) for one, two in pairs):
            wrong.append(name)
        texts.append(f"{name} {' / '.join(f'{speed:.2f}' for speed in speeds)}")
    why = f"not so: {', '.join(wrong)}" if wrong else "so on every problem"
    return verdict(not wrong, f"speed-ups {', '.join(texts)}", why)


@claim("round robin catches up with long gradients", "figure")
def level(run: Run) -> Verdict:
    """Round robin has less than 90 % of HOGWILD!'s speed with the shortest gradients.

    With the longest gradients it has 90 % or more.
    """
    takes, ratios = round_robin(rows(run, kind="delay"))
    measured = (
        f"{ratios[0]:.2f} at {takes[0]:.2g} us, {ratios[-1]:.2f} at {takes[-1]:.3g}"
    )
    return verdict(ratios[0] < LEVEL <= ratios[-1], measured, f"asked {LEVEL:g}")


@claim("and only from 1 ms a gradient on", "> 1 ms")
def late(run: Run) -> Verdict:
    """Round robin has 90 % of HOGWILD!'s speed only from 1 ms a gradient on.

    A third of 1 ms is accepted, as machines differ.
    """
    takes, ratios = round_robin(rows(run, kind="delay"))
    below = [i for i, ratio in enumerate(ratios) if ratio < LEVEL]
    i = below[-1] if below else -1
    at = takes[i + 1] if i + 1 < len(takes) else math.inf
    measured = (
        f"from {at:.3g} us on" if at < math.inf else f"not up to {takes[-1]:.3g} us"
    )
    required = PARITY_US / CLOSER
    if at == math.inf and takes[-1] < required:
        return untested("no gradient took as long", measured)
    return verdict(at >= required, measured, f"asked {required:.0f} us or more")


def round_robin(
    delays: Sequence[Row], way: str = LADDER[0]
) -> tuple[list[float], list[float]]:
    """Return microseconds of a gradient, and round robin's speed over a strategy's."""
    turns, base = (
        {row["gradient_us"]: row["speedup"] for row in delays if row["way"] == one}
        for one in (LADDER[-1], way)
    )
    takes = sorted(nonempty(turns, LADDER[-1]))
    # serial, the reference of speed-ups, has no rows
    return takes, [turns[us] / (1.0 if way == "serial" else base[us]) for us in takes]


@claim("the speed-up falls with rho", "rho 0.44: 3x, less: 4 to 9x")
def falls(run: Run) -> Verdict:
    """HOGWILD!'s speed-up is lower by more than 5 % where one row is in every edge.

    The two problems are generated and alike but for rho, 0.0002 and 1.
    """
    policies = of_most_workers(run)
    few, many = (policies[name]["hogwild"]["speedup"] for name in ("sparse", "dense"))
    measured = f"{few:.2f}x at rho = 0.0002, {many:.2f}x at 1"
    return verdict(
        many < few * (1 - NOISE), measured, f"asked {few * (1 - NOISE):.2f}x"
    )


@claim("many cores train an SVM faster", "3x at 10 of 12 cores")
def threefold(run: Run) -> Verdict:
    """On 5 cores or more, HOGWILD!'s SVM is 2.4 times as fast as serial, or faster."""
    runs = of_most_workers(run)
    if "svm" not in runs:
        return untested("no SVM was timed")
    row = runs["svm"]["hogwild"]
    used = min(row["workers"], run.summary["cores"])
    measured = f"{row['speedup']:.2f}x by {row['workers']} workers"
    if used < CORES * NIU_CORES:
        return untested(f"{used} cores of {NIU_CORES}", measured)
    required = GOAL * THREEFOLD
    return verdict(row["speedup"] >= required, measured, f"asked {required:.2g}x")


HOGWILD = (ordered, level, late, falls, threefold)


@claim("the bits of serial on any workers", "exact")
def same_bits(run: Run) -> Verdict:
    """The hash is that of one worker, for all numbers of workers and batches."""
    bits = rows(run, kind="bits")
    same = sum(row["equal"] for row in bits)
    counts = ", ".join(sorted({f"{row['workers']}" for row in bits}))
    measured = f"{same} of {len(bits)} equal, by {counts} workers"
    return verdict(same == len(bits), measured, "bit for bit")


@claim("faster than HOGWILD!", "up to 40 % on 18 cores")
def quicker(run: Run) -> Verdict:
    """CYCLADES makes over 5 % more updates a second than HOGWILD! on some problem.

    If not, that is no evidence on less than half of the published 18 cores.
    """
    runs = of_most_workers(run)
    ratios_by_problem = {
        name: policies["cyclades"]["to_hogwild"] for name, policies in runs.items()
    }
    most = max(
        row["workers"] for policies in runs.values() for row in policies.values()
    )
    measured = ", ".join(
        f"{name} {ratio:.2f}x" for name, ratio in ratios_by_problem.items()
    )
    used = min(most, run.summary["cores"])
    holds = max(ratios_by_problem.values()) > 1 + NOISE
    if not holds and used < CORES * PAN_CORES:
        return untested(f"{used} cores of {PAN_CORES}", measured)
    return verdict(holds, measured, f"{most} workers")


@claim("a larger stable step", "figure")
def larger(run: Run) -> Verdict:
    """On every problem the largest stable step is 1.25 times HOGWILD!'s, or more.

    HOGWILD! on many workers is simulated: all reads are late by that many updates.
    """
    steps = {
        (row["problem"], row["way"]): row["rate"] for row in rows(run, kind="step")
    }
    delays = [int(way.split()[1]) for _, way in steps if way.startswith("late")]
    latest = max(nonempty(delays, "late"))
    ratios = {
        name: steps[name, "cyclades"] / (steps[name, f"late {latest}"] or math.nan)
        for name in dict.fromkeys(name for name, _ in steps)
    }
    measured = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    holds = all(ratio >= LARGER for ratio in ratios.values())
    return verdict(holds, measured, f"reads {latest} updates late")


CYCLADES = (same_bits, quicker, larger)
