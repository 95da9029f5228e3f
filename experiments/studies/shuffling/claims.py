"""Claims on shuffling, judged by a run of shuffling.py.

Nguyen et al., IPDPS 2022, on synchronous SGD; Zhao et al., 2018, on averages of
parameters. Trainings of equal seeds are compared as in `studies.large_batch.claims`.
"""

import math

from lab.claims import Verdict, claim, matching, nonempty, rows, untested, verdict
import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Row
from studies.large_batch.claims import MIN_SEEDS, accuracy_lost, worse
from studies.shuffling.formulas import IMAGENET, parity
from studies.shuffling.training import SHARDS

ROUNDING = 0.01  # relative, of the number of selected examples
DEVIATIONS = 3  # standard deviations of the number of examples that leave a rank
SMALL = 0.1  # largest fraction that counts as small
IMAGENET_PARITY = (42, 43)


def tolerance(row: Row) -> float:
    """Return the relative tolerance of the bytes of a random number of examples."""
    return ROUNDING + DEVIATIONS / math.sqrt(row["examples_sent"])


@claim("a reshuffle sends Qrxb/2n times the bytes of the gradients", "a formula")
def counted_ratio(run: Run) -> Verdict:
    """Counted ratios are those of the formula, up to 1 % and 3 standard deviations.

    The deviations are those of the number of examples that leave their rank. Without
    an exchange no byte is sent.
    """
    sending = nonempty([row for row in run.rows if row["examples_sent"]], "exchange")
    within = [relative(row) <= tolerance(row) for row in sending]
    measured = f"differ by {max(map(relative, sending)):.1%} at most"
    return verdict(all(within), measured, f"{len(sending)} rows")


def relative(row: Row) -> float:
    """Return the relative difference of the ratio from the formula."""
    return abs(row["ratio"] / row["formula"] - 1) if row["formula"] else math.inf


@claim("the shuffle is the larger traffic above r* = 2n/xb", "ImageNet: r* = 42")
def parity_point(run: Run) -> Verdict:
    """Rows with Q = 1 have a ratio above 1 if r is above r*, else below.

    There are rows on both sides of r*. For ImageNet the formula gives 42 to 43.
    """
    shuffled = matching(run.rows, fraction=1)
    above = [row["compression"] > row["parity"] for row in shuffled]
    pairs = [
        f"ratio {row['ratio']:.2f} at r = {row['compression']:.1f}"
        for row in matching(shuffled, shards=nonempty(shuffled, "Q = 1")[0]["shards"])
    ]
    reason = (
        f"r* = {shuffled[0]['parity']:.1f} here, {parity(IMAGENET):.1f} for ImageNet"
    )
    if len(set(above)) < 2:
        return untested("all rows are on one side of r*", ", ".join(pairs))
    holds = [row["ratio"] > 1 for row in shuffled] == above
    low, high = IMAGENET_PARITY
    holds &= low <= parity(IMAGENET) <= high
    return verdict(holds, ", ".join(pairs), reason)


def errors(run: Run, strategy: str, shards: str) -> dict[float, np.ndarray]:
    """Return the errors of all seeds by exchanged fraction."""
    own = rows(run, strategy=strategy, shards=shards)
    return {row["fraction"]: 1 - np.array(row["accuracies"]) for row in own}


def kept(run: Run, strategy: str, largest: float) -> Verdict:
    """Judge whether a fraction has the accuracy of Q = 1 on all kinds of shards.

    Args:
      run: The run.
      strategy: The strategy.
      largest: Upper bound: the largest positive fraction up to it is compared, or 0.
    """
    texts, holds, seeds = [], [], math.inf
    for shards in SHARDS:
        by_fraction = errors(run, strategy, shards)
        small = [q for q in by_fraction if q <= largest and bool(q) == bool(largest)]
        fraction = max(small)
        apart = by_fraction[1.0] - by_fraction[fraction]
        seeds = min(seeds, len(apart))
        holds.append(not accuracy_lost(by_fraction[fraction], by_fraction[1.0]))
        texts.append(f"{shards} {100 * apart.mean():+.2f} points at Q = {fraction:g}")
    if seeds < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds", ", ".join(texts))
    return verdict(all(holds), ", ".join(texts), f"{seeds} seeds, {strategy}")


@claim("a small exchanged fraction keeps the accuracy", "2,048 GPUs, ImageNet")
def small_fraction(run: Run) -> Verdict:
    """Synchronous SGD with a Q of at most 0.1 is as accurate as with Q = 1.

    The accuracy is lost if errors are larger by the exact test over seeds (p of 5 %),
    or if their mean is larger by over a percentage point.
    """
    return kept(run, "synchronous", SMALL)


@claim("shuffling within shards keeps the accuracy", "close to a global shuffle")
def no_exchange(run: Run) -> Verdict:
    """Synchronous SGD with Q = 0 is as accurate as with Q = 1, on both kinds of shards.

    Lost accuracy is defined as for a small fraction.
    """
    return kept(run, "synchronous", 0)


@claim("averages of parameters need mixed shards", "Zhao 2018: up to 55 % less")
def mixed_shards(run: Run) -> Verdict:
    """Local SGD on sorted shards has larger errors with Q = 0 than with Q = 1."""
    by_fraction = errors(run, "local", "sorted")
    apart = by_fraction[1.0] - by_fraction[0.0]
    measured = f"{100 * apart.mean():+.2f} points without an exchange"
    if len(apart) < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds", measured)
    lost = worse(by_fraction[0.0], by_fraction[1.0])
    return verdict(lost, measured, f"{len(apart)} seeds")


@claim("a small fraction keeps the accuracy of local SGD", "only of synchronous SGD")
def small_fraction_local(run: Run) -> Verdict:
    """Local SGD with a Q of at most 0.1 is as accurate as with Q = 1.

    Lost accuracy is defined as for synchronous SGD.
    """
    return kept(run, "local", SMALL)


CLAIMS = (
    counted_ratio,
    parity_point,
    small_fraction,
    no_exchange,
    mixed_shards,
    small_fraction_local,
)
