"""Delay distributions, and the start times that follow from them."""

import math

import numpy as np
import pytest

from dml import sim
from dml.sim.delays import (
    DISTRIBUTIONS,
    delay_distribution,
    expected,
    integral,
    seconds,
    straggler,
    stream,
)
from dml.sim.maxplus import k_of_p, seconds_per_step, ssp
from dml.types import BadInput

SEED = 7
EXPONENTIAL = delay_distribution("shifted_exponential:1,1")
SECONDS_TxP = seconds(EXPONENTIAL, 3, steps=20_000, size=8)


@pytest.fixture(params=list(DISTRIBUTIONS))
def text(request, tmp_path):
    """Every law of the table, with numbers under which its mean settles fast."""
    measured = tmp_path / "seconds"
    measured.write_text("0.5\n2\n1\n1\n\n9\n")
    return {
        "constant": "constant:3",
        "shifted_exponential": "shifted_exponential:1,0.5",
        "pareto": "pareto:2,4",
        "lognormal": "lognormal:2,0.5",
        "trace": f"trace:{measured}",
    }[request.param]


def within_3_errors(draws, mean):
    """A draw that is never seen in so many moves the mean by less than the 1e-8."""
    error = np.std(draws) / math.sqrt(len(draws))
    return abs(np.mean(draws) - mean) <= 3 * error + 1e-8


@pytest.mark.parametrize("k, p", ((1, 1), (1, 8), (6, 8), (8, 8), (100, 100)))
def test_draws_have_the_expected_kth_of_p(text, k, p):
    one = delay_distribution(text)
    draws = one.draws(stream(SEED, k), 8000 * p).reshape(8000, p)
    kth = np.sort(draws, axis=1)[:, k - 1]
    assert within_3_errors(kth, expected(one, k, p))
    assert expected(one, 1, 1) == pytest.approx(one.mean, rel=1e-9)


@pytest.mark.parametrize("k, p", ((1, 1), (3, 4), (8, 8), (1000, 1000), (750, 1000)))
@pytest.mark.parametrize(
    "text", ("constant:3", "shifted_exponential:1,0.5", "pareto:2,3")
)
def test_closed_forms_equal_the_integral_of_the_tail(text, k, p):
    one = delay_distribution(text)
    assert integral(one, k, p) == pytest.approx(one.kth(k, p), rel=1e-8)


def test_a_straggler_takes_its_draws_times_the_scale():
    def program(comm):
        work = straggler(comm, iter([2.0, 3.0]), 0.5)
        return work(None), comm.Wtime(), work(None), comm.Wtime()

    assert sim.run(program, 1) == [(True, 1.0, True, 2.5)]


def test_more_ranks_and_more_steps_change_nobodys_draws(text):
    few = seconds(delay_distribution(text), SEED, steps=5, size=3)
    many = seconds(delay_distribution(text), SEED, steps=9, size=8)
    assert np.array_equal(few, many[:5, :3])


def test_ranks_and_seeds_draw_apart_and_speeds_divide():
    pareto = delay_distribution("pareto:1,2")
    even, other = (seconds(pareto, seed, steps=4, size=5) for seed in (1, 2))
    assert len(np.unique(even)) == 20 and not np.isin(other, even).any()
    uneven = seconds(delay_distribution("pareto:1,2*1,2,0.5"), 1, steps=4, size=5)
    assert np.array_equal(uneven, even / [1, 2, 0.5, 1, 2])


def test_expected_times_follow_a_common_speed_and_are_unknown_for_many():
    assert expected(delay_distribution("constant:3*2,2"), 4, 4) == 1.5
    assert expected(delay_distribution("constant:3*2,1"), 4, 4) is None
    published = [expected(EXPONENTIAL, k, 8) for k in (8, 6)]
    assert published == pytest.approx([3.718, 2.218], abs=0.0005)


@pytest.mark.parametrize(
    "text, why",
    [
        ("gamma:1,2", "a distribution of constant:C, shifted_exponential:C,MU, "),
        ("constant", "number of arguments is 0 instead of 1"),
        ("constant:1,2", "C is '1,2' instead of a number from 0"),
        ("pareto:1", "expected pareto:SCALE,SHAPE"),
        ("pareto:1,1", "SHAPE is '1' instead of a number above 1"),
        ("pareto:1,inf", "SHAPE is 'inf' instead of a number above 1"),
        ("constant:-1", "C is '-1' instead of a number from 0"),
        ("constant:nan", "C is 'nan'"),
        ("lognormal:1,inf", "SIGMA is 'inf'"),
        ("lognormal:0,1", "MEDIAN is '0' instead of a number above 0"),
        ("lognormal:1,1e30", "range error"),
        ("shifted_exponential:1,0", "MU is '0'"),
        ("constant:1*1,0", "SPEED is '0'"),
        ("constant:1*1,-2", "SPEED is '-2'"),
        ("constant:1*", "SPEED is ''"),
        ("trace:nowhere", "No such file"),
    ],
)
def test_a_wrong_distribution_is_refused_in_one_line(text, why):
    with pytest.raises(BadInput) as raised:
        delay_distribution(text)
    line = str(raised.value)
    assert line.startswith("expected ") and why in line and "\n" not in line
    assert repr(text.rpartition("*")[2]) in line or repr(text) in line


@pytest.mark.parametrize("lines", ("", "1\n-2\n", "1\nnan\n", "1\nsoon\n", "1 s\n"))
def test_a_trace_holds_seconds(lines, tmp_path):
    file = tmp_path / "seconds"
    file.write_text(lines)
    with pytest.raises(BadInput, match="trace"):
        delay_distribution(f"trace:{file}")


def by_hand(seconds_TxP, staleness):
    """Ho 2013, clock by clock and worker by worker."""
    steps, size = seconds_TxP.shape
    starts_TxP, finish = np.zeros((steps, size)), {}
    for k in range(steps):
        for i in range(size):
            others = [
                finish[j, k - staleness - 1] for j in range(size) if k > staleness
            ]
            starts_TxP[k, i] = max([0.0, finish.get((i, k - 1), 0.0), *others])
            finish[i, k] = starts_TxP[k, i] + seconds_TxP[k, i]
    return starts_TxP


@pytest.mark.parametrize("staleness", (0, 1, 2, 7, 30, math.inf))
def test_a_worker_starts_a_clock_when_all_have_done_those_before_its_bound(staleness):
    some_TxP = SECONDS_TxP[:20, :5]
    assert np.array_equal(ssp(some_TxP, staleness), by_hand(some_TxP, staleness))


@pytest.mark.parametrize(
    "k, size", ((6, 8), (8, 8), (1, 1000), (30, 1000), (999, 1000))
)
def test_a_step_ends_with_its_kth_for_all(k, size):
    some_TxP = seconds(EXPONENTIAL, 3, steps=20, size=size)
    kth = np.sort(some_TxP, axis=1)[:, k - 1]
    starts_TxP = k_of_p(some_TxP, k)
    assert (starts_TxP == starts_TxP[:, :1]).all()
    assert starts_TxP[0, 0] == 0
    assert np.diff(starts_TxP[:, 0]) == pytest.approx(kth[:-1], rel=1e-12)
    if k == size:
        assert starts_TxP == pytest.approx(ssp(some_TxP), rel=1e-12)


def test_pace_is_the_mean_from_start_to_start_after_the_settling():
    starts_TxP = np.array([[0.0, 0.0], [5.0, 5.0], [6.0, 8.0], [8.0, 10.0]])
    assert seconds_per_step(starts_TxP) == 3.0
    assert seconds_per_step(starts_TxP, skip=1) == 2.0
