"""Saves in the background: snapshots keep their bits, and no error or write is lost."""

import threading
from contextlib import closing
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.runs import saves, states
from dml.runs.saves import Saves, interval
from dml.runs.snapshots import snapshot
from dml.train import checkpointed
from dml.types import Step
from dml.wire.comm.mpi import world


def steps(count, state=None):
    for number in range(1, count + 1):
        yield Step(number, 1.0, lambda: state, 1, {}, 0)


def run(save, count=3, every=1e-9, stop=lambda: False):
    """Return the numbers of the steps of a run on a real rank, which is saved."""
    saved = checkpointed(steps(count), world(), save, every, stop)
    with closing(saved):
        return [step.number for step in saved]


def test_a_snapshot_keeps_its_bits_while_steps_reuse_the_buffers_of_the_state(tmp_path):
    """Two optimizers reuse buffers: by donation, and in place."""
    donating = jax.jit(
        lambda state: jax.tree.map(jnp.add, state, state), donate_argnums=0
    )
    first = {"m": jnp.arange(64.0), "n": np.arange(5), "key": jax.random.key(3)}
    buffers, written = {}, []
    for number in (1, 2):
        state = {**first, "m": number * first["m"], "n": number * first["n"]}
        copied = snapshot(state, buffers)
        donating({"m": state["m"]})  # deletes the buffer of the state
        state["n"] += 7
        states.write(tmp_path, number, copied, {})
        like = {**first, "n": np.zeros(5, int)}
        written.append(states.load(tmp_path, {}, like, pytest.fail)[1])
    for number, found in enumerate(written, 1):
        np.testing.assert_array_equal(found["m"], number * np.arange(64.0))
        np.testing.assert_array_equal(found["n"], number * np.arange(5))
        assert jax.random.key_data(found["key"]).tolist() == [0, 3]
    reused = snapshot({"m": jnp.zeros(64), "n": np.zeros(5, np.int64)}, buffers).arrays
    assert all(reused[name] is buffers[name] for name in ("m", "n"))
    other = snapshot({"m": jnp.zeros(65)}, buffers).arrays["m"]
    assert other.shape == (65,)  # another shape has another buffer


def test_steps_continue_during_a_write_and_the_next_save_waits_for_it():
    order, release, entered = [], threading.Event(), threading.Event()

    def write(number):
        entered.set()
        assert release.wait(10)
        order.append(f"written {number}")

    def save(step):
        order.append(f"snapshot {step.number}")
        return partial(write, step.number)

    with Saves(every=0) as saved:
        first, second, *_ = steps(2)
        saved.save(partial(save, first))
        assert entered.wait(10)
        order.append("step 2")  # the write is in progress
        threading.Timer(0.05, release.set).start()
        saved.save(partial(save, second))
    assert order[:3] == ["snapshot 1", "step 2", "written 1"]
    assert order[3:] == ["snapshot 2", "written 2"]


@pytest.mark.parametrize("stops", (False, True))
def test_the_last_write_has_ended_at_the_end_and_before_a_stop(stops):
    written = []

    def save(step):
        pause = threading.Event()
        return lambda: (pause.wait(0.05), written.append(step.number))

    numbers = run(save, count=2, every=0 if stops else 3600, stop=lambda: stops)
    assert numbers == ([1] if stops else [1, 2])
    assert written == numbers[-1:]


def test_an_error_of_a_write_is_raised_at_the_next_save_or_at_the_end():
    def save(step):
        if step.number == 2:
            return partial(pytest.fail, "no space", pytrace=False)
        return lambda: None

    seen = []
    saved = checkpointed(steps(5), world(), save, 1e-9, lambda: False)
    with pytest.raises(pytest.fail.Exception, match="no space"):
        seen += (step.number for step in saved)
    with pytest.raises(pytest.fail.Exception, match="no space"):
        run(save, count=2, every=3600)


def test_an_error_of_a_step_is_raised_with_a_note_on_that_of_a_write():
    def broken():
        yield from steps(1)
        raise FloatingPointError("not finite")

    def write():
        raise OSError("no space")

    saved = checkpointed(broken(), world(), lambda step: write, 1e-9, lambda: False)
    with pytest.raises(FloatingPointError, match="not finite") as caught:
        list(saved)
    assert caught.value.__notes__ == ["the last save failed, too: no space"]


def test_a_loop_that_ends_early_waits_for_the_write():
    written = []
    pause = threading.Event()

    def save(step):
        return lambda: (pause.wait(0.05), written.append(step.number))

    saved = checkpointed(steps(9), world(), save, 1e-9, lambda: False)
    with pytest.raises(ZeroDivisionError), closing(saved):
        raise ZeroDivisionError(next(saved))
    assert written == [1]


def test_a_loop_that_ends_early_raises_the_error_of_the_write():
    def write():
        raise OSError("no space")

    saved = checkpointed(steps(9), world(), lambda step: write, 1e-9, lambda: False)
    with pytest.raises(OSError, match="no space"), closing(saved):
        next(saved)


def test_virtual_ranks_write_in_the_step_on_rank_0():
    def program(comm):
        threads = []

        def save(step):
            name = threading.current_thread
            return None if comm.rank else lambda: threads.append(name())

        list(checkpointed(steps(2), comm, save, 3600, lambda: False))
        return threads

    assert sim.run(program, 2) == [[threading.current_thread()], []]


def test_a_state_that_is_not_finite_is_not_written(tmp_path):
    for number, value in ((1, 1.0), (2, np.nan)):
        copied = snapshot({"x": jnp.full(3, value)}, {})
        states.write(tmp_path, number, copied, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-1.npz"]


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(saves, "time", clock)
    return clock


@pytest.mark.parametrize("share", (0.035, 0.2))
def test_saves_by_overhead_take_a_bounded_share_of_the_time(clock, share):
    """A snapshot takes 0.3 s; 4 steps during a write take 1.5 s instead of 1 s."""
    saved, done, writing = Saves(0, share, threaded=False), [], 0

    def snapshot():
        nonlocal writing
        clock.now += 0.3
        done.append(clock.now)
        writing = 4

    for _ in range(400):
        seconds = 1.5 if writing else 1.0
        clock.now += seconds
        saved.count(seconds, writing=bool(writing))
        writing = max(0, writing - 1)
        if saved.due():
            saved.save(snapshot)
    cost = 0.3 + 4 * 0.5
    assert done[0] == saves.FIRST_STEPS + 0.3
    work = np.diff(done) - cost  # between saves, at the speed without saves
    assert np.all(cost <= share * work)
    assert np.all(work <= cost / share + 1.5)


def test_an_evaluation_between_two_steps_is_a_delay_of_one_step_at_most(clock):
    def slow():
        for step in steps(9):
            clock.now += 1.0
            yield step

    saved = Saves(0, share=0.1, threaded=False)
    for step in saved.timed(slow()):
        if step.number == 5:
            saved.save(lambda: None)
            clock.now += 100  # an evaluation
    assert saved.cost == pytest.approx(1.0)


def test_the_interval_of_saves_is_that_of_the_disk_or_of_the_overhead():
    assert interval(cost=0.1, write=1, share=0.01) == pytest.approx(10)
    assert interval(cost=0.1, write=30, share=0.01) == 30


def test_saves_by_seconds_are_due_after_each_interval(clock):
    saved = Saves(every=2.0)
    due = []
    for _ in range(6):
        clock.now += 1.0
        due.append(saved.due())
        if due[-1]:
            saved.save(lambda: None)
    assert due == [False, True] * 3
    assert not Saves(every=0).due()
