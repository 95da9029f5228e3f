"""What a clock of a parameter server costs: seconds and words by α, β, γ; pure.

w workers, s servers, n bytes pushed and pulled by each worker

worker's port   │ PULL │ PUSH g₀ │ PUSH g₁ │      s messages of n/s bytes, each way
server's port   │ g of w0 │ g of w1 │ g of w2 │   w messages of n/s bytes, each way
"""

from typing import NamedTuple

from dml.wire.cost import Rates

HEAD, WORDS = 64, 32  # bytes before a message to a server, and before an answer


class Clock(NamedTuple):
    """One clock of all workers."""

    nbytes: int  # of a gradient, and of what is read
    workers: int
    servers: int
    keys: int = 0  # bytes of keys, in a pull and in a push


def seconds(clock: Clock, rates: Rates, pulls: bool = True) -> float:
    """Predict how long a clock takes when all workers push, and pull, at once.

    A lone worker waits for its own messages, one after another: on the `Uniform`
    virtual network exactly so. Of many, those that a server's port takes count.
    """
    n, keys, s = clock.nbytes / clock.servers, clock.keys / clock.servers, clock.servers
    push = rates.alpha + rates.beta * (HEAD + keys + n)
    pull = rates.alpha + rates.beta * (HEAD + keys) if pulls else 0.0
    answer = 2 * rates.alpha + rates.beta * (WORDS + n) if pulls else 0.0
    update = rates.gamma * n
    alone = s * push + pull + update + s * answer
    return max(alone, clock.workers * (max(push + pull, answer) + update))


def words(clock: Clock, pulls: bool = True) -> int:
    """Say how many words all ranks send in a clock, without heads."""
    each = (clock.nbytes + clock.keys) * (2 if pulls else 1)
    return clock.workers * each // 4
