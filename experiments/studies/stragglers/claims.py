"""Claims on waiting for the slowest of n workers, judged by runs of stragglers.py.

A worker takes X = c + Exp(mu) seconds, with c = 1 and mu = 0.5 in the lecture's figure.
"""

from collections.abc import Sequence

from lab.claims import Verdict, claim, nonempty, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

C, MU = 1.0, 0.5
FIGURE = f"shifted_exponential:{C:g},{MU:g}"  # --law of the figure
ORACLE_TOLERANCE = 1e-9  # relative: sums in another order
MEAN_TOLERANCE = 0.05  # relative: a mean of few draws
# Bounds of real seconds relative to virtual ones: ranks on busy cores wake up late.
MIN_RATIO, MAX_RATIO = 0.95, 1.25


@claim("the time of the slowest worker grows as log n", "1 + (ln n + 0.58)/0.5")
def logarithm(run: Run) -> Verdict:
    """The slowest of n takes c + H_n/mu seconds, within 5 %, for every n."""
    steps = rows(run, barrier="synchronous", law=FIGURE)
    steps = sorted(steps, key=lambda row: row["workers"])
    deviations = [row["maxplus"] / slowest(row["workers"]) - 1 for row in steps]
    measured = ", ".join(f"{row['workers']:,}: {row['maxplus']:.1f} s" for row in steps)
    worst = max(deviations, key=abs)
    reason = f"{worst:+.1%} from the formula at most"
    return verdict(abs(worst) <= MEAN_TOLERANCE, measured, reason)


def slowest(n: int) -> float:
    """Return the mean of the largest of n draws of c + Exp(mu)."""
    return C + sum(1 / k for k in range(1, n + 1)) / MU


@claim("virtual ranks take the times of max-plus recurrences", "closed form")
def running(run: Run) -> Verdict:
    """Virtual ranks differ from max-plus on the same draws by less than 1e-9."""
    return recursion(run.rows)


@claim("SSP workers take the times of max-plus recurrences", "definition")
def ssp_clock(run: Run) -> Verdict:
    """Virtual SSP workers differ from the max-plus recurrence by less than 1e-9."""
    return recursion(rows(run, barrier="bounded"))


def recursion(steps: Sequence[Row]) -> Verdict:
    """Judge the largest deviation from max-plus, as a share of the total time."""
    worst = max(row["virtual_error"] for row in steps)
    holds = worst < ORACLE_TOLERANCE
    return verdict(
        holds, f"{worst:.0e} of the total time", f"required {ORACLE_TOLERANCE:g}"
    )


@claim("real ranks take the drawn delays", "closed form")
def asleep(run: Run) -> Verdict:
    """Real ranks that sleep take 0.95 to 1.25 of the seconds of virtual ranks."""
    ratios = {
        row["barrier"]: row["measured"] / row["virtual"]
        for row in run.rows
        if row["measured"] is not None
    }
    measured = ", ".join(f"{barrier} {ratio:.2f}" for barrier, ratio in ratios.items())
    holds = all(
        MIN_RATIO <= ratio <= MAX_RATIO
        for ratio in nonempty(ratios, "measured").values()
    )
    reason = f"required {MIN_RATIO} to {MAX_RATIO}"
    return verdict(holds, f"of virtual seconds: {measured}", reason)


CLAIMS = (logarithm, running, ssp_clock, asleep)
