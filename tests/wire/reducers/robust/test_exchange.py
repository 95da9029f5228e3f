"""Robust reducers on ranks: the estimate of all terms, its words, and its state."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.strategies.loops.parameters import restore_memory
from dml.types import BadInput, Rows
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.plans.topology import chunks
from dml.wire.reducers.makers import RULES
from dml.wire.reducers.names import reducer
from dml.wire.reducers.robust.mixing import MIXING
from tests.wire.reducers.robust.small import (
    BY_COLUMN,
    SELECTING,
    estimate_of_sum,
    normal,
)

TERMS = 9
NAMES = [*RULES, "median+nnm", "krum+bucketing", "mean+clipping", "krum+clipping+nnm"]


def faulty(name):
    """Return a name such as krum:1+nnm."""
    rule, plus, mixing = name.partition("+")
    return f"{rule}:1{plus}{mixing}"


def run(comm, name, rows, steps=1, allreduce="ring", state=None):
    """Return this rank's buffer after some steps, its state, and the bytes sent.

    Each rank has consecutive terms; term r has the scalars r and 10 r.
    """
    comm = Metered(comm)
    made = reducer(name, ALLREDUCE[allreduce])
    own = chunks(len(rows), comm.size)[comm.rank]
    state = made.init(layout(rows[0])) if state is None else state
    for _ in range(steps):
        buffers = [
            np.append(rows[r], np.float32([r, 10 * r]))
            for r in range(own.start, own.stop)
        ]
        sent = comm.bytes_sent
        if len(rows) == comm.size:
            state = made.reduce(comm, buffers[0], state)
        else:
            state = made.reduce_terms(comm, buffers, state)
    return buffers[0], state, comm.bytes_sent - sent


@pytest.mark.parametrize("size", (3, 5, 6, 9))
@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_have_the_estimate_of_the_sum_of_all_terms(name, size):
    rule, *mixings = name.split("+")
    least = RULES[rule](1).least(1)
    for length in (0, 1, size - 1, 37):
        rows = normal(size, length)
        program = partial(run, name=faulty(name), rows=rows)
        if "bucketing" in name and size < 2 * least - 1 or size < least:
            with pytest.raises(BadInput, match="expected n >="):
                sim.run(program, size)
            continue
        mixed = [MIXING[mixing] for mixing in mixings]
        expected = estimate_of_sum(RULES[rule](1), rows, *mixed)
        found = sim.run(program, size)
        assert len({buffer.tobytes() for buffer, _, _ in found}) == 1
        np.testing.assert_allclose(found[0][0][:-2], expected, rtol=1e-5, atol=1e-6)
        assert found[0][0][-2:].tolist() == [sum(range(size)), 10 * sum(range(size))]
        if name in (*BY_COLUMN, *SELECTING):
            assert found[0][0][:-2].tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_does_not_depend_on_the_ranks_of_the_terms(name):
    rows = normal(TERMS, 45)
    program = partial(run, name=faulty(name), rows=rows, steps=2)
    expected = sim.run(program, 1)[0][0]
    for size in (2, 3, 5, TERMS):
        for buffer, _, _ in sim.run(program, size):
            if name in (*BY_COLUMN, *SELECTING, "median+nnm"):
                assert buffer.tobytes() == expected.tobytes()
            np.testing.assert_allclose(buffer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", (*BY_COLUMN, *SELECTING))
def test_with_all_terms_on_all_ranks_the_estimate_is_the_same(name):
    rows = normal(TERMS, 45)
    scattered = sim.run(partial(run, name=f"{name}:1@scatter", rows=rows), TERMS)
    gathered = sim.run(partial(run, name=f"{name}:1@gather", rows=rows), TERMS)
    assert scattered[0][0].tobytes() == gathered[4][0].tobytes()


FACTS = {  # numbers that are summed over slices: flags, distances, lengths
    "mean:0": 0,
    "trimmed_mean:1": 7,
    "krum:1": 7 + 21,
    "bulyan:1": 7 + 21,
    "median:1+nnm": 7 + 21,
    "geometric_median:1": 7 + 3 * 7,
    "centred_clipping:1": 7 + 7,
    "krum:1+clipping": 7 + 7 + 21,
}


@pytest.mark.parametrize("name", FACTS)
def test_words_are_those_of_the_formula(name):
    p, d, scalars = 7, 100, 2
    rows = normal(p, d)
    found = sim.run(partial(run, name=name, rows=rows, allreduce="star"), p)
    scattered = gathered = 4 * (p - 1) * d
    facts = 8 * 2 * (p - 1) * FACTS[name]
    expected = scattered + gathered + facts + 4 * (p - 1) * p * scalars
    assert sum(sent for _, _, sent in found) == expected


def test_with_gather_every_rank_sends_its_term_to_all():
    p, d, scalars = 7, 100, 2
    found = sim.run(partial(run, name="krum:1@gather", rows=normal(p, d)), p)
    assert sum(sent for _, _, sent in found) == 4 * (p - 1) * p * (d + scalars)


def test_workers_send_their_momentum():
    terms = 5
    for size in (1, 2, 5):
        momentum = np.zeros((terms, 8), np.float32)
        states = [None] * size
        for step in range(4):
            rows = normal(terms, 8, step)
            momentum = np.float32(0.9) * momentum + np.float32(0.1) * rows
            program = partial(resumed, "median:1+momentum", rows, states)
            found = sim.run(program, size)
            states = [state for _, state, _ in found]
            expected = 5 * np.median(momentum, axis=0)
            np.testing.assert_allclose(found[0][0][:-2], expected, rtol=1e-5)


def resumed(name, rows, states, comm):
    return run(comm, name, rows, state=states[comm.rank])


def test_the_last_estimate_is_the_next_centre():
    rows, centre = normal(5, 20), None
    for steps in (1, 2, 3):
        centre = estimate_of_sum(RULES["centred_clipping"](1, 0.1), rows, centre=centre)
        program = partial(run, name="centred_clipping:1,0.1", rows=rows, steps=steps)
        found = sim.run(program, 5)[0][0][:-2]
        np.testing.assert_allclose(found, centre, rtol=1e-5, atol=1e-6)


def test_buckets_are_drawn_anew_in_each_step():
    rows = normal(9, 20)
    for steps in (1, 2, 3):
        mixing = MIXING["bucketing"]
        expected = estimate_of_sum(RULES["krum"](1), rows, mixing, step=steps - 1)
        program = partial(run, name="krum:1+bucketing", rows=rows, steps=steps)
        assert np.array_equal(sim.run(program, 9)[0][0][:-2], expected)


@pytest.mark.parametrize("name", ("median:1+momentum", "centred_clipping:1+momentum"))
@pytest.mark.parametrize("sizes", ((2, 2), (3, 5), (1, 4), (6, 1)))
def test_momentum_and_centre_continue_on_another_number_of_ranks(name, sizes):
    """Terms are divided anew; a worker keeps its momentum."""
    import jax

    def after(rank_states):
        return [jax.tree.leaves(state) for state in rank_states]

    def restore(comm, saved):
        state = reducer(name, ALLREDUCE["ring"]).init(layout(rows[0]))
        return restore_memory(comm, state, saved)

    rows, later = normal(6, 20), normal(6, 20, 1)
    straight = sim.run(partial(run, name=name, rows=rows, steps=3), sizes[0])
    saved = [state for _, state, _ in straight]
    (expected, *_) = sim.run(partial(resumed, name, later, saved), sizes[0])
    restored = sim.run(lambda comm: restore(comm, after(saved)), sizes[1])
    found = sim.run(partial(resumed, name, later, restored), sizes[1])
    np.testing.assert_allclose(found[0][0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ("krum:1", "median:1+nnm", "bulyan:1"))
def test_a_server_estimates_as_ranks_do(name):
    """Rows that a worker did not touch are zero."""
    table = normal(7, 6 * 3).reshape(7, 6, 3)
    touched = np.random.default_rng(0).random((7, 6)) < 0.6
    touched[:, 5] = False  # by no worker
    table *= touched[:, :, None]
    terms = [
        Rows(np.flatnonzero(own).astype(np.int32), values[own])
        for own, values in zip(touched, table, strict=True)
    ]
    index, values = reducer(name, ALLREDUCE["ring"]).combine(terms)
    found = np.zeros((6, 3), np.float32)
    found[index] = values
    on_ranks = sim.run(partial(run, name=name, rows=table.reshape(7, -1)), 7)[0][0]
    assert found.tobytes() == on_ranks[:-2].tobytes()


@pytest.mark.parametrize(
    "name", ("median+momentum", "centred_clipping", "krum+bucketing")
)
def test_servers_have_no_memory_for_rules(name):
    assert reducer(name, ALLREDUCE["ring"]).combine is None


def test_gradients_of_float64_are_refused():
    with pytest.raises(BadInput, match="float32 for a robust estimate"):
        sim.run(partial(run, name="median:1", rows=normal(3, 5).astype(float)), 3)
