"""Claims of XGBoost and of voting, judged by a run of boosting_splits.py."""

from lab.claims import Verdict, claim, grouped, rows, verdict

from dml.runs.results import Run

APPROXIMATE, ALMOST = 20, 0.002  # bins, of ε = 0.05; difference of areas
PUBLISHED_TIMES = 50.0
SAME_WORDS, FEWER_WORDS = 1.1, 10.0


@claim(
    "splits between quantiles reach the accuracy of exact splits",
    "equal AUC at ε = 0.05, Higgs",
)
def quantiles(run: Run) -> Verdict:
    """With 20 bins, the AUC is at most 0.002 below that of a bin for each value."""
    by_bins = {row["bins"]: row["auc"] for row in rows(run, table="bins")}
    exact, found = by_bins[max(by_bins)], by_bins[APPROXIMATE]
    holds = found >= exact - ALMOST
    return verdict(holds, f"{found:.4f} of {exact:.4f}", f"{APPROXIMATE} bins")


@claim(
    "splits of sparse rows take time for the values that are present",
    "50 times faster, Allstate",
)
def sparse(run: Run) -> Verdict:
    """Histograms of a tree add at least 50 times fewer numbers than of dense rows.

    A bin of zeros counts as an addition for each of its column's bins.
    """
    row = rows(run, table="splits")[0]
    times = row["all_additions"] / row["stored_additions"]
    return verdict(times >= PUBLISHED_TIMES, f"{times:,.0f} times", "of one tree")


@claim(
    "the words of a vote do not depend on the number of columns",
    "2k columns of any number",
)
def independent(run: Run) -> Verdict:
    """With twice the columns, a vote sends at most 1.1 times the words."""
    found = rows(run, table="votes")
    votes = [row["words"] for row in found if row["split"] == "vote"]
    others = [row["words"] for row in found if row["split"] == "rows"]
    times, more = (max(each) / min(each) for each in (votes, others))
    holds = times <= SAME_WORDS < more
    return verdict(holds, f"{times:.2f} times", f"sums of all columns: {more:.2f}")


@claim("a vote is almost as accurate as sums of all columns", "equal AUC")
def accurate(run: Run) -> Verdict:
    """A vote has an AUC at most 0.002 lower, and sends at least 10 times fewer words.

    On each table of 20 elected columns.
    """
    differences, times = [], []
    for found in grouped(rows(run, table="votes"), "columns").values():
        by_split = {row["split"]: row for row in found}
        every, vote = by_split["rows"], by_split["vote"]
        differences.append(every["auc"] - vote["auc"])
        times.append(every["words"] / vote["words"])
    holds = max(differences) <= ALMOST and min(times) >= FEWER_WORDS
    lower = f"AUC lower by {max(differences):.4f}"
    return verdict(holds, lower, f"{min(times):.0f} times fewer words")


XGBOOST, VOTING = (quantiles, sparse), (independent, accurate)
CLAIMS = (*XGBOOST, *VOTING)
