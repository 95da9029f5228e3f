"""Claims of QSGD's theorems (Alistarh 2017), judged by runs of quantization.py.

Bounds are on expectations; rows have means over random roundings.
"""

from lab.claims import Verdict, claim, rows, untested, verdict

from dml.runs.results import Run

MIN_TRIALS = 20  # fewest roundings whose means are compared with bounds


def bounded(run: Run, *names: str) -> Verdict:
    """Judge whether no mean exceeds its bound in any row."""
    chosen = rows(run, table="theorem")
    shares = {
        name: max(row[name] / row[f"{name}_bound"] for row in chosen) for name in names
    }
    if run.flags["trials"] < MIN_TRIALS:
        return untested(f"fewer than {MIN_TRIALS} roundings")
    measured = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return verdict(
        max(shares.values()) <= 1,
        f"at most these shares of the bounds: {measured}",
        f"{len(chosen)} vectors and levels",
    )


@claim("the expected Elias code has the length of theorem 3.2", "a bound")
def code_length(run: Run) -> Verdict:
    """The mean number of bits is at most the bound without its o(1) in every row."""
    return bounded(run, "bits")


@claim("the variance is at most min(n/s², √n/s)", "lemma 3.1")
def variance(run: Run) -> Verdict:
    """Mean errors and mean numbers of nonzero levels are at most their bounds."""
    return bounded(run, "error", "nonzero")


CLAIMS = (code_length, variance)
