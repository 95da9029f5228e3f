"""What is alive lies in a slot of its own, in as few as there are alive at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.wire.pipeline_facts import alive
from dml.wire.pipelines import SCHEDULES, make
from dml.wire.slots import places, slots

few = settings(derandomize=True, deadline=None, max_examples=60, database=None)
INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=20)


@given(INTERVALS, st.sampled_from(["any", "first in, first out", "last in, first out"]))
@few
def test_no_two_alive_share_a_slot_and_none_is_too_many(lives, order):
    begin = np.array([first for first, _ in lives], int)
    end = np.array([first + length for first, length in lives], int)
    if order != "any":  # queues and stacks have ways of their own
        begin = np.sort(begin)
        end = np.maximum(np.sort(end), begin + 1)
        if order == "last in, first out":
            end = end[::-1] + begin.max(initial=0)
    slot, count = slots(begin, end)
    peak = 0
    for tick in range(int(end.max(initial=0))):
        now = slot[(begin <= tick) & (tick < end)]
        assert len(set(now.tolist())) == len(now)
        peak = max(peak, len(now))
    assert count == peak
    assert set(slot.tolist()) <= set(range(count))


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 10),
    st.integers(1, 3),
    st.integers(1, 3),
)
@few
def test_every_stage_reads_what_was_put_there(name, k, m, rounds, pieces):
    rounds = rounds if name == "interleaved" else 1
    schedule = make(name, k, m, rounds, pieces)
    played(schedule, places(schedule))


@pytest.mark.parametrize("table", ["input", "residual", "cotangent"])
def test_a_wrong_place_is_seen(table):
    schedule = make("1f1b", 3, 6)
    right = places(schedule)
    wrong = getattr(right, table).copy()
    at = tuple(np.argwhere(wrong >= 0)[-1])
    wrong[at] += 1
    with pytest.raises(AssertionError):
        played(schedule, right._replace(**{table: wrong}))


def played(schedule, places):
    """Play it on slots that remember what was put there last."""
    k, last = schedule.stages, schedule.stages * schedule.rounds - 1
    memory, sent = {}, {}
    for tick in range(len(schedule.piece)):
        arrived, sent = sent, {}
        for stage in range(k):
            forth = arrived.get(("forward", stage))
            put(memory, ("input", stage), places.arrives_forward[tick, stage], forth)
            back = arrived.get(("backward", stage))
            put(memory, ("given", stage), places.arrives_backward[tick, stage], back)
            piece, number = (
                schedule.piece[tick, stage],
                schedule.microbatch[tick, stage],
            )
            part = schedule.round[tick, stage] * k + stage
            held = places.input[tick, stage], places.residual[tick, stage]
            given = places.cotangent[tick, stage]
            reads = part > 0 and piece == 0
            read(memory, ("input", stage), held[0], (number, part) if reads else None)
            if piece == 0:
                put(memory, ("residual", stage), held[1], (number, part))
            kept = (number, part) if piece >= 0 else None
            read(memory, ("residual", stage), held[1], kept)
            reads = piece == 1 and part < last
            read(memory, ("given", stage), given, (number, part) if reads else None)
            if piece == 0 and part < last:
                sent["forward", (stage + 1) % k] = (number, part + 1)
            if piece == schedule.pieces and part > 0:
                sent["backward", (stage - 1) % k] = (number, part - 1)
    assert not sent
    for kind, count in (
        ("input", places.inputs),
        ("residual", places.residuals),
        ("given", places.cotangents),
    ):
        used = [slot for (each, _), slot in memory if each == kind]
        assert max(used, default=-1) == count - 1


def put(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        memory[where, slot] = what


def read(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        assert memory.get((where, slot)) == what


@pytest.mark.parametrize(
    "name, rounds", [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)]
)
def test_residuals_have_as_many_slots_as_microbatches_are_alive(name, rounds):
    schedule = make(name, 4, 8, rounds)
    assert places(schedule).residuals == alive(schedule).max()
