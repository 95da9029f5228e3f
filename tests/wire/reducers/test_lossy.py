"""Compressed reducers: equal replicas, and with feedback nothing is lost."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.reducers.codecs.largest import top_k
from dml.wire.reducers.lossy import coded
from dml.wire.reducers.makers import MAKERS
from dml.wire.reducers.names import FEEDBACK, REDUCERS, reducer

SHAPES = {"embed": (40, 30), "block": (3, 12, 16), "bias": (17,)}
LENGTH, STEPS, ROWS = 40 * 30 + 3 * 12 * 16 + 17, 6, 40
BIASED = ("sign", "one_bit", "top_k", "random_k", "int8", "power_sgd")
BIASED += ("power_sgd_alternating",)
OWN_MEMORY = ("dgc:0.01", "one_bit_adam:2")  # of a kind of their own
UNBIASED = ("qsgd", "terngrad", "natural", "random_k")
NAMES = (*UNBIASED, *(f"{name}+{FEEDBACK}" for name in BIASED))
EXACTLY_SENT = ("top_k+feedback", "random_k+feedback")  # what is sent has no error


def gradient(step, rank):
    draws = np.random.default_rng([step, rank])
    return draws.standard_normal(LENGTH).astype(np.float32)


def tree():
    return {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}


def run(comm, name, steps=STEPS, allreduce="ring"):
    """Return the reduced buffers of all steps, and the states after them."""
    made = reducer(name, ALLREDUCE[allreduce])
    state, buffers, states = made.init(layout(tree())), [], []
    for step in range(steps):
        scalars = np.float32([comm.rank + 1, 10 * comm.rank])
        buffer = np.append(gradient(step, comm.rank), scalars)
        state = made.reduce(comm, buffer, state)
        buffers.append(buffer)
        states.append(state)
    return buffers, states


def error_of(state):
    """Return the error memory of a state."""
    (memory,) = state.values()
    return memory.own


def test_every_name_has_a_maker():
    assert sorted(MAKERS) == sorted(REDUCERS)


@pytest.mark.parametrize("size", (1, 2, 3, 5))
@pytest.mark.parametrize("name", (*NAMES, *OWN_MEMORY, "vote"))
def test_replicas_are_equal_and_scalars_are_exact(name, size):
    found = sim.run(partial(run, name=name), size)
    for buffers, _ in found:
        for own, first in zip(buffers, found[0][0], strict=True):
            assert own.tobytes() == first.tobytes()
            assert own[-2] == size * (size + 1) / 2
            assert own[-1] == 10 * size * (size - 1) / 2


@pytest.mark.parametrize("name", [name for name in NAMES if FEEDBACK in name])
def test_everything_sent_plus_the_errors_is_the_sum_of_all_gradients(name):
    size = 3
    found = sim.run(partial(run, name=name), size)
    sent = np.zeros(LENGTH)
    terms = np.zeros(LENGTH)
    for step in range(STEPS):
        sent += found[0][0][step][:-2]
        terms += sum(gradient(step, rank).astype(np.float64) for rank in range(size))
        errors = sum(error_of(found[rank][1][step]) for rank in range(size))
        assert sent + errors == pytest.approx(terms, abs=3e-5)
        assert np.abs(errors).max() > 0.01
    if name in EXACTLY_SENT:
        _, states = found[0]
        total = gradient(0, 0)
        kept = error_of(states[0])
        assert set(np.flatnonzero(kept != total)) == set(np.flatnonzero(kept == 0))


@pytest.mark.parametrize("name", UNBIASED)
def test_ranks_have_different_random_numbers_so_that_errors_cancel_out(name):
    """Equal streams on all ranks would add up their errors."""

    def program(comm, steps=300):
        text = name if name == "random_k" else f"{name}@gather"
        made = reducer(text, ALLREDUCE["tree"])
        state, found = made.init(layout(tree())), []
        for _ in range(steps):
            buffer = gradient(0, 0)
            state = made.reduce(comm, buffer, state)
            found.append(buffer / comm.size)
        return np.array(found)

    exact = gradient(0, 0)
    one, four = sim.run(program, 1)[0], sim.run(program, 4)[0]
    errors = [((found - exact) ** 2).mean() for found in (one, four)]
    # random_k draws the same positions on all ranks, which is its point
    ratio = 1 if name == "random_k" else 4
    assert errors[0] / errors[1] == pytest.approx(ratio, rel=0.1)
    if name != "terngrad":  # it estimates clipped values
        deviation = one.std(axis=0) / np.sqrt(len(one))
        z = np.abs(one.mean(axis=0) - exact) / (deviation + 1e-6)
        assert np.median(z) < 1


@pytest.mark.parametrize("name", ("qsgd", "natural", "random_k", "random_k+feedback"))
def test_buckets_of_a_step_have_different_random_numbers(name):
    made, term = reducer(name, ALLREDUCE["star"]), gradient(0, 0)[:400]

    def program(comm, leaf):
        state, buffer = made.init(layout({leaf: term})), term.copy()
        made.reduce(comm, buffer, state)
        return buffer.tobytes()

    first, same, other = (
        sim.run(partial(program, leaf=leaf), 1)[0] for leaf in ("a", "a", "b")
    )
    assert first == same != other


@pytest.mark.parametrize("size", (1, 2, 4))
def test_bytes_on_the_wire_are_those_of_the_codes(size):
    codec = top_k(0.01)

    def program(comm):
        comm, lossy = Metered(comm), coded(codec)
        lossy.sum(comm, gradient(0, comm.rank), None, lossy.init(layout(tree())))
        return comm.bytes_sent

    assert sim.run(program, size) == [(size - 1) * codec.nbytes(LENGTH)] * size


@pytest.mark.parametrize("form", ("power_sgd", "power_sgd_alternating"))
def test_power_sgd_sends_factors_and_recovers_low_ranks(form):
    def program(comm, rank):
        comm = Metered(comm)
        made = reducer(f"{form}:{rank}", ALLREDUCE["ring"])
        shapes = {"matrix": np.zeros((ROWS, 30), np.float32), "bias": np.zeros(7)}
        state = made.init(layout({k: np.float32(v) for k, v in shapes.items()}))
        draws = np.random.default_rng(comm.rank)
        common = np.random.default_rng(9).standard_normal((3, 30))
        matrix = draws.standard_normal((ROWS, 3)) @ common  # the sum has rank 3, too
        term = np.append(np.arange(7.0), matrix).astype(np.float32)
        for _ in range(40):  # warm start: the subspace converges
            buffer = term.copy()
            state = made.reduce(comm, buffer, state)
        return term, buffer, comm.bytes_sent

    sides = (ROWS + 30) / (2 if "alternating" in form else 1)  # mean of a step
    for rank, recovered in ((3, True), (2, False)):
        found = sim.run(partial(program, rank=rank), 2)
        exact = sum(term.astype(np.float64) for term, _, _ in found)
        for _, buffer, nbytes in found:
            assert buffer[:7] == pytest.approx(exact[:7])  # the vector
            error = np.linalg.norm((buffer - exact)[7:]) / np.linalg.norm(exact[7:])
            assert (error < 1e-5) == recovered
            # an odd number of words is divided over two ranks
            assert nbytes == pytest.approx(40 * 4 * (rank * sides + 7), abs=2 * 40)
        best = np.linalg.svd(exact[7:].reshape(ROWS, 30), compute_uv=False)
        left = np.sqrt((best[rank:] ** 2).sum()) / np.linalg.norm(best)
        assert error == pytest.approx(left, rel=1e-2, abs=1e-5)


def power(comm, terms, rank=2):
    """Return what PowerSGD sends of this rank's terms of one matrix, step by step."""
    made = reducer(f"power_sgd:{rank}+feedback", ALLREDUCE["ring"])
    state, sent = made.init(layout(np.zeros((ROWS, 30), np.float32))), []
    for term in terms[comm.rank]:
        buffer = term.reshape(-1).copy()
        state = made.reduce(comm, buffer, state)
        sent.append(buffer)
    return np.array(sent)


