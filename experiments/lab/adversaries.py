"""Byzantine workers and skewed shards of --attack, --attackers and --skew."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from lab import flags, options
from lab.shared_flags import FlagValues
import numpy as np

from dml import extend
from dml.data.poison import labels_of, poisoned, with_reversed_labels
from dml.data.skew import skewed_draws, skewed_shards
from dml.strategies import load
from dml.types import BadInput, Problem, Rows, no_op
from dml.wire.reducers.names import ATTACKS, LABEL_FLIP, is_name
from dml.wire.reducers.rows import indices


def check(values: FlagValues, workers: int) -> None:
    """Raise BadInput for attackers without an attack, or for too many of them."""
    if bool(values.attack) != bool(values.attackers):
        raise BadInput(
            f"expected --attack and --attackers together, got --attack="
            f"{values.attack!r} --attackers={values.attackers}; pass both or neither"
        )
    if values.attack and workers < 2:
        raise BadInput(
            f"expected two workers or more with --attack, got {workers}; pass "
            "--simulate=8, or start ranks by mpirun -n 8"
        )
    most, share = workers // 2, "half"
    if values.strategy == "zeno":
        most, share = workers - 1, "all but one"
    if values.attackers > most:
        raise BadInput(
            f"expected at most {share} of the {workers} workers as attackers, got "
            f"--attackers={values.attackers}; pass at most {most}"
        )


def check_strategy(values: FlagValues, readers: Sequence[str]) -> None:
    """Raise BadInput for an attack on terms with a strategy without terms."""
    if byzantine(values) and values.strategy not in readers:
        raise BadInput(
            f"expected --strategy={' or '.join(readers)} with --attack={values.attack},"
            f" got --strategy={values.strategy}; pass --attack={LABEL_FLIP}, or a "
            "strategy of these"
        )
    if has_copies(load(values.strategy)) and values.attack == LABEL_FLIP:
        raise BadInput(
            f"expected an attack on terms with --strategy={values.strategy}, which has "
            "several copies of a part with equal labels, got --attack=label_flip; pass "
            "another attack, or --strategy=synchronous"
        )


def has_copies(function: Callable[..., Any]) -> bool:
    """Return whether several workers compute each part, to correct wrong terms."""
    return all(options.takes(function, [name]) for name in ("code", "byzantine"))


def check_reducer(values: FlagValues, workers: int) -> None:
    """Raise BadInput for a reducer without terms to attack, or with too few terms."""
    if values.attack or is_name(values.reduce):  # others are of a user
        made = flags.reducer(values.reduce, no_op, byzantine(values))
        flags.check_terms(made, values.reduce, workers)


def byzantine(values: FlagValues) -> Any:
    """Return the `robust.Byzantine` of the flags; None without an attack on terms."""
    if not values.attack or values.attack == LABEL_FLIP:
        return None
    # imported at the first use: attacks need a compiler of kernels
    from dml.wire.reducers.robust import attacks
    from dml.wire.reducers.robust.rule import Attack, Byzantine

    if values.attack.partition(":")[0] in ATTACKS:
        return attacks.byzantine(values.attack, values.attackers)
    forge = extend.find(values.attack, attacks.ATTACKS, extend.ATTACKS)
    return Byzantine(Attack(forge=forge), values.attackers)


def check_server(made: Any, rule: Any) -> None:
    """Raise BadInput for attackers that must know all gradients of an update.

    Args:
      made: The `robust.Byzantine` of the flags, or None.
      rule: Consistency of the server.
    """
    if made and made.attack.forge and not (rule.by_clock and not rule.backups):
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
