"""The state of an average of a group, and the messages that change it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dml.wire.plans.load_balance import shares
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch, late
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer

LINE = 8  # bytes; values start at a multiple


@dataclass
class Exchange:
    """The state of an average.

    Attributes:
      group: The group.
      buffer: The values, replaced part by part.
      edges: As in `Averaged`.
      result: RESULT of this peer's part: its mask and its sum, later its mean.
      unsent: Owners that were not heard yet, and have no contribution.
      parts: Members whose contribution is awaited.
      means: Owners whose result is awaited.
      unfinished: Members that have not sent FINISHED.
      counts: As in `Averaged`.
      opened: Time of the opening in s.
      usual: Seconds after which an average is late.
      part_times: Seconds after the opening of contributions.
      watches: Tries at members.
      closed: Whether the result of this peer's part is sent.
    """

    group: Group
    buffer: np.ndarray
    edges: list[int]
    result: np.ndarray
    unsent: set[int]
    parts: set[int]
    means: set[int]
    unfinished: set[int]
    counts: list[int]
    opened: float
    usual: float
    part_times: list[float] = field(default_factory=lambda: [0.0])
    watches: dict[int, Watch] = field(default_factory=dict)
    closed: bool = False

    def part(self, member: int) -> np.ndarray:
        """Return the part of a member, as a view of the buffer."""
        place = self.group.members.index(member)
        return self.buffer[self.edges[place] : self.edges[place + 1]]

    @property
    def mask(self) -> np.ndarray:
        """Return the mask of contributors, by member."""
        return self.result[m.NBYTES :][: len(self.group.members)]

    @property
    def values(self) -> np.ndarray:
        """Return the sum or the mean of this peer's part."""
        start = m.NBYTES + mask_nbytes(self.group)
        return self.result[start:].view(self.buffer.dtype)

    def awaited(self) -> set[int]:
        """Return the members from which something is awaited."""
        return self.parts | self.means


