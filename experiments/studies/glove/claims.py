"""Claims of Pennington et al., GloVe, EMNLP 2014, judged by glove_strategies.py."""

from typing import Any

from lab.claims import Verdict, claim, nonempty, untested, verdict

from dml.runs.results import Run

SAME = 0.02  # relative tolerance of a loss: strategies order records differently
HALF = 0.005  # tolerance of an accuracy: seeds differ by nearly as much
TEXT8 = "text8"  # a corpus of 17 M words
PUBLISHED_MIN, PUBLISHED_MAX = 0.22, 0.23  # published accuracies


@claim("all strategies reach the same loss", "22 to 23 % for all")
def same_loss(run: Run) -> Verdict:
    """The highest last loss of all strategies and ranks is within 2 % of the lowest."""
    losses = by_strategy(run, "loss")
    spread = max(losses.values()) / min(losses.values()) - 1
    measured = f"{min(losses.values()):.5f} to {max(losses.values()):.5f}"
    return verdict(spread <= SAME, measured, f"{spread:.2%} apart, {len(losses)} runs")


@claim("all strategies reach the same accuracy", "22 to 23 % for all")
def same_accuracy(run: Run) -> Verdict:
    """The highest analogy accuracy is within half a point of the lowest."""
    shares = by_strategy(run, "analogy_accuracy")
    if None in shares.values():
        return untested("no analogy has all its words in the vocabulary")
    least, most = min(shares.values()), max(shares.values())
    measured = f"{least:.1%} to {most:.1%}"
    return verdict(most - least <= HALF, measured, f"{len(shares)} runs")


@claim("text8, d = 50, 15 epochs: analogies", "22 to 23 %")
def reference(run: Run) -> Verdict:
    """On text8 every strategy is within half a point of 22 to 23 %.

    Another corpus does not test the claim.
    """
    corpus = str(run.flags["corpus"])
    shares = by_strategy(run, "analogy_accuracy").values()
    if None in shares:
        return untested(f"no analogy has all its words in {corpus}")
    least, most = min(shares), max(shares)
    measured = f"{least:.1%} to {most:.1%}"
    if TEXT8 not in corpus:
        return untested(f"{corpus} is not {TEXT8}", measured)
    return verdict(
        least >= PUBLISHED_MIN - HALF and most <= PUBLISHED_MAX + HALF, measured, TEXT8
    )


def by_strategy(run: Run, key: str) -> dict[str, Any]:
    """Return the value of a key of each row, by strategy and number of ranks."""
    rows = nonempty(run.rows, "strategy")
    return {f"{row['strategy']} {row['ranks']}": row[key] for row in rows}


CLAIMS = (same_loss, same_accuracy, reference)
