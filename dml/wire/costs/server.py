"""Predicted seconds of a clock (one step of all workers) of a parameter server.

There are w workers and s servers. Each worker pushes n bytes of gradients g and pulls n
bytes of parameters, of which each server has n/s:

worker's port   │ PULL │ PUSH g₀ │ PUSH g₁ │      s messages of n/s bytes, in and out
server's port   │ g of w0 │ g of w1 │ g of w2 │   w messages of n/s bytes, in and out
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates

REQUEST_HEADER = 64  # bytes
ANSWER_HEADER = 32  # bytes
INLINE = 1 << 16  # bytes up to which a gradient is in one message with its header


class Clock(NamedTuple):
    """Sizes of one clock: all workers push a gradient and pull the parameters."""

    nbytes: int  # bytes n of a gradient, equal to the bytes of the pulled parameters
    workers: int  # number of workers w
    servers: int  # number of servers s
    keys: int = 0  # bytes of the keys in a pull, equal to those in a push


def seconds(clock: Clock, rates: Rates, pulls: bool = True) -> float:
    """Predict the seconds of a clock in which all workers push, then all pull.

    A single worker waits for its messages, one after another. With many workers the
    bottleneck is the port of a server, which carries wn/s bytes in and wn/s out. On the
    `Uniform` virtual network the prediction is exact for one worker and one server.
    Small pushes of many workers overlap with answers and take less time; workers that
    wait for each other at several servers take up to 1.5 times as long.

    Args:
      clock: Sizes of the clock.
      rates: Rates of the network.
      pulls: Whether workers pull; False counts the pushes only.
    """
    n, keys, s = clock.nbytes / clock.servers, clock.keys / clock.servers, clock.servers
    split = n > INLINE  # whether the header is a separate message
    push = rates.alpha * (1 + split) + rates.beta * (REQUEST_HEADER + keys + n)
    pull = rates.alpha + rates.beta * (REQUEST_HEADER + keys) if pulls else 0.0
    answer = 2 * rates.alpha + rates.beta * (ANSWER_HEADER + n) if pulls else 0.0
    update = rates.gamma * n
    # the answers of all servers but the last arrive during the pushes
    single = s * push + pull + update + answer
    return max(single, clock.workers * (push + pull + update + answer))
