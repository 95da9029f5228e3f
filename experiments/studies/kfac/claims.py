"""Claims of K-FAC on a grid of ranks, judged by kfac.py.

Pauloski et al., KAISA, SC 2021.
"""

from collections.abc import Callable

from lab.claims import Verdict, claim, grouped, matching, nonempty, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

MOST = 0.819  # of a first-order optimizer: 18.1 % fewer, the least reported


@claim("every fraction computes the same update", "equal results")
def equal_bits(run: Run) -> Verdict:
    """Trainings with all fractions on all numbers of ranks have one hash."""
    trained = rows(run, table="fraction")
    nonempty(trained[1:], "second training")
    hashes = {row["sha256"] for row in trained}
    measured = f"{len(hashes)} hash of {len(trained)} trainings"
    sizes = ", ".join(str(size) for size in sorted({row["ranks"] for row in trained}))
    return verdict(len(hashes) == 1, measured, f"{sizes} ranks")


@claim("a larger fraction stores more and sends less", "memory for communication")
def memory_for_words(run: Run) -> Verdict:
    """On each number of ranks, bytes increase and words decrease with the fraction, and
    both are exactly as predicted.
    """
    trained = rows(run, table="fraction")
    exact = all(
        row["words_sent"] == row["predicted_words"]
        and row["state_bytes"] == row["predicted_bytes"]
        for row in trained
    )
    ordered = True
    for same in grouped(trained, "ranks").values():
        by_fraction = sorted(same, key=lambda row: row["fraction"])
        pairs = list(zip(by_fraction, by_fraction[1:], strict=False))
        ordered &= all(a["state_bytes"] < b["state_bytes"] for a, b in pairs)
        ordered &= all(a["words_sent"] > b["words_sent"] for a, b in pairs)
    most = max(row["ranks"] for row in nonempty(trained, "ranks"))
    least, *_, greatest = sorted(
        matching(trained, ranks=most), key=lambda row: row["fraction"]
    )
    nbytes = greatest["state_bytes"] / least["state_bytes"]
    words = greatest["words_sent"] / least["words_sent"]
    measured = f"{nbytes:.1f} times the bytes, {words:.2f} times the words"
    reason = f"fraction 1 relative to 1/p, p = {most}; {'' if exact else 'not '}"
    return verdict(exact and ordered, measured, f"{reason}as predicted")


@claim("updates to a training loss", "fewer")
def fewer_updates(run: Run) -> Verdict:
    """For each target, K-FAC needs at most 0.819 times the updates of the best
    first-order optimizer, each with the best of its settings.
    """
    return compared(run, lambda row: 1)


@claim("seconds to a training loss", "18.1 to 36.3 % fewer")
def fewer_seconds(run: Run) -> Verdict:
    """For each target, K-FAC needs at most 0.819 times the seconds of the best
    first-order optimizer: the updates, times the mean seconds of an update.
    """
    return compared(run, lambda row: row["update_seconds"])


def compared(run: Run, cost: Callable[[Row], float]) -> Verdict:
    """Return the verdict of K-FAC's updates to each target, times their cost."""
    trained = rows(run, table="training")
    targets = [key for key in trained[0] if key.startswith("updates_")]
    ratios = []
    for target in nonempty(targets, "targets"):
        costs = [
            (row["name"] == "kfac", row[target] * cost(row))
            for row in trained
            if row[target] is not None
        ]
        nonempty(costs, f"training that reaches {target}")
        own = min((value for is_own, value in costs if is_own), default=float("inf"))
        other = min((value for is_own, value in costs if not is_own), default=own)
        ratios.append(own / other)
    measured = " and ".join(f"{ratio:.2f}" for ratio in ratios) + " times"
    return verdict(max(ratios) <= MOST, measured, f"at most {MOST:g}")


CLAIMS = equal_bits, memory_for_words, fewer_updates, fewer_seconds
