"""Matchmakings on virtual ranks with lost messages and peers that vanish."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.sim.events import Death, Event, Loss
from dml.types import Comm
from dml.wire.volunteers import Group, Peer, Settings, average, find_group, settle

LATENCY = 1e-3  # s
WORK = 0.05  # s; mean time of a peer between two rounds


class Result(NamedTuple):
    """The result of a matchmaking of a peer.

    Attributes:
      group: The group.
      entered: Time at which the peer entered the round, in s.
      seconds: Duration of the matchmaking.
      contributions: Number of contributions to each part; empty without an average.
    """

    group: Group
    entered: float
    seconds: float
    contributions: tuple[int, ...]


class Case(NamedTuple):
    """The settings of a seeded run.

    Attributes:
      peers: Number of peers.
      rounds: Number of rounds of each peer.
      loss: Probability that a message is lost.
      vanish: Number of peers that vanish.
      width: Largest group.
      values: Number of values to average after each matchmaking; 0: no average.
      seed: Random seed.
    """

    peers: int
    rounds: int
    loss: float
    vanish: int
    width: int
    values: int
    seed: int


def random_case(seed: int, rounds: int = 4, values: int = 0) -> Case:
    """Return a case with 3 to 9 peers, losses up to 15 % and 1 to 3 vanishing peers."""
    draws = random.Random(seed)
    peers = draws.randint(3, 9)
    loss = draws.choice([0.0, 0.02, 0.05, 0.1, 0.15])
    vanish = draws.randint(1, min(3, peers - 1))
    width = draws.choice([2, 4, 32])
    return Case(peers, rounds, loss, vanish, width, values, seed)


def events(case: Case) -> list[Event]:
    """Return the losses and deaths of a case."""
    draws = random.Random(f"events {case.seed}")
    everyone = frozenset(range(case.peers))
    dying = draws.sample(range(case.peers), case.vanish)
    ends = [Death(rank, draws.uniform(0, case.rounds * WORK)) for rank in dying]
    if not case.loss:
        return ends
    return [*ends, Loss(everyone, everyone, case.loss, seed=case.seed)]


def run(case: Case) -> list[list[Result] | None]:
    """Return the results of each peer; None for peers that have vanished."""

    def program(comm: Comm) -> list[Result]:
        draws = random.Random(f"work {case.seed} {comm.rank}")
        settings = Settings(width=case.width)
        known = [(comm.rank + step) % comm.size for step in (1, 2)]  # two other peers
        peer = Peer(comm, 8 * case.values, known, settings=settings)
        values = np.full(case.values, float(comm.rank))
        rows = []
        for _ in range(case.rounds):
            comm.platform.compute(WORK * draws.uniform(0.5, 1.5))
            entered = comm.Wtime()
            group = find_group(peer, peer.next_round())
            seconds = comm.Wtime() - entered
            counts = average(peer, group, values).counts if case.values else ()
            settle(peer)
            rows.append(Result(group, entered, seconds, counts))
        peer.close()
        return rows

    network = sim.Uniform(LATENCY, 1e-9, 0)
    return sim.run(program, case.peers, network, events=events(case))


def failures(case: Case, peers: Sequence[list[Result] | None]) -> list[str]:
    """Return a line for each violation of the invariants."""
    lines = []
    groups: dict[tuple[int, int], Group] = {}
    for peer, results in enumerate(peers):
        for result in results or ():
            if (peer, result.group.round) in groups:
                lines.append(f"seed {case.seed}: peer {peer} has two groups")
            if len(result.group.members) > case.width:
                lines.append(f"seed {case.seed}: {result.group} is too large")
            groups[peer, result.group.round] = result.group
    for (peer, t), group in groups.items():
        if peer not in group.members:
            lines.append(f"seed {case.seed}: peer {peer} is not in its {group}")
        for member in group.members:
            if peers[member] is not None and groups.get((member, t)) != group:
                lines.append(
                    f"seed {case.seed}: {peer} has {group}, {member} has "
                    f"{groups.get((member, t))}"
                )
    return lines


def measure(seeds: Sequence[int], rounds: int = 4, values: int = 0) -> dict[str, Any]:
    """Return the statistics of the matchmakings of seeded cases.

    `failures` counts peers that are not in their group, that have two groups in a
    round, or whose group differs from the group of a live member. A peer that waits
    forever ends the run with `Deadlock`. `alone` is the share of groups with one
    member; `slowest_work` is the longest time between two rounds of a peer.

    Args:
      seeds: Random seeds, one for each case.
      rounds: Number of rounds of a peer, each of which is a matchmaking.
      values: Number of values to average after each matchmaking; 0: no average.
    """
    sizes: Counter[int] = Counter()
    lines: list[str] = []
    seconds = []
    for seed in seeds:
        case = random_case(seed, rounds, values)
        peers = run(case)
        lines += failures(case, peers)
        for result in (result for results in peers for result in results or ()):
            sizes[len(result.group.members)] += 1
            seconds.append(result.seconds)
    return {
        "matchmakings": rounds * len(seeds),
        "peers_and_rounds": sum(sizes.values()),
        "failures": len(lines),
        "first_failures": lines[:5],
        "alone": sizes[1] / max(1, sum(sizes.values())),
        **{f"p{q}_seconds": float(np.percentile(seconds, q)) for q in (50, 99)},
        "slowest_seconds": max(seconds),
        "slowest_work": 1.5 * WORK,
    }