def test_power_sgd_is_linear_in_the_gradients_of_the_ranks():
    draws = np.random.default_rng(0)
    terms = draws.standard_normal((3, 4, ROWS, 30)).astype(np.float32)
    alone = sim.run(partial(power, terms=terms.sum(0)[None]), 1)[0]
    assert sim.run(partial(power, terms=terms), 3)[0] == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize("size", (1e-12, 1.0, 1e6))
def test_power_sgd_sends_low_ranks_of_any_size_also_after_zeros(size):
    draws = np.random.default_rng(0)
    rank_1 = np.outer(draws.standard_normal(ROWS), draws.standard_normal(30))
    steps = [0 * rank_1, *([rank_1] * 3), 0 * rank_1, *([rank_1] * 3)]
    terms = np.float32(size) * np.array([steps], np.float32)
    sent = sim.run(partial(power, terms=terms), 1)[0]
    # all of rank 1 is sent at once, neither less nor more
    for found, step in zip(sent[2:], terms[0][2:], strict=True):
        largest = float(np.abs(terms).max())
        assert found == pytest.approx(step.reshape(-1), abs=1e-4 * largest)


@pytest.mark.parametrize("name", ("sign", "sign+feedback", "top_k:0.5+feedback"))
def test_signs_do_not_converge_without_feedback(name):
    """Counterexample 2 of Karimireddy 2019: x + y never changes without feedback.

    f(x, y) = |x + y|/4 + |x - y|; all of its subgradients have the signs (1, -1) or
    (-1, 1).
    """
    made = reducer(name, ALLREDUCE["star"])

    def program(comm):
        point = np.array([1.0, 1.0], np.float32)
        state = made.init(layout(np.zeros(2, np.float32)))
        for step in range(4000):
            along, across = np.sign(point[0] + point[1]), np.sign(point[0] - point[1])
            grads = np.float32(
                [0.25 * along + (across or 1), 0.25 * along - (across or 1)]
            )
            state = made.reduce(comm, grads, state)
            point -= np.float32(0.5 / np.sqrt(step + 1)) * grads * np.float32(0.1)
        return point

    (point,) = sim.run(program, 1)
    if name == "sign":
        assert point.sum() == pytest.approx(2.0, abs=1e-3)
    else:
        assert np.abs(point).max() < 0.05


