"""What a clock of a parameter server costs: seconds and words by α, β, γ; pure.

w workers, s servers, n bytes pushed and pulled by each worker

worker's port   │ PULL │ PUSH g₀ │ PUSH g₁ │      s messages of n/s bytes, each way
server's port   │ g of w0 │ g of w1 │ g of w2 │   w messages of n/s bytes, each way
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates

HEAD, WORDS = 64, 32  # bytes before a message to a server, and before an answer
INLINE = 1 << 16  # bytes up to which gradients travel with their head


class Clock(NamedTuple):
    """One clock of all workers."""

    nbytes: int  # of a gradient, and of what is read
    workers: int
    servers: int
    keys: int = 0  # bytes of keys, in a pull and in a push


def seconds(clock: Clock, rates: Rates, pulls: bool = True) -> float:
    """Predict how long a clock takes in which all workers push, then all pull.

    A lone worker waits for its own messages, one after another; of many, a server's
    port takes all, 2wn/s bytes. On the `Uniform` virtual network one worker and server
    take exactly so long. Small pushes of many overlap with answers, and take less;
    workers that are in each other's way at several servers up to half as long again.
    """
    n, keys, s = clock.nbytes / clock.servers, clock.keys / clock.servers, clock.servers
    apart = n > INLINE
    push = rates.alpha * (1 + apart) + rates.beta * (HEAD + keys + n)
    pull = rates.alpha + rates.beta * (HEAD + keys) if pulls else 0.0
    answer = 2 * rates.alpha + rates.beta * (WORDS + n) if pulls else 0.0
    update = rates.gamma * n
    alone = s * push + pull + update + answer  # answers come while others are pushed
    return max(alone, clock.workers * (push + pull + update + answer))
