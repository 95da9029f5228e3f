"""Claims of Cui et al., GeePS, EuroSys 2016, judged by offload.py."""

from lab.claims import Verdict, claim, nonempty, rows, verdict

from dml.runs.results import Run

LEAST_RATIO = 2.0  # training memory relative to device memory
HALF = 0.6  # fractions of memory up to which a capacity counts as about half
LEAST_THROUGHPUT = 2 / 3  # with about half of the memory
SPARE = 1.25  # capacity relative to the largest working set, with memory to prefetch
ABOVE_BOUND = 1.2  # largest T / max(compute, transfer)


@claim("the order of accesses repeats in every iteration", "reported")
def repeated(run: Run) -> Verdict:
    """In every training all iterations have one order of reads and writes."""
    trained = [row for row in rows(run, table="trained") if row["steps"] > 1]
    repeating = sum(row["orders"] == 1 for row in nonempty(trained, "steps"))
    steps = sum(row["steps"] for row in trained)
    measured = f"{repeating} of {len(trained)} trainings"
    return verdict(repeating == len(trained), measured, f"{steps} iterations")


@claim("a plan by the known order moves no more than any other", "reported")
def least_moves(run: Run) -> Verdict:
    """Belady's rule has the fewest fetches of all plans, for buffers of equal size."""
    searched = rows(run, table="searched", method="belady")
    equal = [row for row in searched if row["case"].endswith("fetches")]
    best = sum(row["best"] for row in nonempty(equal, "fetches"))
    draws = sum(row["draws"] for row in equal)
    others = max(row["mean_ratio"] for row in searched if row not in equal)
    return verdict(
        best == draws,
        f"{best} of {draws} random orders",
        f"all plans of up to 8 buffers; bytes of unequal buffers, NP-hard: "
        f"{others - 1:.1%} above the least in the mean",
    )


@claim("training is not changed", "reported")
def same_bits(run: Run) -> Verdict:
    """All trainings on a number of ranks have bit-identical parameters."""
    trained = rows(run, table="trained")
    pairs = {(row["ranks"], row["sha256"]) for row in trained}
    ranks = {row["ranks"] for row in trained}
    measured = f"{len(pairs)} results of {len(trained)} trainings on {len(ranks)} "
    measured += "numbers of ranks"
    return verdict(len(pairs) == len(ranks), measured, "SHA-256 of the parameters")


@claim("models larger than device memory are trained", "reported")
def larger(run: Run) -> Verdict:
    """A training in half of its memory, or less, never exceeds the capacity."""
    trained = [row for row in rows(run, table="trained") if row["peak_bytes"]]
    inside = all(row["peak_bytes"] <= row["capacity"] for row in trained)
    ratio = max(1 / row["fraction"] for row in nonempty(trained, "peak_bytes"))
    measured = f"{ratio:.1f} times the device memory"
    reason = f"peak within the capacity: {'always' if inside else 'not always'}"
    return verdict(inside and ratio >= LEAST_RATIO, measured, reason)


@claim("throughput falls gently as memory shrinks", "reported")
def gentle(run: Run) -> Verdict:
    """With about half of the memory, recomputed activations keep 2/3 of the speed."""
    virtual = rows(run, table="virtual", method="belady", network="recomputed")
    half = [row for row in virtual if row["fraction"] <= HALF]
    least = min(nonempty(half, "fraction"), key=lambda row: row["throughput"])
    saved = rows(run, table="virtual", method="belady", network="saved")
    worst = min(row["throughput"] for row in saved if row["fraction"] <= HALF)
    return verdict(
        least["throughput"] >= LEAST_THROUGHPUT,
        f"{least['throughput']:.0%} with {least['fraction']:.0%} of the memory",
        f"virtual time; {worst:.0%} in the least memory if all activations are saved",
    )


@claim("time is max(compute, transfer)", "by overlapping moves")
def overlapped(run: Run) -> Verdict:
    """With a quarter more than the least memory, T is within 20 % of the bound."""
    virtual = rows(run, table="virtual", method="belady")
    spare = [row for row in virtual if row["capacity"] >= SPARE * row["least"]]
    worst = max(row["above_bound"] for row in nonempty(spare, "capacity"))
    tight = max(row["above_bound"] for row in virtual)
    reason = f"{len(spare)} plans in virtual time; {tight:.2f} in the least memory"
    return verdict(worst <= ABOVE_BOUND, f"{worst:.2f} times the bound", reason)


@claim("moves are as planned", "the plan")
def counted(run: Run) -> Verdict:
    """The counted bytes of every training equal those of its plan."""
    trained = rows(run, table="trained")
    equal = sum(row["counted_bytes"] == row["predicted_bytes"] for row in trained)
    measured = f"{equal} of {len(trained)} trainings"
    most = max(row["counted_bytes"] for row in trained)
    return verdict(equal == len(trained), measured, f"up to {most / 1e6:,.0f} MB")


PAPER = (repeated, least_moves, same_bits, larger, gentle)
CLAIMS = (*PAPER, overlapped, counted)
