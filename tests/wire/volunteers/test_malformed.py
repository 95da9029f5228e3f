"""Malformed messages of a stranger: honest peers finish with their own average."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.sim.events import Death
from dml.sim.world import Limits
from dml.types import BadInput
from dml.wire.comm.tags import Tag
from dml.wire.volunteers import Peer, Settings, average, find_group, settle
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.settings import DEFAULTS

NETWORK = sim.Uniform(1e-3, 1e-8, 0)
HONEST, LENGTH, ROUNDS = 3, 30, 2
STRANGER = HONEST
NAN, INF, FAR = float("nan"), float("inf"), 2**63 - 1
# A field, and values that no peer sends in it.
BAD_FIELDS = {
    "kind": (-1, 14, 2**31 - 1),
    "sender": (-1, 0, 1, 2, STRANGER + 1, 2**31 - 1),
    "round": (-2, m.MOST_ROUNDS, FAR, -FAR),
    "number": (-1, m.MOST_ROUNDS, FAR),
    "about": (-1, m.MOST_ROUNDS, FAR, -FAR),
    "bandwidth": (-1.0, NAN, INF, 1e-300, 1e300),
    "length": (-1, 1, 31, 2**31 - 1),
}
BAD_ENTRIES = {
    "id": (-1, STRANGER + 1, FAR),
    "beat": (-2, m.MOST_ROUNDS, FAR),
    "bandwidth": (-1.0, NAN, INF, 1e-300, 1e300),
}


def content(kind, body, /, **fields):
    """Return the bytes of a message of the stranger."""
    head = m.VolunteerHead(kind, STRANGER, 0, 0, 1, 0, 0, 1.0, len(body))._replace(
        **fields
    )
    return m.FORMAT.pack(*head).ljust(m.NBYTES, b"\0") + body


def entries(*ids, **fields):
    array = np.array([(each, 0, 0, 1.0) for each in ids], m.ENTRY)
    for name, value in fields.items():
        array[name][-1] = value
    return array.tobytes()


def body_of(kind):
    if kind in m.WITH_ENTRIES:
        return entries(0, STRANGER)
    return np.full(9, 0.5).tobytes() if kind in m.WITH_VALUES else b""


def changed(kind, change):
    """Return a message that is malformed by one change."""
    where, name, value = change
    if where == "head":
        return content(kind, body_of(kind), **{name: value})
    return content(m.HELLO, entries(0, STRANGER, **{name: value}))


CHANGES = [
    (where, name, value)
    for where, table in (("head", BAD_FIELDS), ("entries", BAD_ENTRIES))
    for name, values in table.items()
    for value in values
]
CONTRADICTIONS = [
    content(m.HELLO, b""),
    content(m.PING, b"", about=8),
    content(m.RELEASE, b"", about=STRANGER + 1),
    content(m.FINISHED, entries(0)),
    content(m.BEGIN, entries(STRANGER), about=0),  # without the leader
    content(m.BEGIN, entries(0, 1), about=1),  # without the sender
    content(m.BEGIN, entries(2, 1, STRANGER), about=2),  # in another order
    content(m.BEGIN, entries(*[0] * 40, STRANGER)),  # twice in it
]
KINDS = st.integers(0, 13)
MALFORMED = st.one_of(
    st.binary(max_size=200),
    st.builds(changed, KINDS, st.sampled_from(CHANGES)),
    st.builds(lambda kind: content(kind, body_of(kind))[:-1], KINDS),
    st.builds(lambda kind: content(kind, b"\0" * 9_000), KINDS),  # too long
    st.sampled_from(CONTRADICTIONS),
)
# Messages with any values of the fields: some are those of a peer that vanishes.
ANY_MESSAGE = st.builds(
    lambda kind, values, ids, **fields: content(
        kind,
        entries(*ids) if kind in m.WITH_ENTRIES else np.full(values, 0.5).tobytes(),
        **fields,
    ),
    KINDS,
    st.sampled_from([0, 9, 10, 11, 30]),
    st.lists(st.integers(0, STRANGER), min_size=1, max_size=4),
    round=st.sampled_from([0, 1, 2, 3, 1000, m.MOST_ROUNDS - 1]),
    number=st.integers(0, 5),
    about=st.integers(0, STRANGER),
    priority=st.integers(-1, 1),
    bandwidth=st.sampled_from([0.0, 1.0, 1e-30, 1e30]),
)


def sent_at(messages):
    """Return a strategy of lists of (seconds since the previous message, dest, it)."""
    pause = st.sampled_from([0.0, 1e-3, 0.02])
    return st.lists(st.tuples(pause, st.integers(0, HONEST - 1), messages), max_size=30)


def averaged(sent):
    """Return (groups, values, dropped messages by sender) of each honest peer."""

    def program(comm):
        if comm.rank == STRANGER:
            comm.platform.compute(0.05)
            for pause, dest, message in sent:
                comm.platform.compute(pause)
                buffer = np.frombuffer(message, np.uint8)
                comm.Isend(buffer, dest, Tag.VOLUNTEERS)
            return comm.platform.compute(1e9)
        peer = Peer(comm, 8 * LENGTH, range(HONEST), settings=Settings(quorum=1.0))
        values = np.random.default_rng(comm.rank).random(LENGTH)
        found = []
        for _ in range(ROUNDS):
            comm.platform.compute(0.1)
            found.append(find_group(peer, peer.next_round()))
            average(peer, found[-1], values)
            settle(peer)
        return [group.members for group in found], values, dict(peer.dropped)

    dying, limits = [Death(STRANGER, 1e6)], Limits(seconds=2e6, messages=10**6)
    return sim.run(program, HONEST + 1, NETWORK, events=dying, limits=limits)[:HONEST]


def is_well_formed(message):
    array = np.frombuffer(message, np.uint8)
    return m.well_formed(m.unpack(array), STRANGER, HONEST + 1, DEFAULTS.width)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_message_with_one_wrong_field_is_malformed(change):
    for kind in range(14):
        group = {"about": STRANGER} if kind == m.BEGIN else {}
        assert is_well_formed(content(kind, body_of(kind), **group))
        assert not is_well_formed(changed(kind, change))


@pytest.mark.parametrize("number", range(len(CONTRADICTIONS)))
def test_a_message_whose_fields_contradict_each_other_is_malformed(number):
    assert not is_well_formed(CONTRADICTIONS[number])


@settings(max_examples=60)
@given(sent_at(MALFORMED))
def test_malformed_messages_change_neither_groups_nor_means(sent):
    mean = sum(np.random.default_rng(rank).random(LENGTH) for rank in range(HONEST))
    for groups, values, dropped in averaged(sent):
        assert groups == [tuple(range(HONEST))] * ROUNDS
        np.testing.assert_allclose(values, mean / HONEST)
        assert dropped.keys() <= {STRANGER}


@settings(max_examples=60)
@given(sent_at(ANY_MESSAGE | MALFORMED))
def test_honest_peers_finish_whatever_a_stranger_sends(sent):
    for _, values, dropped in averaged(sent):
        assert ((values >= 0) & (values <= 1)).all()
        assert dropped.keys() <= {STRANGER}


def test_all_messages_of_a_sender_are_dropped_after_a_malformed_one():
    hello = content(m.HELLO, entries(STRANGER))
    first = content(m.HELLO, entries(STRANGER), bandwidth=NAN)
    sent = [(0.0, 0, first), *[(0.0, 0, hello)] * 4]
    groups, _, dropped = averaged(sent)[0]
    assert (groups, dropped) == ([(0, 1, 2)] * ROUNDS, {STRANGER: 5})


@pytest.mark.parametrize("bandwidth", (-1.0, NAN, INF, 1e-300, 1e300))
def test_a_peer_declares_no_bandwidth_that_others_drop(bandwidth):
    def program(comm):
        with pytest.raises(BadInput, match="from 1e-30 to 1e30"):
            Peer(comm, 0, [], bandwidth=bandwidth)

    sim.run(program, 1)
