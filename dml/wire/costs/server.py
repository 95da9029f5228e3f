"""Predicted seconds of a clock of a parameter server, by α, β and γ.

w workers, s servers, n bytes pushed and pulled by each worker

worker's port   │ PULL │ PUSH g₀ │ PUSH g₁ │      s messages of n/s bytes, each way
server's port   │ g of w0 │ g of w1 │ g of w2 │   w messages of n/s bytes, each way
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates

REQUEST_HEADER = 64  # bytes
ANSWER_HEADER = 32  # bytes
INLINE = 1 << 16  # bytes up to which a gradient is sent in one message with its header


class Clock(NamedTuple):
    """One clock: all workers push a gradient and pull the parameters."""

    nbytes: int  # bytes of a gradient, and of the parameters that are pulled
    workers: int
    servers: int
    keys: int = 0  # bytes of the keys in a pull, and in a push


def seconds(clock: Clock, rates: Rates, pulls: bool = True) -> float:
    """Predict the seconds of a clock in which all workers push, then all pull.

    A single worker waits for its messages, one after another. With many workers the
    bottleneck is the port of a server, which carries 2wn/s bytes. On the `Uniform`
    virtual network the prediction is exact for one worker and one server. Small pushes
    of many workers overlap with answers and take less time; workers that wait for each
    other at several servers take up to 1.5 times as long.

    Args:
      clock: Sizes of the clock.
      rates: Rates of the network.
      pulls: Whether workers pull.
    """
    n, keys, s = clock.nbytes / clock.servers, clock.keys / clock.servers, clock.servers
    split = n > INLINE  # the header is a separate message
    push = rates.alpha * (1 + split) + rates.beta * (REQUEST_HEADER + keys + n)
    pull = rates.alpha + rates.beta * (REQUEST_HEADER + keys) if pulls else 0.0
    answer = 2 * rates.alpha + rates.beta * (ANSWER_HEADER + n) if pulls else 0.0
    update = rates.gamma * n
    single = s * push + pull + update + answer  # other answers come during the pushes
    return max(single, clock.workers * (push + pull + update + answer))
