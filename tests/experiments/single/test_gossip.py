"""The single file of gossip has the bits and words of dml's averaging and D-PSGD."""

import numpy as np
import pytest

from dml.wire.averaging.gossip import gossip as modular_mix
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix
from experiments.single import gossip
from tests.experiments.single.proof import broken, ran
from tests.experiments.single.training import regression, trained

UPDATES, BATCH, DIM, RATE = 9, 4, 7, 0.125
SIZES = (1, 2, 3, 4, 5)


def single(size, module=gossip):
    """Return the vector of each rank after training by the file, and its bytes."""

    def program(comm):
        minibatches = gossip.examples(comm.rank, UPDATES, BATCH, DIM)
        start = np.zeros(DIM, np.float32)
        return module.d_psgd(comm, start, minibatches, RATE)[-1].tobytes()

    return ran(program, size)


def by_strategy(size):
    """Return the same of the strategy."""
    shards = [gossip.examples(rank, UPDATES, BATCH, DIM) for rank in range(size)]
    minibatches = [each for step in zip(*shards, strict=True) for each in step]
    x, y = (np.concatenate(each) for each in zip(*minibatches, strict=True))
    problem = regression(gossip.gradient, x, y)
    batches = np.arange(len(y)).reshape(UPDATES, -1)
    results = trained("gossip", problem, batches, RATE, size, topology="ring", every=1)
    return [(vector.tobytes(), nbytes) for (_, vector), nbytes in results]


def averaged(mix, size, dtype):
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(DIM).astype(dtype)
        for t in range(4):
            x = mix(comm, x, t)
        return x.tobytes()

    return ran(program, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_averages_and_words_are_those_of_gossip_on_a_ring(size, dtype):
    ring = topology("ring", size)

    def modular(comm, x, t):
        modular_mix(comm, x, ring, t)
        return x

    found = averaged(lambda comm, x, t: gossip.mix(comm, x), size, dtype)
    assert found == averaged(modular, size, dtype)


@pytest.mark.parametrize("size", SIZES)
def test_vectors_and_words_are_those_of_the_strategy(size):
    assert single(size) == by_strategy(size)


@pytest.mark.parametrize("size", range(2, 12))
def test_the_matrix_and_its_second_eigenvalue_are_those_of_the_ring(size):
    w = matrix(topology("ring", size), 0)
    np.testing.assert_allclose(gossip.ring_matrix(size), w, rtol=1e-15)
    second = np.sort(abs(np.linalg.eigvalsh(w)))[-2]
    assert second == pytest.approx(abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi / size)))


@pytest.mark.parametrize("size", SIZES)
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(gossip.main, size)
    text = capsys.readouterr().out
    words = int(text.split("words sent by a rank in a round: ")[1].split()[0])
    assert counted[0][1] == words * (6 * 8 + 30 * 4)  # float64, then float32
    assert "equal to one process except for rounding: True" in text


@pytest.mark.parametrize(
    "old, new",
    [
        ("(1 - weight - weight) * x", "(1 - weight) * x"),
        ("comm.Sendrecv(x, left, 0, x_right", "comm.Sendrecv(x, right, 0, x_right"),
        ("weight * x_right\n", "weight * x_left\n"),
        ("mix(comm, x - gamma * grad)", "mix(comm, x) - gamma * grad"),
        ("+ weight * x_left + weight * x_right", "+ weight * (x_left + x_right)"),
    ],
)
def test_a_broken_line_changes_the_vectors(old, new, tmp_path):
    mutant = broken(tmp_path, gossip, (old, new))
    try:
        found = single(4, mutant)
    except Exception:  # ranks that wait for each other
        return
    assert found != by_strategy(4)
