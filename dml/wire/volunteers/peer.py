"""The state of a peer over all rounds, and its answers to messages of other rounds."""

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.comm.plain import as_comm
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import WINDOW, RoundTrips, Watch
from dml.wire.volunteers.mailbox import Mailbox
from dml.wire.volunteers.messages import Message, VolunteerHead
from dml.wire.volunteers.settings import DEFAULTS, Settings, check
from dml.wire.volunteers.views import Entry, View, expected, latest, merge

STORED_GROUPS = 2  # latest rounds whose groups are stored, to repeat their BEGIN


class Group(NamedTuple):
    """The group of a peer in a round.

    Attributes:
      round: The round.
      leader: The member that closed the group.
      members: Ids of all members, in ascending order.
      bandwidths: Bytes per second that each member declares; 0 of clients.
    """

    round: int
    leader: int
    members: tuple[int, ...]
    bandwidths: tuple[float, ...]


class Peer:
    """A volunteer on one rank of a communicator; its id is the rank.

    Args:
      comm: The ranks; each may be a peer, be absent, or vanish.
      nbytes: Largest size of a buffer to average in bytes, equal on all peers.
      known: Ids of peers that are known at the start; one id is enough.
      priority: Priority as a leader; lower numbers lead first, then lower ids.
      bandwidth: Bytes per second, by which the buffer is divided; 0: a client, to which
        some peers cannot send first.
      settings: Settings, equal on all peers.
    """

    def __init__(
        self,
        comm: Comm,
        nbytes: int,
        known: Iterable[int],
        priority: int = 0,
        bandwidth: float = 1.0,
        *,
        settings: Settings = DEFAULTS,
    ):
        check(settings, bandwidth)
        self.comm = comm = as_comm(comm)
        self.settings, self.id = settings, comm.rank
        self.priority, self.bandwidth, self.nbytes = priority, bandwidth, nbytes
        entries = 1 + max(settings.entries, settings.width)
        nbytes += entries * m.ENTRY.itemsize
        self.mailbox = Mailbox(comm, nbytes, settings)
        self.view: View = {peer: Entry() for peer in known if peer != comm.rank}
        self.packed: tuple = (
            m.NO_ROUND - 1,
            0,
            None,
        )  # round, size, entries of the view
        self.absent: dict[int, int] = {}  # beats of peers that sent no message
        self.round = m.NO_ROUND
        self.opened = self.left = comm.Wtime()  # of the latest round, in s
        self.arrivals: deque[float] = deque(maxlen=WINDOW)  # largest of each round in s
        self.groups: dict[int, Group] = {}  # of the latest rounds
        self.begun: dict[int, Watch] = {}  # members that have not acknowledged BEGIN
        self.senders: set[int] = set()  # of messages of the latest round
        self.averages: deque[float] = deque(maxlen=WINDOW)  # s of the latest averages
        self.exchange: Any = None  # of the latest average
        self.early: dict[tuple[int, int, int], Message] = {}  # of later rounds
        first = self.own_message_seconds()
        self.trips = RoundTrips(settings.spreads, settings.risk, first)

    def own_message_seconds(self) -> float:
        """Return the seconds of a message from this peer to itself."""
        begun = self.comm.Wtime()
        self.send(self.id, m.PING)
        while True:
            message = self.mailbox.receive(math.inf)
            if message is not None and message.head.sender == self.id:
                return self.comm.Wtime() - begun
            if message is not None:
                self.accepted(message)

    def next_round(self) -> int:
        """Return the number of the next round of this peer."""
        return max(self.round + 1, self.newest())

    def newest(self) -> int:
        """Return the latest round of a message of any peer.

        Rounds from which too few rounds are left are disregarded.
        """
        beats = (entry.beat for entry in self.view.values())
        followed = (beat for beat in beats if beat < m.MOST_ROUNDS // 2)
        return max(followed, default=m.NO_ROUND)

    def elapsed(self) -> float:
        """Return the seconds since the opening of the round."""
        return self.comm.Wtime() - self.opened

    def enter(self, t: int) -> list[Message]:
        """Enter a round; return its messages that arrived in earlier rounds."""
        if t <= self.round:
            raise BadInput(
                f"rank {self.id}: expected a round after {self.round}, got {t}; pass "
                "next_round()"
            )
        self.mailbox.release_sent()
        self.opened, self.round = self.comm.Wtime(), t
        self.begun.clear()
        self.senders.clear()
        self.exchange = None
        for old in [old for old in self.groups if old <= t - STORED_GROUPS]:
            del self.groups[old]
        self.early = {key: self.early[key] for key in self.early if key[0] >= t}
        return self.take_early()

    def store_early(self, message: Message) -> None:
        """Store a message of a later round, or of the average of this round."""
        head = message.head
        stored = Message(head, message.body.copy())
        self.early[head.round, head.sender, head.kind] = stored

    def take_early(self) -> list[Message]:
        """Remove the stored messages of this round, and return them."""
        keys = [key for key in self.early if key[0] == self.round]
        return [self.early.pop(key) for key in keys]

    def mark_absent(self, other: int) -> None:
        """Remove a peer from the expected ones until a message of a later round."""
        self.absent[other] = self.view.get(other, Entry()).beat

    @property
    def dropped(self) -> Counter[int]:
        """Number of dropped messages by sender, of senders of malformed messages."""
        return self.mailbox.dropped

    def expected(self) -> set[int]:
        """Return the peers that may enter a round."""
        return expected(self.view, self.absent) - self.dropped.keys()

    def head(self, kind: int, number: int = 0, about: int = 0) -> VolunteerHead:
        """Return a head of the current round."""
        ids = self.id, self.settings.run, self.round
        return VolunteerHead(
            kind, *ids, number, about, self.priority, self.bandwidth, 0
        )

    def send(self, dest: int, kind: int, number: int = 0, about: int = 0) -> None:
        """Send a message without a body."""
        self.mailbox.send(dest, m.pack(self.head(kind, number, about)))

    def send_view(self, dest: int, kind: int) -> None:
        """Send entries of the view, and the entry of this peer."""
        head = self.head(kind, self.round)
        self.mailbox.send(dest, m.with_body(head, self.entries()))

    def entries(self) -> np.ndarray:
        """Return entries of the view; renewed in each round and when the view grows."""
        if self.packed[:2] != (self.round, len(self.view)):
            own = self.id, self.round, self.priority, self.bandwidth
            entries = [own, *latest(self.view, self.settings.entries - 1)]
            self.packed = self.round, len(self.view), np.array(entries, m.ENTRY)
        return self.packed[2]

    def send_group(self, dest: int, group: Group) -> None:
        """Send a BEGIN with the members of a group."""
        entries = [
            (member, group.round, 0, bandwidth)
            for member, bandwidth in zip(group.members, group.bandwidths, strict=True)
        ]
        head = self.head(m.BEGIN, about=group.leader)._replace(round=group.round)
        self.mailbox.send(dest, m.with_body(head, np.array(entries, m.ENTRY)))

    def receive(self, until: float) -> Message | None:
        """Return the next message of this round; None if none arrives before `until`.

        Messages of other rounds are answered or stored.
        """
        while True:
            due = min((watch.next for watch in self.begun.values()), default=math.inf)
            message = self.mailbox.receive(min(until, due))
            self.repeat_begin()
            if message is None:
                if self.comm.Wtime() >= until:
                    return None
            elif self.accepted(message):
                return message

    def accepted(self, message: Message) -> bool:
        """Record a message; return whether it belongs to the current round."""
        head = message.head
        if head.sender == self.id:
            return False
        self.record_beat(head)
        if head.kind in (m.HELLO, m.REPLY, m.GONE):
            merge(self.view, message.entries())
            self.view.pop(self.id, None)
        if head.kind == m.GONE:
            return head.round == self.round
        if head.round > self.round:
            if head.kind in (m.HELLO, m.BEGIN):
                self.store_early(message)
            return False
        if head.round < self.round:
            self.answer_old(head)
            return False
        self.senders.add(head.sender)
        if head.kind in (m.WELCOME, m.PONG):
            self.trips.arrived(head.sender, head.number, self.comm.Wtime())
        if head.kind in (m.ACK, m.VALUES, m.RESULT):
            self.begun.pop(head.sender, None)
        return True

    def record_beat(self, head: VolunteerHead) -> None:
        """Record the round of the sender of a message in the view."""
        known = self.view.get(head.sender, Entry())
        # GONE is sent by a peer in the round `number`, about an earlier one
        beat = max(known.beat, head.number if head.kind == m.GONE else head.round)
        self.view[head.sender] = Entry(beat, head.priority, head.bandwidth)

    def answer_old(self, head: VolunteerHead) -> None:
        """Answer a peer that is in an earlier round."""
        group = self.groups.get(head.round)
        inside = group is not None and head.sender in group.members
        if head.kind == m.BEGIN and inside:
            self.mailbox.send(
                head.sender, m.pack(self.head(m.ACK)._replace(round=head.round))
            )
        elif head.kind in (m.HELLO, m.JOIN, m.PING):
            if group is not None and inside and head.kind != m.PING:
                self.send_group(head.sender, group)
            else:
                self.send_gone(head)

    def send_gone(self, head: VolunteerHead) -> None:
        """Send GONE: this peer has left the round of a message."""
        gone = self.head(m.GONE, self.round)._replace(round=head.round)
        self.mailbox.send(head.sender, m.with_body(gone, self.entries()))

    def repeat_begin(self) -> None:
        """Repeat BEGIN to members whose ACK is late."""
        now, group = self.comm.Wtime(), self.groups.get(self.round)
        for member, watch in list(self.begun.items()):
            if group is None or self.trips.silent(watch):
                del self.begun[member]
            elif watch.next <= now:
                self.send_group(member, group)
                self.trips.tried(watch, now)

    def leave(self) -> None:
        """Record the end of the round, at which the work of this peer begins."""
        self.left = self.comm.Wtime()

    def close(self) -> None:
        """Leave permanently, without a message to other peers."""
        self.mailbox.close()