def mask_nbytes(group: Group) -> int:
    return -(-len(group.members) // LINE) * LINE


def opened(peer: Peer, group: Group, buffer: np.ndarray) -> Exchange:
    """Return the state at the opening of an average."""
    sizes = [0] * len(group.members)
    if any(group.bandwidths):
        sizes = shares(group.bandwidths, len(buffer)).tolist()
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    place = group.members.index(peer.id)
    others = set(group.members) - {peer.id}
    owners = {
        member for member, size in zip(group.members, sizes, strict=True) if size
    } & others
    own = buffer[edges[place] : edges[place + 1]]
    head = peer.head(m.RESULT, about=group.leader)
    x = Exchange(
        group,
        buffer,
        edges,
        m.pack(head, mask_nbytes(group) + own.nbytes),
        unsent=set(owners),
        parts=set(others) if len(own) else set(),
        means=owners,
        unfinished=set(others),
        counts=[int(len(own) > 0 and member == peer.id) for member in group.members],
        opened=peer.comm.Wtime(),
        usual=usual_end(peer),
    )
    x.mask[:] = 0
    x.mask[place] = 1
    x.values[:] = own
    return x


def usual_end(peer: Peer) -> float:
    """Return the seconds after which an average is late."""
    if peer.averages:
        return late(peer.averages, peer.settings.spreads)
    return peer.trips.silence()


def contribute(peer: Peer, x: Exchange, owner: int) -> None:
    """Send an owner its part, once the owner was heard."""
    if owner in peer.heard:
        x.unsent.discard(owner)
        part = x.part(owner)
        message = m.pack(peer.head(m.VALUES, about=x.group.leader), part.nbytes)
        message[m.NBYTES :].view(part.dtype)[:] = part
        peer.mailbox.send(owner, message)


def result_to(peer: Peer, x: Exchange, member: int) -> None:
    """Send a member the result of this peer's part."""
    included = x.mask[x.group.members.index(member)]
    end = len(x.result) if included else m.NBYTES + mask_nbytes(x.group)
    peer.mailbox.send(member, x.result[:end])


def drop(x: Exchange, member: int) -> None:
    """Wait no more for a member that is silent or gone."""
    for waiting in (x.parts, x.means, x.unfinished, x.unsent):
        waiting.discard(member)


def handle(peer: Peer, x: Exchange, message: Message) -> None:
    """Change the state by a message of this round."""
    head = message.head
    if head.kind == m.PONG and head.sender in x.watches:
        watch = x.watches[head.sender]
        peer.trips.answered(watch, peer.comm.Wtime())
    if head.sender not in x.group.members:
        if head.kind in (m.HELLO, m.JOIN):
            peer.send_group(head.sender, x.group)
        return
    if head.kind in HANDLERS:
        HANDLERS[head.kind](peer, x, message)
    if head.sender in x.unsent:
        contribute(peer, x, head.sender)


def on_member_search(peer: Peer, x: Exchange, message: Message) -> None:
    peer.send_group(message.head.sender, x.group)


def on_begin(peer: Peer, x: Exchange, message: Message) -> None:
    if message.head.about == x.group.leader:
        peer.send(x.group.leader, m.ACK)


def on_values(peer: Peer, x: Exchange, message: Message) -> None:
    head = message.head
    if head.about == x.group.leader and head.sender in x.parts:
        x.parts.discard(head.sender)
        values = message.body[: x.values.nbytes].view(x.buffer.dtype)
        peer.comm.Reduce_local(values, x.values, np.add)
        x.mask[x.group.members.index(head.sender)] = 1
        x.part_times.append(peer.comm.Wtime() - x.opened)


def on_result(peer: Peer, x: Exchange, message: Message) -> None:
    head, group = message.head, x.group
    if head.about == group.leader and head.sender in x.means:
        x.means.discard(head.sender)
        mask = message.body[: len(group.members)]
        if mask[group.members.index(peer.id)]:
            part, start = x.part(head.sender), mask_nbytes(group)
            part[:] = message.body[start : start + part.nbytes].view(part.dtype)
            x.counts[group.members.index(head.sender)] = int(mask.sum())


def on_ping(peer: Peer, x: Exchange, message: Message) -> None:
    head = message.head
    sent = m.PART * (head.sender not in x.unsent) | m.MEAN * x.closed
    sent |= m.DONE * (x.closed and not x.means)
    peer.send(head.sender, m.PONG, head.number, head.about & sent)


def on_pong(peer: Peer, x: Exchange, message: Message) -> None:
    head = message.head
    missing = m.PART * (head.sender in x.parts) | m.MEAN * (head.sender in x.means)
    missing |= m.DONE * (head.sender in x.unfinished)
    if head.about & missing:
        peer.send(head.sender, m.RESEND, about=head.about & missing)


def on_resend(peer: Peer, x: Exchange, message: Message) -> None:
    sender, lost = message.head.sender, message.head.about
    if lost & m.PART and sender in x.means:
        contribute(peer, x, sender)
    if lost & m.MEAN and x.closed:
        result_to(peer, x, sender)
    if lost & m.DONE and x.closed and not x.means:
        peer.send(sender, m.FINISHED, about=x.group.leader)


def on_finished(peer: Peer, x: Exchange, message: Message) -> None:
    x.unfinished.discard(message.head.sender)


def on_gone(peer: Peer, x: Exchange, message: Message) -> None:
    drop(x, message.head.sender)


HANDLERS: dict[int, Callable[[Peer, Exchange, Message], None]] = {
    m.HELLO: on_member_search,
    m.JOIN: on_member_search,
    m.BEGIN: on_begin,
    m.VALUES: on_values,
    m.RESULT: on_result,
    m.PING: on_ping,
    m.PONG: on_pong,
    m.RESEND: on_resend,
    m.FINISHED: on_finished,
    m.GONE: on_gone,
}
