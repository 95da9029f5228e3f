"""Claims of Huang et al., GPipe, NeurIPS 2019, Table 2, judged by pipeline.py.

K is the number of stages, M the number of microbatches.
"""

from itertools import pairwise

from lab.claims import Verdict, claim, rows, verdict

from dml.runs.results import Run

FORMULA_TOLERANCE = 0.05  # relative: stages are not quite even, messages take time
CELL_TOLERANCE = 0.1  # relative, of a published cell
MIN_EFFICIENCY = 0.75  # speed-up / K; the published minimum at M = 32 is 0.79
PIPELINE_LOSS = 0.2  # largest loss of K/imbalance by filling and draining the pipeline
MAX_SPEEDUP_M1 = 1.3  # the published speed-up at M = 1


@claim("speed-up is KM/(M + K - 1)", "formula")
def as_formula(run: Run) -> Verdict:
    """For every K and M the virtual speed-up is within 5 % of KM/(M + K - 1)."""
    errors = [row["virtual"] / row["formula"] - 1 for row in rows(run, table="grid")]
    worst = max(errors, key=abs)
    holds = abs(worst) <= FORMULA_TOLERANCE
    return verdict(holds, f"{worst:+.1%} at most", f"{len(errors)} cells")


@claim(
    "nine speed-ups of a Transformer",
    "K = 2, 4, 8: M = 1 1, 1.07, 1.3; M = 4 1.7, 3.2, 4.8; M = 32 1.8, 3.4, 6.3",
)
def as_published(run: Run) -> Verdict:
    """The virtual speed-up is within 10 % of each of the nine published ones."""
    cells = rows(run, table="grid")
    deviating = [
        f"K = {row['stages']}, M = {row['microbatches']}: {row['virtual']:.2f} of "
        f"{row['published']:g}"
        for row in cells
        if abs(row["virtual"] / row["published"] - 1) > CELL_TOLERANCE
    ]
    measured = f"{len(cells) - len(deviating)} of {len(cells)}"
    return verdict(
        not deviating, measured, "; ".join(deviating) or "all are within 10 %"
    )


@claim("almost linear at M = 32", "0.79 K at least")
def almost_linear(run: Run) -> Verdict:
    """At the largest M the speed-up is 0.75 K or more, for every K."""
    cells = rows(run, table="grid")
    most = max(row["microbatches"] for row in cells)
    efficiencies = [
        row["virtual"] / row["stages"] for row in cells if row["microbatches"] == most
    ]
    least = min(efficiencies)
    reason = f"M = {most}, required {MIN_EFFICIENCY:g}"
    return verdict(least >= MIN_EFFICIENCY, f"{least:.2f} K at least", reason)


@claim("the imbalance of stages bounds the speed-up", "AmoebaNet 1.21, 1.84, 3.48")
def imbalanced(run: Run) -> Verdict:
    """The speed-up of uneven stages is 80 % to 100 % of K/imbalance."""
    cells = rows(run, table="imbalance")
    shares = [row["virtual"] / row["bound"] for row in cells]
    measured = f"{min(shares):.2f} to {max(shares):.2f} of K/imbalance"
    holds = min(shares) >= 1 - PIPELINE_LOSS and max(shares) <= 1
    published = ", ".join(dict.fromkeys(f"{row['published']:g}" for row in cells))
    return verdict(holds, measured, f"{len(cells)} cuts, published {published}")


@claim("no gain at M = 1", "1.3 at most")
def no_gain(run: Run) -> Verdict:
    """With one microbatch the speed-up is 1.3 at most, for every K."""
    most = max(
        row["virtual"] for row in rows(run, table="grid") if row["microbatches"] == 1
    )
    holds = most <= MAX_SPEEDUP_M1
    return verdict(holds, f"{most:.2f} at most", f"required {MAX_SPEEDUP_M1:g}")


@claim("speed-up grows with M and with K", "Table 2")
def ordered(run: Run) -> Verdict:
    """The speed-up grows with M for every K, and with K for every M above 1."""
    by_stages: dict[int, list[float]] = {}
    by_microbatches: dict[int, list[float]] = {}
    for row in rows(run, table="grid"):
        by_stages.setdefault(row["stages"], []).append(row["virtual"])
        if row["microbatches"] > 1:
            by_microbatches.setdefault(row["microbatches"], []).append(row["virtual"])
    series = [*by_stages.values(), *by_microbatches.values()]
    growing = sum(
        all(before < after for before, after in pairwise(speed_ups))
        for speed_ups in series
    )
    measured = f"{growing} of {len(series)} rows and columns grow"
    return verdict(
        growing == len(series), measured, "by M for every K, by K where M > 1"
    )


PAPER = (as_formula, as_published, almost_linear, imbalanced)
CLAIMS = (*PAPER, no_gain, ordered)
