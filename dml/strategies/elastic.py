"""Training that continues when ranks die, with the bits of the undisturbed run.

    step t     gradients ─► reduce ─► vote ─► update    a death: RankFailed, or a failed
    step t+1   gradients ─► reduce ─ × ─► vote fails    vote: no rank updates
    recovery   shrink, spares join, state from a living worker
    step t+1   gradients ─► reduce ─► vote ─► update    on the living ranks

A strategy with `commit` votes between its last exchange and its update, so all workers
have equal numbers of updates at every moment: nothing is rolled back, and no copy of
the state is kept. With logical shards and an order-free reducer the bits do not depend
on the number of ranks, so a run with deaths ends with the bits of a run without.

`wire.recovery.members` states the cost of a vote and of a recovery.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.types import Params, RankFailed, Step, no_op
from dml.wire.recovery.members import Members, NotCommitted, exchange_state


class Saved(NamedTuple):
    """The state after a number of updates.

    Attributes:
      number: Number of updates.
      params: () -> the parameters.
      state: () -> the state of the update.
      loss: Mean loss of the last update.
    """

    number: int
    params: Callable[[], Params]
    state: Callable[[], Any]
    loss: float = float("nan")


# (comm of the workers, state to continue from, commit) -> Steps with absolute numbers
Attempt = Callable[[Any, Saved, Callable[[], object]], Iterator[Step]]


class Elastic:
    """Steps of a strategy on workers that may die; see the module.

    Args:
      members: Workers and spares.
      attempt: Starts the strategy from a state.
      start: State at the start, equal on all ranks.
      updates: Number of updates of the run.
      requests: () -> arguments of `Members.commit`: whether to stop, and the
        requested number of workers.
      verify: (comm of the workers, Step) -> None; collective, after every update.

    Attributes:
      saved: State after the last committed update.
    """

    def __init__(
        self,
        members: Members,
        attempt: Attempt,
        start: Saved,
        updates: int,
        requests: Callable[[], tuple[bool, int]] = lambda: (False, 0),
        verify: Callable[[Any, Step], object] = no_op,
    ):
        self.members, self.attempt, self.saved = members, attempt, start
        self.updates, self.requests, self.verify = updates, requests, verify

    def steps(self) -> Iterator[Step]:
        """Yield the committed Steps; on a spare, those after it became a worker."""
        members = self.members
        while True:
            if members.comm is None:
                members.wait()
            elif self.saved.number >= self.updates:
                return
            else:
                try:
                    for step in self.attempt(members.comm, self.saved, self.commit):
                        self.saved = Saved(
                            step.number, step.params, step.state, step.loss
                        )
                        yield step
                        if members.stopped:
                            return
                        # order matters: the update is saved, a death cannot undo it
                        self.verify(members.comm, step)
                        if members.changing:
                            break
                    else:
                        return
                except NotCommitted:
                    pass
                except RankFailed:
                    members.fail()
            if not members.reform(self.share):
                return

    def commit(self) -> None:
        self.members.commit(*self.requests())

    def warm_up(self) -> None:
        """Compile an update on a spare, by one whose result is discarded."""
        # a copy, because updates take the memory of the state
        arrays = [array.copy() for array in leaves(self.saved)]
        copy = restored(self.saved, arrays)
        next(self.attempt(self.members.own, copy, lambda: None), None)

    def finish(self, call: Callable[[Any], Any]) -> Any:
        """Return call(comm) once all workers have completed it; then end the run.

        On a spare that never worked the result is None.
        """
        members = self.members
        while not members.ended:
            value = members.finish(call, self.share)
            if members.comm is not None:
                members.end()
                return value
            members.wait()  # a worker that became a spare
            members.reform(self.share)
        return None

    def share(self, comm: Any, sources: dict[int, int]) -> None:
        """Send the last committed state to the workers without a state."""
        saved = self.saved
        arrays = exchange_state(
            comm, sources, partial(leaves, saved), partial(blank, saved)
        )
        if arrays is not None:
            self.saved = restored(saved, arrays)


def leaves(saved: Saved) -> list[np.ndarray]:
    """Return number and loss, then the arrays of parameters and state."""
    import jax

    tree = jax.device_get((saved.params(), saved.state()))
    head = np.array([saved.number, saved.loss])
    return [head, *(np.asarray(leaf) for leaf in jax.tree.leaves(tree))]


def blank(saved: Saved) -> list[np.ndarray]:
    """Return arrays like those of `leaves`, to be overwritten."""
    return [np.empty(array.shape, array.dtype) for array in leaves(saved)]


def restored(like: Saved, arrays: list[np.ndarray]) -> Saved:
    """Return the state from its arrays.

    Args:
      like: A state of equal structure.
      arrays: The arrays of `leaves`.
    """
    import jax

    (number, loss), *values = arrays
    structure = jax.tree.structure((like.params(), like.state()))
    params, state = jax.tree.unflatten(structure, values)
    return Saved(int(number), lambda: params, lambda: state, float(loss))
