"""The state of the matchmaking of a round, and the handlers of its messages."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer
from dml.wire.volunteers.views import Entry


@dataclass
class Search:
    """The state of the matchmaking of a round, on one peer.

    Attributes:
      has_key: Function of an id; whether that peer has the key of this peer.
      arrivals: Seconds from the opening to the first message of each peer.
      hello_sent: Peers to which a HELLO, or a REPLY to their HELLO, was sent.
      excluded: Peers that are in other groups, in later rounds, or silent.
      nonleaders: Peers that have released this peer, and sent no HELLO since.
      followers: Number of the binding of each follower.
      released: Number of the latest void binding of each peer.
      leader: Leader that this peer has joined; None if it has joined no leader.
      joined: All leaders that this peer has joined in the round.
      binding: Number of the binding to the leader.
      watch: Unanswered JOINs of the leader.
      group: The group; None before BEGIN.
      usual: Usual largest arrival of earlier rounds in s.
    """

    has_key: Callable[[int], bool]
    arrivals: dict[int, float] = field(default_factory=dict)
    hello_sent: set[int] = field(default_factory=set)
    excluded: set[int] = field(default_factory=set)
    nonleaders: set[int] = field(default_factory=set)
    followers: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    leader: int | None = None
    joined: set[int] = field(default_factory=set)
    binding: int = 0
    watch: Watch = field(default_factory=lambda: Watch(0.0))
    group: Group | None = None
    usual: float = 0.0


def release(peer: Peer, search: Search, other: int, number: int, leader: int) -> None:
    """Make a binding void; its JOINs that arrive later are void, too."""
    search.released[other] = max(number, search.released.get(other, -1))
    peer.send(other, m.RELEASE, number, leader)


def handle(peer: Peer, search: Search, message: Message) -> None:
    """Update the state by a message of the current round."""
    head = message.head
    if not search.has_key(head.sender):
        if head.kind == m.HELLO:
            peer.send_view(head.sender, m.REPLY)
        return
    if head.kind != m.GONE:
        if head.sender not in search.arrivals and not peer.trips.seconds:
            number = peer.trips.start(head.sender, peer.comm.Wtime())
            peer.send(head.sender, m.PING, number)  # measures a round trip
        search.arrivals.setdefault(head.sender, peer.elapsed())
    if head.kind in (m.VALUES, m.RESULT, m.FINISHED):
        peer.store_early(message)  # BEGIN is late or lost
    if head.kind == m.PING and head.about:
        peer.send_view(head.sender, m.HELLO)  # the answer is BEGIN
    if head.kind in HANDLERS:
        HANDLERS[head.kind](peer, search, message)


def on_hello(peer: Peer, search: Search, message: Message) -> None:
    search.nonleaders.discard(message.head.sender)
    search.hello_sent.add(message.head.sender)
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
        search.excluded.discard(head.sender)
        peer.send(head.sender, m.WELCOME, head.number)


def on_welcome(peer: Peer, search: Search, message: Message) -> None:
    if message.head.sender == search.leader:
        peer.trips.answered(search.watch, peer.comm.Wtime())


def on_release(peer: Peer, search: Search, message: Message) -> None:
    head = message.head
    if head.sender == search.leader and head.number == search.binding:
        search.leader = None
        search.nonleaders.add(head.sender)
        if head.about != peer.id and head.about not in search.arrivals:
            send_hello_to_leader(peer, search, head)


def send_hello_to_leader(peer: Peer, search: Search, head: m.VolunteerHead) -> None:
    """Send HELLO to the leader of a RELEASE."""
    if head.about not in search.excluded:
        search.hello_sent.add(head.about)
        peer.view.setdefault(head.about, Entry(peer.round))
        peer.send_view(head.about, m.HELLO)


def on_begin(peer: Peer, search: Search, message: Message) -> None:
    entries = message.entries()
    members, leader = entries["id"].tolist(), message.head.about
    if peer.id not in members:
        search.excluded.update(members)
        if search.leader in members:
            search.leader = None
    elif search.leader in (None, leader) and leader in search.joined:
        for follower, number in search.followers.items():
            release(peer, search, follower, number, leader)
        bandwidths = entries["bandwidth"].tolist()
        search.group = Group(peer.round, leader, tuple(members), tuple(bandwidths))
        peer.send(leader, m.ACK)


def on_gone(peer: Peer, search: Search, message: Message) -> None:
    search.excluded.add(message.head.sender)
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
