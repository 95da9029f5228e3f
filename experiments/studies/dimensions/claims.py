"""Claims of s-step methods and of ProxCoCoA+, judged by a run of dimensions.py."""

import re

from lab.claims import Verdict, claim, grouped, rows, verdict

from dml.runs.results import Run

SAME = 1e-9  # largest relative difference of parameters
FACTOR = 2.0  # of the best s b from its formula
PUBLISHED_GAIN, PUBLISHED_COCOA = 6.1, 50.0  # times faster


@claim("s steps by one all-reduce equal single steps", "equal iterates")
def same(run: Run) -> Verdict:
    """At s = 64 in float64, parameters differ by at most 1e-9, relatively."""
    found = run.summary["difference"]
    return verdict(found <= SAME, f"{found:.1e}", f"required at most {SAME:g}")


@claim("s-step methods are up to 6.1 times faster", "6.1 times, Cray XC30")
def faster(run: Run) -> Verdict:
    """A step of one row is 6.1 times faster with s steps a round than with one.

    The seconds are those of computation and messages, on the p with the largest ratio.
    """
    single, ratios = "seconds_b1_s1_g1", dict[tuple[str, int], float]()
    for data in ("dense", "sparse"):
        for row in rows(run, table=data):
            names = [name for name in row if re.fullmatch(r"seconds_b1_s\d+_g1", name)]
            ratios[data, row["p"]] = max(row[single] / row[name] for name in names)
    data, size = max(ratios, key=ratios.__getitem__)
    most = ratios[data, size]
    reason = f"{data} rows on {size:,} virtual cores"
    return verdict(most >= PUBLISHED_GAIN, f"{most:.1f} times", reason)


@claim("the best s b follows from latency and bandwidth", "a bound on s")
def best(run: Run) -> Verdict:
    """The best simulated s b is within a factor of 2 of √(2α lg p/(βwc)), c = 2."""
    found = rows(run, table="best_sizes")
    ratios = [row["simulated"] / row["formula"] for row in found]
    holds = all(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    texts = [f"{row['simulated']} for {row['formula']:.0f}" for row in found]
    return verdict(holds, ", ".join(texts), f"required a factor of {FACTOR:g}")


@claim("ProxCoCoA+ is up to 50 times faster than earlier methods", "50 times")
def cocoa(run: Run) -> Verdict:
    """Until a gap of 1e-4, SGD on rows takes at least 50 times the virtual seconds.

    The objective has an L2 norm, that of all methods of the table.
    """
    by_method = grouped(rows(run, table="reached"), "method")
    (own,), (other,) = by_method["ProxCoCoA+, columns"], by_method["SGD, rows"]
    times = other["seconds"] / own["seconds"]
    words = other["words"] / own["words"]
    return verdict(
        times >= PUBLISHED_COCOA and own["reached"],
        f"{times:.0f} times in seconds, {words:.0f} in words",
        f"on {own['p']} virtual cores",
    )


@claim("a round of ProxCoCoA+ sends one vector of examples", "n words")
def fewer(run: Run) -> Verdict:
    """It reaches a gap of 1e-4 with fewer rounds and words than SGD on rows."""
    by_method = grouped(rows(run, table="reached"), "method")
    (own,), (other,) = by_method["ProxCoCoA+, columns"], by_method["SGD, rows"]
    holds = all(own[key] < other[key] for key in ("rounds", "words"))
    texts = [f"{own[key]:,} of {other[key]:,} {key}" for key in ("rounds", "words")]
    return verdict(holds and own["reached"], ", ".join(texts), "to a gap of 1e-4")


S_STEP, COCOA = (same, faster, best), (cocoa, fewer)
CLAIMS = (*S_STEP, *COCOA)
