"""Claims of Mania et al., 2015, on delayed reads, judged by a run of asynchrony.py."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from lab.claims import Verdict, claim, grouped, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

TWICE = 2.0  # tolerated error as a ratio to the error without delay


def tolerated(rows: Sequence[Row]) -> dict[tuple[str, float], float]:
    """Return, by problem and rate, the longest delay up to which all are tolerated.

    The order is that of the rows: by sparsity, then by rate.
    """
    found: dict[tuple[str, float], float] = {}
    for key, group in grouped(rows, "problem", "rate").items():
        most = TWICE * group[0]["error"]
        later = (row["tau"] for row in group if not row["error"] <= most)
        end = next(later, math.inf)
        found[key] = max((row["tau"] for row in group if row["tau"] < end), default=0.0)
    return found


@claim("the delay that is tolerated grows with sparsity", "theorem")
def sparsity(run: Run) -> Verdict:
    """The tolerated delay is shorter in some, and longer in no pair of problems.

    Pairs are of neighbours in sparsity, of the sparser and the denser, at each rate.
    """
    longest = tolerated(run.rows)
    problems = list(dict.fromkeys(problem for problem, _ in longest))
    rates = dict.fromkeys(rate for _, rate in longest)
    return shorter(
        (f"{a} to {b} at rate {rate:g}", longest[a, rate], longest[b, rate])
        for a, b in pairwise(problems)
        for rate in rates
    )


@claim("the delay that is tolerated falls with the step", "theorem")
def step(run: Run) -> Verdict:
    """The tolerated delay is shorter in some, and longer in no pair of rates.

    Pairs are of neighbouring rates, the lower and the higher, of each problem.
    """
    longest = tolerated(run.rows)
    problems = dict.fromkeys(problem for problem, _ in longest)
    rates = list(dict.fromkeys(rate for _, rate in longest))
    return shorter(
        (f"rate {a:g} to {b:g} of {name}", longest[name, a], longest[name, b])
        for a, b in pairwise(rates)
        for name in problems
    )


def shorter(pairs: Iterable[tuple[str, float, float]]) -> Verdict:
    """Judge whether the second delay of each named pair is the shorter one."""
    known = list(pairs)
    falls = sum(before > after for _, before, after in known)
    rises = [name for name, before, after in known if before < after]
    ours = f"shorter in {falls} of {len(known)} pairs, longer in {len(rises)}"
    if not falls and not rises:
        return untested("no delay of the sweep makes a difference", ours)
    return verdict(not rises, ours, f"longer: {', '.join(rises)}" if rises else "so")


CLAIMS = (sparsity, step)
