"""watch.html: workers and parameter servers on virtual ranks, with their clocks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import flags
from lab.watching import Recording

from dml.figures import player
from dml.sim.networks.named import network
from dml.strategies.server.roles import Roles
from dml.types import BadInput, Message, Timeline
from dml.wire.comm import Traced
from dml.wire.comm.filmed import Tape
from dml.wire.comm.tags import Tag
from dml.wire.server.header import CLOCK, FORMAT, PUSH, ServerHead
from studies.server import flags as server_flags

REPLIES = (Tag.VALUES, Tag.CHANGED)
SHOWN = (*REPLIES, Tag.SERVER, Tag.GRADIENTS)


class Heads(Traced):
    """A traced communicator that records the clock of each push."""

    tape: Tape

    def add_send(self, buffer: Any, dest: int, tag: int, time: float) -> None:
        super().add_send(buffer, dest, tag, time)
        clock = 0
        if tag == Tag.SERVER:
            head = ServerHead(*FORMAT.unpack_from(buffer.data))
            clock = (head.clock + 1) * bool(head.kind & (PUSH | CLOCK))
        self.tape.sent[self.rank, time, tag].append(clock)


def played(
    program: Callable[[Any], Any], values: flags.FlagValues, path: Path
) -> list[Any]:
    """Call program(comm) on virtual ranks as `flags.ranks`; write watch.html.

    Args:
      program: Trains on workers and servers.
      values: Flags of server.py.
      path: Run folder.
    """
    if values.colocated:
        raise BadInput(
            "expected servers on ranks of their own with --watch, got --colocated; "
            "delete one of them"
        )
    recording, tape = Recording(values.simulate), Tape()
    roles = server_flags.roles(values, values.simulate)

    def traced(comm: Any) -> Any:
        heads = recording.wrap(comm, Heads)
        heads.tape = tape
        return program(heads)

    results = flags.ranks(traced, values)
    timeline = of_training(recording.timeline())
    contents = tape.contents(list(timeline.messages))
    recording.states = states(timeline.messages, contents, roles)
    names = [str(rank) for rank in range(recording.size)]
    for number, rank in enumerate(roles.servers):
        names[rank] = f"S{number}" if len(roles.servers) > 1 else "S"
    last = max(contents, default=0)
    recording.write(
        path / "watch.html",
        f"{values.consistency}, {roles.workers} workers",
        "Workers and parameter servers (S) on virtual ranks, recorded from a run of "
        "the code. Chunk w of a server: the last clock of worker w whose gradient has "
        "arrived; of a worker: the same when its parameters were sent.",
        timeline,
        contents=contents,
        levels={1: "clock 1", (last + 1) // 2: f"{(last + 1) // 2}", last: f"{last}"},
        names=names,
        centre=roles.servers[0] if len(roles.servers) == 1 else -1,
        network=network(values.network, values.simulate),
    )
    return results


def of_training(timeline: Timeline) -> Timeline:
    """Return messages between workers and servers, and phases until the last."""
    messages = [one for one in timeline.messages if one.tag in SHOWN]
    first = min((one.sent for one in messages), default=0.0)
    last = max((one.received for one in messages), default=0.0)
    phases = [
        one._replace(start=max(one.start, first), end=min(one.end, last))
        for one in timeline.intervals
        if one.end > first and one.start < last
    ]
    return Timeline(phases, messages)


def states(
    messages: Sequence[Message], contents: Sequence[int], roles: Roles
) -> list[player.State]:
    """Return the clocks of all workers that servers receive and workers read."""
    begin = min((one.sent for one in messages), default=0.0)
    clocks = {rank: [0] * roles.workers for rank in roles.servers}
    shown = [*clocks, *range(roles.workers)]
    found = [player.State(rank, begin, [0] * roles.workers) for rank in shown]
    arrivals = [
        (one.received, 0, one.dest, one.source, clock)
        for one, clock in zip(messages, contents, strict=True)
        if clock
    ]
    replies = [
        (one.sent, 1, one.source, one.dest, one.received)
        for one in messages
        if one.tag in REPLIES
    ]
    for time, replied, server, worker, value in sorted([*arrivals, *replies]):
        if replied:
            found.append(player.State(worker, value, list(clocks[server])))
        else:
            clocks[server][worker] = int(value)
            found.append(player.State(server, time, list(clocks[server])))
    return found
