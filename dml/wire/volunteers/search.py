"""The state of a peer that looks for a group, and the messages that change it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer
from dml.wire.volunteers.views import Entry


@dataclass
class Search:
    """The state of a peer that looks for a group.

    Attributes:
      has_key: Whether a peer has the key of this peer in this round.
      arrivals: Seconds after the opening at which each peer was heard first.
      greeted: Peers to which a HELLO was sent.
      apart: Peers that cannot be in this peer's group: in other groups, gone, silent.
      moved: Peers that follow a leader, so that they cannot lead now.
      followers: Number of the binding of each follower.
      released: Number of the latest void binding of each peer.
      leader: Peer that this one follows; None if it leads.
      binding: Number of the binding to that leader.
      watch: Tries at the leader.
      group: The group, once it has begun.
      usual: Seconds after the opening until which late peers are usual.
    """

    has_key: Callable[[int], bool]
    arrivals: dict[int, float] = field(default_factory=dict)
    greeted: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    followers: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    leader: int | None = None
    binding: int = 0
    watch: Watch = field(default_factory=lambda: Watch(0.0))
    group: Group | None = None
    usual: float = 0.0


def release(peer: Peer, search: Search, other: int, number: int, leader: int) -> None:
    """Make a binding void, also for its JOINs that arrive later."""
    search.released[other] = max(number, search.released.get(other, -1))
    peer.send(other, m.RELEASE, number, leader)


def handle(peer: Peer, search: Search, message: Message) -> None:
    """Change the state by a message of this round."""
    head = message.head
    if not search.has_key(head.sender):
        if head.kind == m.HELLO:
            peer.send_view(head.sender, m.REPLY)
        return
    if head.kind != m.GONE:
        if head.sender not in search.arrivals and not peer.trips.seconds:
            number = peer.trips.start(peer.comm.Wtime())
            peer.send(head.sender, m.PING, number)  # measures a round trip
        search.arrivals.setdefault(head.sender, peer.elapsed())
    if head.kind in (m.VALUES, m.RESULT, m.FINISHED):
        peer.keep(message)  # BEGIN is late or lost
    if head.kind == m.PING and head.about:
        peer.send_view(head.sender, m.HELLO)  # its answer is BEGIN
    if head.kind in HANDLERS:
        HANDLERS[head.kind](peer, search, message)


def on_hello(peer: Peer, search: Search, message: Message) -> None:
    search.moved.discard(message.head.sender)
    search.greeted.add(message.head.sender)
    peer.send_view(message.head.sender, m.REPLY)


def on_join(peer: Peer, search: Search, message: Message) -> None:
    head = message.head
    void = head.about <= search.released.get(head.sender, 0)
    if search.leader is not None:
        release(peer, search, head.sender, head.about, search.leader)
    elif void or not peer.bandwidth:
        release(peer, search, head.sender, head.about, head.sender)
    else:
        search.followers[head.sender] = head.about
        search.apart.discard(head.sender)
        peer.send(head.sender, m.WELCOME, head.number)


def on_welcome(peer: Peer, search: Search, message: Message) -> None:
    if message.head.sender == search.leader:
        peer.trips.answered(search.watch, peer.comm.Wtime())


def on_release(peer: Peer, search: Search, message: Message) -> None:
    head = message.head
    if head.sender == search.leader and head.number == search.binding:
        search.leader = None
        search.moved.add(head.sender)
        if head.about != peer.id and head.about not in search.arrivals:
            greet_leader(peer, search, head)


def greet_leader(peer: Peer, search: Search, head: m.Head) -> None:
    """Greet a leader that was not heard yet."""
    if 0 <= head.about < peer.comm.size and head.about not in search.apart:
        search.greeted.add(head.about)
        peer.view.setdefault(head.about, Entry(peer.round))
        peer.send_view(head.about, m.HELLO)


def on_begin(peer: Peer, search: Search, message: Message) -> None:
    entries = message.entries()
    members, leader = entries["id"].tolist(), message.head.about
    if peer.id not in members:
        search.apart.update(members)
        if search.leader in members:
            search.leader = None
    elif search.leader in (None, leader):
        for follower, number in search.followers.items():
            release(peer, search, follower, number, leader)
        bandwidths = entries["bandwidth"].tolist()
        search.group = Group(peer.round, leader, tuple(members), tuple(bandwidths))
        peer.send(leader, m.ACK)


def on_gone(peer: Peer, search: Search, message: Message) -> None:
    search.apart.add(message.head.sender)
    if search.leader == message.head.sender:
        search.leader = None


def on_ping(peer: Peer, search: Search, message: Message) -> None:
    peer.send(message.head.sender, m.PONG, message.head.number)


HANDLERS = {
    m.HELLO: on_hello,
    m.JOIN: on_join,
    m.WELCOME: on_welcome,
    m.RELEASE: on_release,
    m.BEGIN: on_begin,
    m.GONE: on_gone,
    m.PING: on_ping,
}
