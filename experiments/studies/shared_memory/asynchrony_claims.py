"""Claims of Mania et al., 2015, on delayed reads, judged by a run of asynchrony.py."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from lab.claims import Verdict, claim, grouped, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

MAX_RATIO = 2.0  # tolerated error as a ratio to the error without delay


def tolerated_delays(rows: Sequence[Row]) -> dict[tuple[str, float], float]:
    """Return the longest tolerated delay by problem and learning rate.

    It is the longest delay below the first one that is not tolerated. The order is that
    of the rows: by sparsity, then by rate.
    """
    delays: dict[tuple[str, float], float] = {}
    for key, group in grouped(rows, "problem", "rate").items():
        most = MAX_RATIO * group[0]["error"]
        too_long = (row["tau"] for row in group if not row["error"] <= most)
        end = next(too_long, math.inf)
        taus = (row["tau"] for row in group if row["tau"] < end)
        delays[key] = max(taus, default=0.0)
    return delays


@claim("the delay that is tolerated grows with sparsity", "theorem")
def sparsity(run: Run) -> Verdict:
    """In no pair the denser problem tolerates a longer delay; in some, a shorter one.

    Pairs are neighbours in sparsity, at each learning rate.
    """
    longest = tolerated_delays(run.rows)
    problems = list(dict.fromkeys(problem for problem, _ in longest))
    rates = dict.fromkeys(rate for _, rate in longest)
    return judge_shorter(
        (
            f"{sparser} to {denser} at rate {rate:g}",
            longest[sparser, rate],
            longest[denser, rate],
        )
        for sparser, denser in pairwise(problems)
        for rate in rates
    )


@claim("the delay that is tolerated falls with the step", "theorem")
def step(run: Run) -> Verdict:
    """In no pair the higher rate tolerates a longer delay; in some, a shorter one.

    Pairs are neighbouring rates, for each problem.
    """
    longest = tolerated_delays(run.rows)
    problems = dict.fromkeys(problem for problem, _ in longest)
    rates = list(dict.fromkeys(rate for _, rate in longest))
    return judge_shorter(
        (
            f"rate {lower:g} to {higher:g} of {name}",
            longest[name, lower],
            longest[name, higher],
        )
        for lower, higher in pairwise(rates)
        for name in problems
    )


def judge_shorter(pairs: Iterable[tuple[str, float, float]]) -> Verdict:
    """Judge whether in no pair the second delay is longer, and in some it is shorter.

    pairs: name, first delay and second delay of each pair.
    """
    pairs = list(pairs)
    shorter = sum(first > second for _, first, second in pairs)
    longer = [name for name, first, second in pairs if first < second]
    measured = f"shorter in {shorter} of {len(pairs)} pairs, longer in {len(longer)}"
    if not shorter and not longer:
        return untested("no delay of the sweep makes a difference", measured)
    reason = f"longer: {', '.join(longer)}" if longer else "longer in no pair"
    return verdict(not longer, measured, reason)


CLAIMS = (sparsity, step)
