"""Claims on checkpoints, judged by a run of checkpoints.py.

Wang 2023, Gemini; Young 1974 and Daly 2006; Mohan 2021, CheckFreq. The bound of
CheckFreq is cited as reported.
"""

from lab.claims import Verdict, claim, rows, untested, verdict

from dml.runs.results import Run

TOLERANCE = 0.01  # relative, of simulated times
DEVIATIONS = 4  # standard errors of a share of random sets
DIGITS = 0.0005  # of a published probability in percent with one digit
PUBLISHED = {("groups", 2): 0.933, ("ring", 2): 0.867, ("groups", 3): 0.800}
BOUND = 0.035  # CheckFreq's overhead
MAX_ERROR = 0.01  # standard error of the overhead


@claim(
    "16 machines with 2 copies recover from 2 and 3 failures",
    "groups 93.3 % and 80.0 %, a ring 86.7 % of 2",
)
def recovery(run: Run) -> Verdict:
    """Formulas have the published digits; random sets are within 4 standard errors."""
    by_key = {
        (row["placement"], row["failures"]): row
        for row in rows(run, table="recovery")
        if (row["machines"], row["copies"]) == (16, 2)
    }
    chosen = {key: by_key[key] for key in PUBLISHED}
    exact = all(
        abs(row["probability"] - PUBLISHED[key]) <= DIGITS
        for key, row in chosen.items()
    )
    drawn = all(
        abs(row["sampled"] - row["probability"]) <= DEVIATIONS * standard_error(row)
        for row in chosen.values()
    )
    measured = ", ".join(
        f"{name} of {failures} {row['probability']:.1%} ({row['sampled']:.1%})"
        for (name, failures), row in chosen.items()
    )
    return verdict(exact and drawn, measured, "in parentheses: random sets")


def standard_error(row: dict[str, float]) -> float:
    """Return the standard error of the share of recoverable random sets."""
    p = row["probability"]
    return float((p * (1 - p) / row["draws"]) ** 0.5)


@claim("a run takes M e^(R/M) (e^((tau+d)/M) - 1) W/tau", "closed form")
def expected_time(run: Run) -> Verdict:
    """Random runs and a virtual cluster are within 1 % of the formula."""
    intervals = rows(run, table="intervals")
    errors = {
        name: max((row[f"{key}_error"] for row in intervals), key=abs)
        for name, key in (("random runs", "sampled"), ("virtual cluster", "virtual"))
    }
    measured = ", ".join(f"{name} {error:+.2%}" for name, error in errors.items())
    holds = all(abs(error) <= TOLERANCE for error in errors.values())
    return verdict(holds, measured, f"{len(intervals)} intervals, required 1 %")


@claim("the best interval is close to sqrt(2 d M)", "Young 1974, Daly 2006")
def best_interval(run: Run) -> Verdict:
    """Random runs are shortest at the best interval; Young's adds at most 1 %."""
    least = min(rows(run, table="intervals"), key=lambda row: row["sampled"])
    by_name = {row["formula"]: row for row in rows(run, table="formulas")}
    above = by_name["Young"]["above_best"]
    measured = (
        f"least at {least['factor']:g} times the best interval; Young's takes "
        f"{above:.2%} more"
    )
    holds = least["factor"] == 1 and above <= TOLERANCE
    return verdict(holds, measured, f"{by_name['exact']['interval']:.0f} s is the best")


@claim("checkpoints in the background take at most 3.5 % of the time", "3.5 %")
def bounded(run: Run) -> Verdict:
    """The added seconds of a save are at most 3.5 % of the work between saves.

    Both are medians; the added seconds are relative to steps without saves. Not tested
    if the standard error is above 1 %.
    """
    (row,) = rows(run, table="overhead", mode="background")
    (other,) = rows(run, table="overhead", mode="synchronous")
    measured = (
        f"{row['overhead']:.1%} ± {row['error']:.1%} with a save every "
        f"{row['interval']:.2f} s"
    )
    reason = f"{row['megabytes']:.0f} MB, synchronous every {other['interval']:.2f} s"
    if row["error"] > MAX_ERROR:
        return untested("other programs disturb the measurement", measured)
    return verdict(row["overhead"] <= BOUND, measured, reason)


CLAIMS = (recovery, expected_time, best_interval, bounded)
