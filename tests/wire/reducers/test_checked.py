"""With a check, every reducer refuses what differs between ranks, on all of them."""

import jax
import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, with_check
from dml.wire.comm.buffers import layout
from dml.wire.reducers.checked import checked
from dml.wire.reducers.names import REDUCERS, ROBUST, reducer

ARGUMENTS = {"power_sgd": ":2", "power_sgd_alternating": ":2", "one_bit_adam": ":2"}
ARGUMENTS |= dict.fromkeys(ROBUST, ":0")  # as many as 4 ranks allow
NAMES = [name + ARGUMENTS.get(name, "") for name in REDUCERS]
NAMES += ["top_k:0.1@ring+feedback", "qsgd@scatter", "sign@two_level+feedback"]
SHAPE = (32, 16)
HOSTS = sim.Uniform(host=2)


def start(text, shape=SHAPE):
    made = checked(reducer(text, with_check(ALLREDUCE["ring"])), text)
    return made, made.init(layout({"w": np.zeros(shape, np.float32)}))


def term(rank, length=512):
    draws = np.random.default_rng(rank)
    return draws.standard_normal(length + 1).astype(np.float32)  # and a scalar


def refusals(differ, odd):
    """Return the error of each of 4 ranks, of which `odd` calls `differ`."""

    def program(comm):
        try:
            if comm.rank == odd:
                differ(comm)
            else:
                made, state = start("sign")
                made.reduce(comm, term(comm.rank), state)
        except BadInput as error:
            return str(error)
        return ""

    return sim.run(program, 4, HOSTS)


@pytest.mark.parametrize("text", NAMES)
def test_a_check_does_not_change_the_bits_of_a_reducer(text):
    def program(comm, is_checked):
        made, state = start(text)
        if not is_checked:
            made = reducer(text, ALLREDUCE["ring"])
        buffers = []
        for step in range(4):
            buffers.append(term(10 * step + comm.rank))
            state = made.reduce(comm, buffers[-1], state)
        return np.array(buffers).tobytes()

    with_checks = sim.run(lambda comm: program(comm, True), 4, HOSTS)
    assert with_checks == sim.run(lambda comm: program(comm, False), 4, HOSTS)
    assert len(set(with_checks)) == 1


@pytest.mark.parametrize("odd", (0, 1, 3))
@pytest.mark.parametrize("text", NAMES)
def test_a_gradient_of_another_length_is_refused_with_the_rank(text, odd):
    def program(comm):
        rows = 34 if comm.rank == odd else 32
        made, state = start(text, (rows, 16))
        buffer = term(comm.rank, 16 * rows)
        with pytest.raises(BadInput) as refused:
            made.reduce(comm, buffer, state)
        assert (buffer == term(comm.rank, 16 * rows)).all()
        return str(refused.value)

    for error in sim.run(program, 4, HOSTS):
        assert "545 x float32" in error
        assert "513 x float32" in error
        assert f"rank {odd or 1} has" in error


def other_name(comm):
    made, state = start("one_bit")
    made.reduce(comm, term(comm.rank), state)


def other_argument(comm):
    made, _ = start("sign")
    made.reduce(comm, term(comm.rank), start("sign", (16, 16))[1])


def other_dtype(comm):
    made, state = start("sign")
    made.reduce(comm, term(comm.rank).astype(np.float64), state)


def other_step(comm):
    made, state = start("sign")
    ((length, memory),) = state.items()
    later = jax.tree.map(lambda array: array + 1, memory.common)
    made.reduce(comm, term(comm.rank), {length: memory._replace(common=later)})


@pytest.mark.parametrize("odd", (0, 2))
@pytest.mark.parametrize(
    "differ, word",
    [
        (other_name, "of one_bit"),
        (other_argument, "for state"),
        (other_dtype, "513 x float64"),
        (other_step, "for state"),
    ],
)
def test_what_differs_is_refused_with_the_rank(differ, word, odd):
    for error in refusals(differ, odd):
        assert error.startswith("expected equal arguments on all ranks, but rank 0 has")
        assert f"rank {odd or 1} has" in error
        assert word in error


def test_terms_of_several_shards_are_compared():
    def program(comm):
        made = checked(reducer("order_free", ALLREDUCE["ring"]), "order_free")
        length = 5 if comm.rank else 6
        with pytest.raises(BadInput, match="rank 0 has 6 x .* rank 1 has 5 x"):
            made.reduce_terms(comm, [np.ones(length, np.float32)] * 2, {length: None})

    sim.run(program, 2)


def test_a_long_name_and_letters_of_several_bytes_do_not_hide_a_difference():
    def program(comm):
        made = checked(reducer("exact", ALLREDUCE["ring"]), "ä" * 200)
        made.reduce(comm, np.ones(3), None)
        with pytest.raises(BadInput, match="rank 2 has 4 x float64"):
            made.reduce(comm, np.ones(4 if comm.rank == 2 else 3), None)

    sim.run(program, 3)
