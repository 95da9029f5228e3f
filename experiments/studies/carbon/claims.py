"""Claims of Strubell et al., ACL 2019, judged by a run of carbon.py."""

from lab.claims import Verdict, claim, verdict

from dml.runs.results import Run

TOLERANCE = 0.01  # relative tolerance: printed watts and hours are rounded


@claim("kWh, CO2e and dollars follow from formulas", "its table")
def recomputed(run: Run) -> Verdict:
    """All cells are within 1 %, computed from exact or, if unknown, printed hours."""
    worst = run.summary["strubell_worst_error"]
    measured = f"off by {worst:.2%} at most"
    return verdict(
        worst <= TOLERANCE, measured, f"{run.summary['strubell_cells']} cells"
    )


@claim("to the last printed digit", "its table")
def rounded(run: Run) -> Verdict:
    """Every cell, computed from the same hours, is the printed one after rounding."""
    exact, count = run.summary["strubell_exact"], run.summary["strubell_cells"]
    return verdict(
        exact == count > 0, f"{exact} of {count}", "to the last printed digit"
    )


CLAIMS = (recomputed, rounded)
