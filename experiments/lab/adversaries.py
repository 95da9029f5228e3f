"""Byzantine workers and skewed shards of --attack, --attackers and --skew."""

from collections.abc import Iterable, Sequence
from typing import Any

from lab.shared_flags import FlagValues
import numpy as np

from dml.data.poison import labels_of, poisoned, with_reversed_labels
from dml.data.skew import skewed_draws, skewed_shards
from dml.types import BadInput, Problem

LABEL_FLIP = "label_flip"


def check(values: FlagValues, workers: int) -> None:
    """Raise BadInput for attackers without an attack, or for too many of them."""
    if bool(values.attack) != bool(values.attackers):
        raise BadInput(
            f"expected --attack and --attackers together, got --attack="
            f"{values.attack!r} --attackers={values.attackers}; pass both or neither"
        )
    if values.attackers >= workers:
        raise BadInput(
            f"expected fewer attackers than the {workers} workers, got --attackers="
            f"{values.attackers}; pass at most {workers - 1}"
        )


def check_strategy(values: FlagValues, readers: Sequence[str]) -> None:
    """Raise BadInput for an attack on terms with a strategy without a reducer."""
    on_terms = values.attack not in ("", LABEL_FLIP)
    if on_terms and values.strategy not in readers:
        raise BadInput(
            f"expected --strategy={' or '.join(readers)} with --attack={values.attack},"
            f" got --strategy={values.strategy}; pass --attack={LABEL_FLIP}, or a "
            "strategy of these"
        )


def byzantine(values: FlagValues) -> Any:
    """Return the `robust.Byzantine` of the flags; None without an attack on terms."""
    if not values.attack:
        return None
    # imported at the first use: attacks need a compiler of kernels
    from dml.wire.reducers.robust import attacks

    made = attacks.byzantine(values.attack, values.attackers)
    return None if values.attack == LABEL_FLIP else made


def shared_data(
    values: FlagValues,
    problem: Problem,
    batches: Iterable[np.ndarray],
    workers: int,
    sizes: tuple[int, int, int],
) -> tuple[Problem, Iterable[np.ndarray]]:
    """Return problem and minibatches with the skew and the wrong labels of the flags.

    Args:
      values: The flags.
      problem: The problem.
      batches: Minibatches without skew.
      workers: Number of workers, each of which has a part of a minibatch.
      sizes: Examples of a minibatch, of all minibatches, and of those to skip.
    """
    if values.skew:
        labels = labels_of(problem)
        own = skewed_shards(labels, workers, values.skew, values.seed, values.attackers)
        batch, total, start = sizes
        batches = skewed_draws(own, batch, values.seed, total, start)
    if values.attack == LABEL_FLIP:
        problem = with_reversed_labels(problem, 1 + int(labels_of(problem).max()))
        batches = poisoned(batches, workers, values.attackers)
    return problem, batches
