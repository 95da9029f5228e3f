"""A claim on where compression pays, judged by a run of crossover.py."""

from lab.claims import Verdict, claim, untested, verdict

from dml.runs.results import Run
from studies.compression.crossovers import DATA_CENTRE, shares

SHARE = 0.1  # largest share of setups that counts as rare
MIN_SETUPS = 200


@claim("compression rarely makes updates faster", "in 6 of more than 200 setups")
def rarely_pays(run: Run) -> Verdict:
    """Codes pay in at most a tenth of the setups with at least 10 Gb/s.

    A setup is a code, a number of ranks, a bandwidth and a number of examples. Exact
    sums are sent during the backward pass, codes are computed after it.
    """
    counts = shares(run.rows, DATA_CENTRE)
    paying, setups = map(sum, zip(*counts.values(), strict=True))
    if setups < MIN_SETUPS:
        return untested(f"fewer than {MIN_SETUPS} setups", f"{paying} of {setups}")
    measured = f"in {paying} of {setups} setups ({paying / setups:.1%})"
    by_examples = ", ".join(
        f"{count} with {examples} examples" for examples, (count, _) in counts.items()
    )
    return verdict(paying <= SHARE * setups, measured, by_examples)


CLAIMS = (rarely_pays,)
