"""Every schedule can be played; bubble, memory and slots are the formulas'."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.types import BadInput
from dml.wire.plans.pipeline.facts import bubble, in_flight, speed_up, staleness
from dml.wire.plans.pipeline.schedules import SCHEDULES, SPLIT, interleaved, make
from dml.wire.plans.pipeline.slots import (
    DIRECTIONS,
    assign_slots,
    instructions,
    slot_count,
)

STAGES, MICROBATCHES = st.integers(1, 8), st.integers(1, 12)
ROUNDS = PIECES = st.integers(1, 3)
ANY = st.sampled_from(sorted(SCHEDULES))
WHOLE = st.sampled_from(sorted({*SCHEDULES} - {*SPLIT}))  # backwards in one
few = settings(max_examples=60)


def made(name, stages, microbatches, rounds, pieces):
    turns = {"interleaved": rounds, "zb_v": 2}.get(name, 1)
    pieces = 2 if name in SPLIT else pieces
    return make(name, stages, microbatches, turns, pieces)


def playable(schedule):
    """Play it tick by tick: nothing is done before what it needs is there, or twice."""
    parts = schedule.stages * schedule.rounds
    done = set()
    for row in zip(schedule.piece, schedule.microbatch, schedule.part, strict=True):
        now = set()
        for piece, number, part in zip(*row, strict=True):
            if piece < 0:
                continue
            if piece == 0:
                needs = {(0, number, part - 1)} if part else set()
            else:
                needs = {(piece - 1, number, part)}
            if piece == 1 and part < parts - 1:
                needs.add((schedule.sending_piece, number, part + 1))
            if not needs <= done or (piece, number, part) in done:
                return False
            now.add((piece, number, part))
        done |= now
    sizes = 1 + schedule.pieces, schedule.microbatches, parts
    return done == set(np.ndindex(*sizes))


@given(ANY, STAGES, MICROBATCHES, ROUNDS, PIECES)
@few
def test_every_schedule_can_be_played(name, stages, microbatches, rounds, pieces):
    schedule = made(name, stages, microbatches, rounds, pieces)
    assert playable(schedule)
    assert (schedule.piece >= 0).any(axis=1).all()  # in every tick something is done
    check_slots(schedule, instructions(schedule))


def moved(schedule, tick, stage, to):
    """Move the work of a stage to another tick."""
    tables = [schedule.piece.copy(), schedule.microbatch.copy(), schedule.round.copy()]
    for table in tables:
        table[to, stage], table[tick, stage] = table[tick, stage], -1
    piece, microbatch, turn = tables
    return schedule._replace(piece=piece, microbatch=microbatch, round=turn)


@pytest.mark.parametrize("name", SCHEDULES)
def test_mutants_are_seen(name):
    schedule = made(name, 4, 8, 2, 2)
    swap = [0, 2, 1, 3]
    swapped = schedule._replace(
        piece=schedule.piece[:, swap],
        microbatch=schedule.microbatch[:, swap],
        round=schedule.round[:, swap],
    )
    assert not playable(swapped)
    # in tick 0 all stages but the first are idle
    assert not playable(moved(schedule, schedule.ticks[0, 3, 2], 2, 0))
    for other in (6, 8):
        wrong = np.where(schedule.microbatch == 7, other, schedule.microbatch)
        assert not playable(schedule._replace(microbatch=wrong))


@given(WHOLE, STAGES, MICROBATCHES, ROUNDS, PIECES)
@few
def test_the_bubble_is_the_formula_and_rounds_divide_it(name, k, m, rounds, pieces):
    if name == "interleaved":
        m = -(-m // k) * k  # groups are full
    schedule = made(name, k, m, rounds, pieces)
    rounds = schedule.rounds
    ticks = rounds * m + k - 1
    assert bubble(schedule) == pytest.approx((k - 1) / ticks, abs=1e-12)
    assert speed_up(schedule) == pytest.approx(k * rounds * m / ticks)
    kept = np.minimum(rounds * m, rounds * k - np.arange(k))
    kept = np.full(k, m) if name == "gpipe" else kept
    np.testing.assert_array_equal(in_flight(schedule), kept)


@given(STAGES, MICROBATCHES, ROUNDS, PIECES)
@few
def test_a_ragged_last_group_costs_no_more_than_a_full_one(k, m, rounds, pieces):
    schedule = interleaved(k, m, rounds, pieces)
    full = interleaved(k, -(-m // k) * k, rounds, pieces)
    assert len(schedule.piece) <= len(full.piece)
    assert (in_flight(schedule) <= in_flight(full)).all()


@given(STAGES, MICROBATCHES, PIECES)
@few
def test_pipedreams_staleness_is_the_stages_after(k, m, pieces):
    schedule = make("pipedream", k, m, 1, pieces)
    number, stage = np.indices((m, k))
    stale = np.minimum(number, k - 1 - stage)
    np.testing.assert_array_equal(staleness(schedule), stale)


@pytest.mark.parametrize(
    "sizes, message",
    [
        (("gpipe", 0, 4), "expected 1 or more stages, got 0"),
        (("1f1b", 2, 0), "expected 1 or more microbatches, got 0"),
        (("interleaved", 2, 4, 0), "expected 1 or more rounds, got 0"),
        (("interleaved", 2, 4, 2, 0), "expected 1 or more pieces, got 0"),
        (("pipedream", 2, 4, 2), "expected rounds=1 for pipedream, got rounds=2"),
        (("zb_v", 2, 4), "expected rounds=2 for zb_v, got rounds=1; pass 2"),
        (("zb_h1", 2, 4, 2), "expected rounds=1 for zb_h1, got rounds=2"),
        (("zb_h1", 2, 4, 1, 3), "expected pieces=2 for zb_h1, .* got pieces=3"),
        (("2f2b", 2, 4), "expected a schedule, got '2f2b'; pass one of gpipe, 1f1b"),
    ],
)
def test_bad_sizes_are_named(sizes, message):
    with pytest.raises(BadInput, match=message):
        make(*sizes)


INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=20)


@given(INTERVALS, st.sampled_from(["any", "first in, first out", "last in, first out"]))
@few
def test_overlapping_intervals_have_different_slots_and_none_is_too_many(lives, order):
    begin = np.array([first for first, _ in lives], int)
    end = np.array([first + length for first, length in lives], int)
    if order != "any":  # queues and stacks have ways of their own
        begin = np.sort(begin)
        end = np.maximum(np.sort(end), begin + 1)
        if order == "last in, first out":
            end = end[::-1] + begin.max(initial=0)
    slot = assign_slots(begin, end)
    peak = 0
    for tick in range(int(end.max(initial=0))):
        now = slot[(begin <= tick) & (tick < end)]
        assert len(set(now.tolist())) == len(now)
        peak = max(peak, len(now))
    assert set(slot.tolist()) == set(range(peak))


def check_slots(schedule, table):
    """Play it on slots that remember what was put there last."""
    last = schedule.parts - 1
    where = schedule.stage_of.tolist()
    memory = {}
    for tick in range(len(schedule.piece)):
        now = [type(table)(*row) for row in zip(*(t[tick] for t in table), strict=True)]
        sent = {}
        for stage, row in enumerate(now):
            piece, part = row.piece, schedule.part[tick, stage]
            mine = row.microbatch, part
            reads = {
                "activations": piece == 0 and part > 0,
                "saved": piece >= 0,
                "gradients": piece == 1 and part < last,
                "deferred": schedule.split and piece >= 1,
            }
            if piece == 0:
                put(memory, ("saved", stage), row.saved, mine)
            if schedule.split and piece == 1:
                put(memory, ("deferred", stage), row.deferred, mine)
            for kind, needed in reads.items():
                slot = getattr(row, kind)
                read(memory, (kind, stage), slot, mine if needed else None)
            if piece == 0 and part < last:
                hop = schedule.hops[part]
                assert where[part + 1] == (stage + hop) % schedule.stages
                sent["activations", where[part + 1], hop] = (row.microbatch, part + 1)
            if piece == schedule.sending_piece and part > 0:
                hop = -schedule.hops[part - 1]
                sent["gradients", where[part - 1], hop] = (row.microbatch, part - 1)
        for stage, row in enumerate(now):
            for kind in ("activations", "gradients"):
                slots = getattr(row, f"recv_{kind}")
                for slot, hop in zip(slots, DIRECTIONS, strict=True):
                    put(memory, (kind, stage), slot, sent.get((kind, stage, hop)))
    for kind in ("activations", "saved", "gradients", "deferred"):
        used = [slot for (each, _), slot in memory if each == kind]
        assert max(used, default=-1) == slot_count(getattr(table, kind)) - 1


def put(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        memory[where, slot] = what


def read(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        assert memory.get((where, slot)) == what
