"""Claims on gradient coding (Tandon 2017), judged by runs of gradient_coding.py.

A rule compares virtual seconds to a held-out AUC, of paired delays. The paper measured
on EC2; how its delays depend on the number of examples is not known. They are fixed in
the claims that do not name the load. AUCs that differ by 0.001 are taken as equal.
"""

from collections.abc import Sequence

from lab.claims import Verdict, claim, grouped, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row
from studies.gradient_coding.report import seconds_to
from studies.gradient_coding.schemes import (
    CYCLIC,
    FIXED,
    IGNORING,
    LOAD,
    REPETITION,
    WAITING,
)

REPORTED = "reported, n = 10, 20, 30"
ORACLE_TOLERANCE = 1e-9  # relative: sums in another order
SAME_AUC = 0.001  # difference of AUC that is ignored


def compare(run: Run, tail: str, coded: Sequence[str], other: str) -> Verdict:
    """Judge whether codes reach the AUC of another scheme first, for all n.

    Args:
      run: The run.
      tail: Key of TAILS.
      coded: Names of codes.
      other: Name of the scheme, whose AUC after its last update is to be
        reached, less SAME_AUC.
    """
    texts, wins = [], []
    for workers, group in grouped(rows(run, tail=tail), "workers").items():
        by_name: dict[str, Row] = {row["scheme"]: row for row in group}
        target = by_name[other]["auc"] - SAME_AUC
        least = seconds_to(by_name[other], target) or 0.0
        times = [seconds_to(by_name[name], target) for name in coded]
        wins += [time is not None and time < least for time in times]
        shown = [f"{time:.0f} s" if time is not None else "never" for time in times]
        texts.append(f"n = {workers}: {' and '.join(shown)}, {other} {least:.0f} s")
    reason = f"{sum(wins)} of {len(wins)} comparisons are won"
    return verdict(all(wins), "; ".join(texts), reason)


@claim("repetition is faster than waiting for all workers", REPORTED)
def repetition_naive(run: Run) -> Verdict:
    """Repetition reaches the last AUC of waiting in less time for every n."""
    return compare(run, FIXED, [REPETITION], WAITING)


@claim("a cyclic code is faster than waiting for all workers", REPORTED)
def cyclic_naive(run: Run) -> Verdict:
    """The cyclic code reaches the last AUC of waiting in less time for every n."""
    return compare(run, FIXED, [CYCLIC], WAITING)


@claim("repetition beats ignoring s stragglers at equal AUC", REPORTED)
def repetition_ignoring(run: Run) -> Verdict:
    """Repetition reaches the last AUC of ignoring in less time for every n."""
    return compare(run, FIXED, [REPETITION], IGNORING)


@claim("a cyclic code beats ignoring s stragglers at equal AUC", REPORTED)
def cyclic_ignoring(run: Run) -> Verdict:
    """The cyclic code reaches the last AUC of ignoring in less time for every n."""
    return compare(run, FIXED, [CYCLIC], IGNORING)


@claim("codes are faster than waiting if delays grow with the load", "no number")
def loaded_naive(run: Run) -> Verdict:
    """Both codes reach the last AUC of waiting in less time for every n."""
    return compare(run, LOAD, [REPETITION, CYCLIC], WAITING)


@claim("an update takes the order statistic of the delays", "definition")
def order_statistic(run: Run) -> Verdict:
    """Virtual ranks differ from order statistics of their delays by less than 1e-9."""
    worst = max(row["virtual_error"] for row in run.rows)
    reason = f"required {ORACLE_TOLERANCE:g}"
    holds = worst < ORACLE_TOLERANCE
    return verdict(holds, f"{worst:.0e} of the total time", reason)


CLAIMS = (
    repetition_naive,
    cyclic_naive,
    repetition_ignoring,
    cyclic_ignoring,
    loaded_naive,
    order_statistic,
)
