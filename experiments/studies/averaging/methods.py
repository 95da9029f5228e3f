"""Methods of averaging: a protocol with its plan, run on ranks or evaluated."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.sim.averaging import gossip as evaluated_gossip
from dml.sim.averaging import groups as evaluated_groups
from dml.sim.averaging import relay_sum as evaluated_relay
from dml.types import Comm
from dml.wire.averaging.gossip import gossip
from dml.wire.averaging.groups import group_average
from dml.wire.averaging.push_sum import estimate, push_sum
from dml.wire.averaging.relay_sum import relay_sum
from dml.wire.comm import Metered
from dml.wire.plans.averaging.faults import NO_FAULTS, Faults
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import Topology
from dml.wire.plans.trees import Tree, tree

LARGEST_SIDE = 32  # of a grid
ITEMSIZE = 8  # bytes of a value


class Protocol(NamedTuple):
    """A protocol of `wire.averaging`, and its evaluation.

    Attributes:
      run: The protocol on one rank.
      evaluate: The protocol on all ranks at once.
      result: (values, state) -> estimates, of one rank or of all.
      repeats: Whether each round begins with the first values again.
    """

    run: Callable[..., Any]
    evaluate: Callable[..., Any]
    result: Callable[[np.ndarray, Any], np.ndarray] = lambda values, state: values
    repeats: bool = False


def relayed(values: np.ndarray, state: Any) -> np.ndarray:
    """Return the mean of the values that have reached a rank, or each rank."""
    if hasattr(state, "count"):
        return values * state.size / state.count
    return values * len(values) / (1 + state.received(state.terms, len(values)))


def pushed(values: np.ndarray, state: Any) -> np.ndarray:
    """Return the estimates of push-sum, on one rank or on all ranks."""
    if hasattr(state, "weights"):
        return values / state.weights
    return estimate(values, state)


GOSSIP = Protocol(gossip, evaluated_gossip.gossip)
PUSH_SUM = Protocol(push_sum, evaluated_gossip.push_sum, pushed)
RELAY_SUM = Protocol(relay_sum, evaluated_relay.relay_sum, relayed, repeats=True)
GROUPS = Protocol(group_average, evaluated_groups.group_average)


class Method(NamedTuple):
    """A protocol, and the plan for a number of peers and a seed."""

    protocol: Protocol
    plan: Callable[[int, int], Topology | Tree]


def on(protocol: Protocol, text: str) -> Method:
    return Method(protocol, lambda p, seed: topology(text, p, seed))


def grid_text(p: int) -> str:
    """Return the grid for p peers, with the fewest sides of at most 32 seats.

    It has at least two sides. Powers of 2 fill a grid of powers of 2; other numbers
    leave some seats free.
    """
    dims = 2
    while LARGEST_SIDE**dims < p:
        dims += 1
    if p & (p - 1) == 0:
        bits, more = divmod(p.bit_length() - 1, dims)
        sides = [1 << (bits + (axis < more)) for axis in range(dims)]
    else:
        sides = [int(np.ceil(p ** (1 / dims) - 1e-9))] * dims
    return "grid:" + "x".join(map(str, sides))


def random_text(p: int) -> str:
    """Return random groups as large as the sides of the grid."""
    return f"random_groups:{grid_text(p)[5:].split('x')[0]}"


METHODS: dict[str, Method] = {
    "all_reduce": on(GROUPS, "complete"),
    "ring": on(GOSSIP, "ring"),
    "torus": on(GOSSIP, "torus"),
    "exponential": on(GOSSIP, "exponential"),
    "one_peer_exponential": on(GOSSIP, "one_peer_exponential"),
    "push_sum": on(PUSH_SUM, "one_peer_exponential"),
    "relay_chain": Method(RELAY_SUM, lambda p, seed: tree("chain", p)),
    "relay_tree": Method(RELAY_SUM, lambda p, seed: tree("tree", p)),
    "random_groups": Method(GROUPS, lambda p, seed: topology(random_text(p), p, seed)),
    "moshpit": Method(GROUPS, lambda p, seed: topology(grid_text(p), p, seed)),
}


@lru_cache(maxsize=4)
def starts(p: int, seed: int) -> np.ndarray:
    """Return the first value of every peer, from a standard normal distribution."""
    values = np.random.default_rng(seed).standard_normal(p)
    values.flags.writeable = False
    return values


class Trajectory(NamedTuple):
    """The rounds of a method.

    Attributes:
      variances: Variance of the estimates of all peers, before and after each round.
      mean_error: Difference of the last mean of all estimates from the first mean.
      values: Estimates after the last round.
      bytes: Bytes that all peers send; 0 if they were not counted.
      seconds: Virtual seconds; 0 if there is no virtual time.
    """

    variances: np.ndarray
    mean_error: float
    values: np.ndarray
    bytes: float = 0.0
    seconds: float = 0.0


def evaluate(
    name: str,
    p: int,
    seed: int,
    rounds: int,
    target: float = 0.0,
    faults: Faults = NO_FAULTS,
) -> Trajectory:
    """Evaluate a method until the variance is below a target, or for all rounds.

    Args:
      name: Name of the method.
      p: Number of peers.
      seed: Random seed of values and groups.
      rounds: Largest number of rounds.
      target: Variance at which to stop.
      faults: Losses, delays and absences.
    """
    protocol, plan = METHODS[name].protocol, METHODS[name].plan(p, seed)
    first = starts(p, seed)
    values, state = first.copy(), None
    results, variances = values, [float(first.var())]
    for t in range(rounds):
        if variances[-1] < target:
            break
        if protocol.repeats:
            values = first.copy()
        state = protocol.evaluate(values, plan, t, state, faults)
        results = protocol.result(values, state)
        variances.append(float(results.var()))
    error = float(results.mean() - first.mean())
    return Trajectory(np.array(variances), error, results)


def run(
    name: str,
    p: int,
    seed: int,
    rounds: int,
    length: int = 1,
    faults: Faults = NO_FAULTS,
) -> Trajectory:
    """Run a method on virtual ranks for a number of rounds; count the bytes.

    Args:
      name: Name of the method.
      p: Number of ranks.
      seed: Random seed of values and groups.
      rounds: Number of rounds.
      length: Number of values of a rank, all equal.
      faults: Losses, delays and absences.
    """
    protocol, plan = METHODS[name].protocol, METHODS[name].plan(p, seed)
    first = starts(p, seed)

    def program(comm: Comm) -> tuple[list[float], int, float]:
        counted = Metered(comm)
        values, state = np.full(length, first[comm.rank]), None
        history = [float(first[comm.rank])]
        for t in range(rounds):
            if protocol.repeats:
                values[:] = first[comm.rank]
            state = protocol.run(counted, values, plan, t, state, faults)
            history.append(float(protocol.result(values, state)[-1]))
        return history, counted.bytes_sent, comm.Wtime()

    histories, sent, seconds = zip(*sim.run(program, p), strict=True)
    values_PxT = np.array(histories)
    return Trajectory(
        values_PxT.var(0),
        float(values_PxT[:, -1].mean() - first.mean()),
        values_PxT[:, -1],
        float(sum(sent)),
        max(seconds),
    )
