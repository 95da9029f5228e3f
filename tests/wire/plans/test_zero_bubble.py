"""Bubble and memory of zero-bubble schedules are the formulas' for any durations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.wire.plans.pipeline.facts import idle_ticks, in_flight
from dml.wire.plans.pipeline.schedules import SPLIT, make
from dml.wire.plans.pipeline.slots import instructions, slot_count
from dml.wire.plans.pipeline.times import bubble_seconds, end_times

STAGES, MICROBATCHES = st.integers(1, 8), st.integers(1, 20)
UNIT = 1.0, 1.0, 1.0
few = settings(max_examples=60)


def made(name, stages, microbatches):
    return make(name, stages, microbatches, 2 if name == "zb_v" else 1)


@given(STAGES, MICROBATCHES)
@few
def test_equal_durations_leave_a_third_of_1f1bs_bubble_or_none(k, more):
    one = bubble_seconds(made("1f1b", k, k + more), UNIT)
    assert one == 3 * (k - 1)
    assert bubble_seconds(made("zb_h1", k, k + more), UNIT) == k - 1 == one / 3
    for name, parts in (("zb_h2", 1), ("zb_v", 2)):
        schedule = made(name, k, 2 * k + more)
        # the last stage begins K - 1 ticks after the first, and ends as much later
        assert len(schedule.piece) == 3 * parts * (2 * k + more) + k - 1
        assert idle_ticks(schedule) == 0
        assert bubble_seconds(schedule, UNIT, 1) == k - 1
        assert bubble_seconds(schedule, UNIT, 5) == 0


# multiples of 1/8, so that sums are exact: W <= F <= B <= F + W, as in the paper
DURATIONS = st.tuples(st.integers(8, 16), st.floats(0, 1), st.floats(0, 1)).map(
    lambda drawn: (
        drawn[0] / 8,
        (drawn[0] + int(drawn[1] * 4)) / 8,
        (drawn[0] - int(drawn[2] * 4)) / 8,
    )
)


@given(STAGES, MICROBATCHES, DURATIONS)
@few
def test_unequal_durations_have_the_papers_bubble(k, more, durations):
    f, b, w = durations
    backward = f, (b + w) / 2, (b + w) / 2  # of 1f1b, in two pieces
    one = bubble_seconds(made("1f1b", k, k + more), backward)
    assert one == (k - 1) * (f + b + w)
    h1, h2 = made("zb_h1", k, k + more), made("zb_h2", k, 2 * k + more)
    assert bubble_seconds(h1, durations) == (k - 1) * (f + b - w)
    assert bubble_seconds(h1, durations, 4) == (k - 1) * (f + b - w)
    assert bubble_seconds(h2, durations, 4) == (k - 1) * (f + b - 2 * w)


@given(st.sampled_from(SPLIT), STAGES, MICROBATCHES)
@few
def test_memory_is_1f1bs_or_nearly_twice(name, k, m):
    most = {"zb_h1": (m, k), "zb_h2": (m, 2 * k - 1), "zb_v": (2 * m, 2 * k)}[name]
    schedule = made(name, k, m)
    assert in_flight(schedule).max() == min(most)
    assert slot_count(instructions(schedule).saved) == min(most)
    if name == "zb_h1":
        assert min(most) == in_flight(made("1f1b", k, m)).max()


@pytest.mark.parametrize("name", SPLIT)
def test_weights_follow_their_input_gradient_in_order_of_microbatches(name):
    _, b, w = made(name, 4, 9).ticks
    assert (b < w).all()
    assert (np.diff(w, axis=0) > 0).all() and (np.diff(b, axis=0) > 0).all()


def test_parts_of_a_v_lie_on_stages_there_and_back():
    schedule = made("zb_v", 3, 6)
    assert schedule.stage_of.tolist() == [0, 1, 2, 2, 1, 0]
    assert schedule.hops.tolist() == [1, 1, 0, -1, -1]


def test_a_slow_piece_delays_the_pieces_that_need_it():
    schedule = made("zb_h1", 2, 1)  # F on 0, F B on 1, B on 0, and W on both
    assert end_times(schedule, (1.0, 2.0, 4.0)) == [[1 + 1 + 2 + 2 + 4, 1 + 1 + 2 + 4]]
    assert bubble_seconds(schedule, (1.0, 2.0, 4.0)) == 10 - 7
