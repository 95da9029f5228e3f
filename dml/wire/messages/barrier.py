"""Dissemination barrier: nobody leaves before everybody has come."""

import numpy as np

from dml.types import Comm
from dml.wire.messages.tags import Tag
from dml.wire.topology import rounds


def barrier(comm: Comm) -> None:
    """Wait for all ranks.

        round k: rank r tells r + 2^k, hears from r - 2^k (mod p)

    After round k a rank has heard, at second hand, of 2^(k+1) ranks.
    ⌈lg p⌉ rounds of empty messages: ⌈lg p⌉α.
    """
    nothing = np.empty(0, np.uint8)
    for k in range(rounds(comm.size)):
        ahead, behind = (comm.rank + 2**k) % comm.size, (comm.rank - 2**k) % comm.size
        comm.Sendrecv(nothing, ahead, Tag.BARRIER, nothing, behind, Tag.BARRIER)