@pytest.mark.parametrize(
    "text, message",
    [
        ("nothing", "expected a reducer of exact, .* got 'nothing'"),
        ("top_k:2", r"expected a fraction in \(0, 1\] of the elements, got 2"),
        ("random_k:0", r"expected a fraction in \(0, 1\] of the elements, got 0"),
        ("top_k:much", r"expected top_k\[:FRACTION\], got .* instead of a number"),
        ("sign:3", "expected sign, got 'sign:3'"),
        ("qsgd:200", "expected 1 to 127 levels of QSGD, got 200"),
        (
            "qsgd:4+feedback",
            "expected a biased code with feedback, got an unbiased one",
        ),
        ("exact+feedback", r"expected exact without \+feedback"),
        ("order_free+feedback", r"expected order_free without \+feedback"),
        (
            "sign@bus",
            "expected sign@ and a transport of gather, scatter, two_level, ring",
        ),
        ("exact@ring", "expected @ring on a reducer of qsgd, .* leave it out"),
        ("power_sgd:0", "expected a rank of 1 to 1024, got 0"),
        ("power_sgd:30", "expected a matrix of more than"),
    ],
)
def test_bad_reducers_are_named(text, message):
    with pytest.raises(BadInput, match=message):
        reducer(text, ALLREDUCE["star"]).init(layout(tree()))


def test_integers_and_doubles_are_refused():
    made = reducer("sign+feedback", ALLREDUCE["star"])

    def program(comm):
        state = made.init(layout(np.zeros(8)))
        made.reduce(comm, np.zeros(8), state)

    with pytest.raises(BadInput, match="expected float32 .* got float64"):
        sim.run(program, 2)
