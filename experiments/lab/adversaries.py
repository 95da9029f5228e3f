"""Byzantine workers and skewed shards of --attack, --attackers and --skew."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from lab.shared_flags import FlagValues
import numpy as np

from dml.data.poison import labels_of, poisoned, with_reversed_labels
from dml.data.skew import skewed_draws, skewed_shards
from dml.types import BadInput, Problem, Rows
from dml.wire.reducers.rows import indices

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
    if values.strategy == "coded" and values.attack == LABEL_FLIP:
        raise BadInput(
            "expected an attack on terms with --strategy=coded, which has several "
            "copies of a part with equal labels, got --attack=label_flip; pass another "
            "attack, or --strategy=synchronous"
        )


def byzantine(values: FlagValues) -> Any:
    """Return the `robust.Byzantine` of the flags; None without an attack on terms."""
    if not values.attack:
        return None
    # imported at the first use: attacks need a compiler of kernels
    from dml.wire.reducers.robust import attacks

    made = attacks.byzantine(values.attack, values.attackers)
    return None if values.attack == LABEL_FLIP else made


def check_server(made: Any, rule: Any) -> None:
    """Raise BadInput for attackers that must know all gradients of an update.

    Args:
      made: The `robust.Byzantine` of the flags, or None.
      rule: Consistency of the server.
    """
    if made and made.attack.forge and (rule.aggregation_count or rule.backups):
        raise BadInput(
            "expected --consistency=bsp with an attack that knows all gradients of an "
            "update, got updates with some of them; pass --consistency=bsp, or an "
            "attack such as sign_flip"
        )


def with_own_attack(problem: Problem, made: Any, worker: int) -> Problem:
    """Return the problem whose gradients of rows are those of an attacker.

    A late gradient has the rows of the current batch only.

    Args:
      problem: Problem of a table.
      made: The `robust.Byzantine` of the flags.
      worker: Number of the worker.
    """
    steps, earlier = count(), deque[Rows]()

    def gradient(params: Any, batch: Any) -> tuple[float, Rows]:
        loss, grads = problem.gradient(params, batch)
        step, values = next(steps), np.array(grads.values)
        if made.attack.own:
            made.attack.own(values.reshape(-1), step, worker)
        if made.attack.lag:
            earlier.append(Rows(grads.index, values))
            values = np.zeros_like(values)
            if len(earlier) > made.attack.lag:
                old = earlier.popleft()
                here, there = indices(grads.index), indices(old.index)
                _, to, of = np.intersect1d(here, there, True, return_indices=True)
                values[to] = old.values[of]
        return loss, Rows(grads.index, values)

    return problem._replace(gradient=gradient)


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
