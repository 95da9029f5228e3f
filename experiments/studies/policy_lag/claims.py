"""Claims of IMPALA (Espeholt 2018) on policy lag, judged by runs of policy_lag.py.

The rules were written before the first run. A return is the mean over the evaluations
of a training, which is the area under its curve, and then over the seeds. IMPALA's
Table 2 compares corrections on five tasks of DeepMind Lab; the published numbers are
those of rooms_watermaze without replay.
"""

from lab.claims import Verdict, claim, matching, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

MIN_SEEDS = 3  # fewest trainings whose means are compared
KEPT = 0.9  # least fraction of the return without lag
ERRORS = 2.0  # least difference in standard errors
FEW = f"fewer than {MIN_SEEDS} seeds"


def row_of(run: Run, correction: str, lag: int) -> Row:
    """Return the row of a correction and lag; KeyError if the run has none."""
    chosen = matching(run.rows, correction=correction, lag=lag)
    if not chosen:
        raise KeyError(f"{correction} with a lag of {lag}")
    return chosen[0]


def most(run: Run) -> int:
    """Return the largest lag of a run."""
    return max(row["lag"] for row in run.rows)


def kept(run: Run, correction: str) -> tuple[float, str]:
    """Return the return with the largest lag by that without lag, and a text."""
    before, after = (row_of(run, correction, lag) for lag in (0, most(run)))
    fraction = after["mean_return"] / before["mean_return"]
    text = (
        f"{correction}: {before['mean_return']:.0f} without lag, "
        f"{after['mean_return']:.0f} with a lag of {most(run)} updates"
    )
    return fraction, text


@claim("V-trace holds its return under policy lag", "figure E.1, no number")
def vtrace_holds(run: Run) -> Verdict:
    """With the largest lag V-trace has at least 90 % of its return without lag."""
    fraction, text = kept(run, "vtrace")
    if most(run) == 0 or row_of(run, "vtrace", 0)["seeds"] < MIN_SEEDS:
        return untested(FEW, text)
    return verdict(fraction >= KEPT, text, f"{fraction:.0%} remains, required 90 %")


@claim("without correction the return falls under policy lag", "figure E.1, no number")
def none_falls(run: Run) -> Verdict:
    """With the largest lag `none` has less than 90 % of its return without lag."""
    fraction, text = kept(run, "none")
    if most(run) == 0 or row_of(run, "none", 0)["seeds"] < MIN_SEEDS:
        return untested(FEW, text)
    return verdict(fraction < KEPT, text, f"{fraction:.0%} remains, required < 90 %")


def above(run: Run, better: str, worse: str) -> Verdict:
    """Judge whether one correction beats another one with the largest lag."""
    first, second = (row_of(run, name, most(run)) for name in (better, worse))
    difference = first["mean_return"] - second["mean_return"]
    squares = (row["mean_return_error"] ** 2 for row in (first, second))
    error = sum(squares) ** 0.5
    text = (
        f"{better} {first['mean_return']:.0f}, {worse} {second['mean_return']:.0f} "
        f"with a lag of {most(run)} updates"
    )
    if first["seeds"] < MIN_SEEDS or most(run) == 0:
        return untested(FEW, text)
    reason = f"difference {difference:.0f} ± {error:.0f}, required 2 standard errors"
    return verdict(difference > ERRORS * error, text, reason)


@claim("V-trace beats no correction", "46.8 against 40.3")
def vtrace_above_none(run: Run) -> Verdict:
    """With the largest lag V-trace is above `none` by 2 standard errors."""
    return above(run, "vtrace", "none")


@claim("importance weights of 1 step beat no correction", "51.8 against 40.3")
def one_step_above_none(run: Run) -> Verdict:
    """With the largest lag `one_step` is above `none` by 2 standard errors."""
    return above(run, "one_step", "none")


@claim("the epsilon-correction beats no correction", "44.2 against 40.3")
def epsilon_above_none(run: Run) -> Verdict:
    """With the largest lag `epsilon` is above `none` by 2 standard errors."""
    return above(run, "epsilon", "none")


CLAIMS = (
    vtrace_holds,
    none_falls,
    vtrace_above_none,
    one_step_above_none,
    epsilon_above_none,
)
