"""DGC and 1-bit Adam beside references in a few lines of NumPy, and optax's Adam."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml import sim
from dml.types import STATISTICS, BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.reducers import dgc as deep
from dml.wire.reducers.names import reducer

LENGTH, SIZE = 500, 3


def term(step, rank):
    draws = np.random.default_rng([step, rank])
    return (draws.standard_normal(LENGTH) * np.geomspace(0.01, 1, LENGTH)).astype(
        np.float32
    )


def reduced(comm, name, steps, terms=term):
    """Return the results of all steps, the states after them, and the bytes sent."""
    made, metered = reducer(name, ALLREDUCE["ring"]), Metered(comm)
    state = made.init(layout(np.zeros(LENGTH, np.float32)))
    found, states, sent = [], [], []
    for step in range(steps):
        buffer = terms(step, comm.rank)
        state = made.reduce(metered, buffer, state)
        found.append(buffer)
        states.append(state[LENGTH])
        sent.append(metered.bytes_sent)
    return np.array(found), states, np.diff([0, *sent])


def largest(values, fraction):
    """Return the mask of the largest absolute values; of equal ones the first."""
    count = int(np.ceil(fraction * len(values)))
    mask = np.zeros(len(values), bool)
    mask[np.argsort(-np.abs(values), kind="stable")[:count]] = True
    return mask


def dgc_reference(fraction, steps):
    """Return the sums that the ranks of DGC send, step by step."""
    momentum, unsent = np.zeros((2, SIZE, LENGTH), np.float32)
    sums = []
    for step in range(steps):
        share = max(fraction, 0.25 ** (1 + step // deep.STAGE))
        total = np.zeros(LENGTH)
        for rank in range(SIZE):
            momentum[rank] = np.float32(0.9) * momentum[rank] + term(step, rank)
            unsent[rank] += momentum[rank]
            mask = largest(unsent[rank], share)
            total[mask] += unsent[rank][mask]
            momentum[rank][mask] = unsent[rank][mask] = 0
        sums.append(total)
    return np.array(sums)


def test_dgc_is_its_pseudocode_through_the_warm_up(monkeypatch):
    monkeypatch.setattr(deep, "STAGE", 4)
    for found, _, _ in sim.run(partial(reduced, name="dgc:0.01", steps=20), SIZE):
        assert found == pytest.approx(dgc_reference(0.01, 20), abs=1e-4)


def test_dgc_sends_positions_and_values_of_the_fraction_of_each_stage(monkeypatch):
    monkeypatch.setattr(deep, "STAGE", 2)
    _, _, sent = sim.run(partial(reduced, name="dgc:0.01", steps=10), SIZE)[1]
    counts = [125, 125, 32, 32, 8, 8, 5, 5, 5, 5]  # of 500: 1/4, 1/16, 1/64, 1/100
    assert sent.tolist() == [(SIZE - 1) * 8 * count for count in counts]


def test_dgc_of_all_elements_is_the_sum_without_momentum():
    program = partial(reduced, name="dgc:1", steps=3)
    found, states, _ = sim.run(program, SIZE)[0]
    for step in range(3):
        total = sum(term(step, rank) for rank in range(SIZE))
        assert found[step] == pytest.approx(total, abs=1e-6)
        assert not states[step].own.momentum.any()


def optax_directions(steps):
    """Return the directions of optax's Adam for the sums of all ranks."""
    rule = optax.scale_by_adam()
    state = rule.init(jnp.zeros(LENGTH))
    found = []
    for step in range(steps):
        total = sum(term(step, rank) for rank in range(SIZE))
        direction, state = rule.update(jnp.asarray(total), state)
        found.append(direction)
    return np.array(found)


def test_the_warm_up_of_1_bit_adam_is_adam():
    for found, _, _ in sim.run(partial(reduced, name="one_bit_adam", steps=8), SIZE):
        assert found == pytest.approx(optax_directions(8), rel=2e-4, abs=1e-5)


def test_1_bit_adam_sends_codes_after_the_warm_up_and_keeps_their_errors():
    """Everything decoded plus the errors is the momentum of the exact gradients."""
    warm_up, steps = 4, 12
    name = f"one_bit_adam:{warm_up}"
    ranks = sim.run(partial(reduced, name=name, steps=steps), SIZE)
    found, states, sent = ranks[0]
    assert (sent[:warm_up] > 19 * sent[-1]).all()
    for step in range(warm_up, steps):
        old, new = states[step - 1].common, states[step].common
        errors = [
            sum(other[1][at].own.astype(np.float64) for other in ranks)
            for at in (step - 1, step)
        ]
        total = sum(term(step, rank).astype(np.float64) for rank in range(SIZE))
        scale = 1 / (np.sqrt(new.square / (1 - 0.999**warm_up)) + 1e-8)
        expected = (0.9 * old.mean + 0.1 * total) * scale + errors[0]
        assert new.mean * scale + errors[1] == pytest.approx(expected, abs=1e-4)
        assert np.abs(errors[1]).max() > 1e-3
        assert new.square.tobytes() == states[warm_up - 1].common.square.tobytes()
        direction = new.mean * scale / (1 - 0.9 ** (step + 1))
        assert found[step] == pytest.approx(direction, rel=1e-3)
        assert found[step].tobytes() == ranks[1][0][step].tobytes()


def test_small_variances_do_not_make_large_steps():
    """A code of m instead of m/√v would divide the mean |m| by each √v."""
    found, _, _ = sim.run(partial(reduced, name="one_bit_adam:4", steps=12), SIZE)[0]
    assert np.abs(found[4:]).max() < 10


def test_1_bit_adam_does_not_move_elements_without_a_gradient_in_the_warm_up():
    def sparse(step, rank):
        values = term(step, rank)
        values[:100] *= step >= 3
        return values

    program = partial(reduced, name="one_bit_adam:2", steps=6, terms=sparse)
    found, _, _ = sim.run(program, 2)[0]
    assert np.isfinite(found).all()
    assert not found[:, :100].any() and found[:, 100:].all()


@pytest.mark.parametrize(
    "text, message",
    [
        ("dgc:0", r"expected a fraction in \(0, 1\] of the elements, got 0"),
        ("dgc+feedback", r"expected dgc without \+feedback, which it always has"),
        ("one_bit_adam:0", "expected a warm-up of at least 1 update of Adam, got 0"),
        ("one_bit_adam+feedback", r"expected one_bit_adam without \+feedback"),
    ],
)
def test_bad_arguments_are_named(text, message):
    with pytest.raises(BadInput, match=message):
        reducer(text, ALLREDUCE["star"])


@pytest.mark.parametrize("name", ("dgc", "one_bit_adam"))
def test_running_statistics_are_refused(name):
    tree = {"weights": np.zeros(3, np.float32), STATISTICS: {"mean": np.zeros(2)}}
    with pytest.raises(BadInput, match=r"without running statistics .*'mean'"):
        reducer(name, ALLREDUCE["star"]).init(layout(tree))
