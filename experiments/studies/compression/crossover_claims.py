"""A claim on where compression pays, judged by a run of crossover.py."""

from lab.claims import Verdict, claim, untested, verdict

from dml.runs.results import Run
from studies.compression.crossovers import shares

DATA_CENTRE = 10  # least Gb/s of a network of a data centre
SHARE = 0.1  # largest share of setups that counts as rare
MIN_SETUPS = 200


@claim("compression rarely makes updates faster", "in 6 of more than 200 setups")
def rarely_pays(run: Run) -> Verdict:
    """Codes pay in at most a tenth of the setups with at least 10 Gb/s.

    A setup is a code, a number of ranks, a bandwidth and a number of examples. Exact
    sums are sent during the backward pass, codes are computed after it.
    """
    paying, setups = shares(run.rows, DATA_CENTRE)
    if setups < MIN_SETUPS:
        return untested(f"fewer than {MIN_SETUPS} setups", f"{paying} of {setups}")
    measured = f"in {paying} of {setups} setups ({paying / setups:.1%})"
    return verdict(paying <= SHARE * setups, measured, "required: at most a tenth")


CLAIMS = (rarely_pays,)
