"""A communicator whose sends to dead ranks complete without effect.

    send to a living rank  ──► as on the wrapped communicator
    send to a dead rank    ──► completes; the message is dropped

A program whose receives detect deaths needs no error handling for its sends.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import RankFailed, Request
from dml.wire.comm.wrapper import WrappedRequest, Wrapper, unwrap


class Surviving(Wrapper):
    """Wraps a communicator, whose sends raise RankFailed if their receiver has died."""

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        try:
            return SurvivingSend(self, self.comm.Isend(buf, dest, tag))
        except RankFailed:
            return SurvivingSend(self, None)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        return self.comm.Waitany(unwrap(requests, SurvivingSend), status)

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()


class SurvivingSend(WrappedRequest):
    """A send that completes if its receiver dies; `request` is None if it had died."""

    def Wait(self, status: Any = None) -> bool:
        try:
            return self.request is None or self.request.Wait(status)
        except RankFailed:
            return True

    def Test(self, status: Any = None) -> bool:
        try:
            return self.request is None or self.request.Test(status)
        except RankFailed:
            return True


def new_deaths(comm: Any, known: set[int]) -> list[int]:
    """Acknowledge all deaths; return the ranks that are not known, and add them.

    Args:
      comm: Communicator whose receives from ANY have failed by a death.
      known: Ranks whose deaths this rank has handled before.
    """
    # order matters: a death between the two calls is returned, and fails again
    comm.Ack_failed()
    new = [rank for rank in comm.Get_failed() if rank not in known]
    known.update(new)
    return new


def with_survivors(comm: Any, call: Any) -> Any:
    """Return call(survivors, ranks); repeated if a rank dies in it. Collective.

    Args:
      comm: Communicator; some of its ranks may have died.
      call: Function of a communicator of the living ranks, and of their ranks in
        `comm`.
    """
    from dml.wire.collectives.tree import tree_allreduce

    while True:
        living = comm.Shrink()
        is_living = np.zeros(comm.size, np.int64)
        is_living[comm.rank] = 1
        try:
            tree_allreduce(living, is_living)
            result = call(living, np.flatnonzero(is_living).tolist())
            done = 1
        except RankFailed:
            result, done = None, 0
            living.Revoke()
        if living.Agree(done):
            return result
