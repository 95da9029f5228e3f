"""The single file of all-reduces has bits and words of the collectives of dml."""

from functools import partial

import numpy as np
import pytest

from dml.sim import Uniform
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.star import star_allreduce
from dml.wire.collectives.tree import tree_allreduce
from experiments.single import allreduce
from tests.experiments.single.proof import broken, ran

MODULAR = {
    "star": star_allreduce,
    "tree": tree_allreduce,
    "butterfly": butterfly_allreduce,
    "ring": ring_allreduce,
}
SIZES, LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8), (0, 1, 5, 24)
HOST_OF_ONE = Uniform(host=1)  # else dml reduces groups in shared memory


def summed(algorithm, size, length):
    """Return the sum on every rank and the bytes that the rank sends."""

    def program(comm):
        draws = np.random.default_rng(comm.rank)
        x = draws.standard_normal(length) * 10.0 ** draws.integers(0, 9, length)
        algorithm(comm, x)
        return x.tobytes()

    return ran(program, size, HOST_OF_ONE)


@pytest.mark.parametrize("name", MODULAR)
@pytest.mark.parametrize("size", SIZES)
def test_sums_and_words_are_those_of_the_collective(name, size):
    for length in LENGTHS:
        single = summed(getattr(allreduce, name), size, length)
        assert single == summed(MODULAR[name], size, length)


@pytest.mark.parametrize(
    "size, group", [(1, 1), (2, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 4), (5, 5)]
)
def test_groups_have_the_sums_and_words_of_the_hierarchical_collective(size, group):
    for length in LENGTHS:
        single = summed(partial(allreduce.hierarchical, group=group), size, length)
        modular = partial(hierarchical_allreduce, group=group)
        assert single == summed(modular, size, length)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_the_printed_words_are_the_counted_ones(size, capsys):
    ran(allreduce.main, size)
    table = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for name, *_ in table] == [*MODULAR, "hierarchical"]
    for name, words, equal, _ in table:
        counted = summed(getattr(allreduce, name), size, 4 * size)
        assert int(words) == counted[0][1] // 8
        assert equal == "True" or name != "star"


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("star", "comm.Recv(received, worker)", "comm.Recv(received, size - worker)"),
        ("tree", "rank + step)\n            x +=", "rank + step)\n            x -="),
        ("butterfly", "place ^ (1 << k)", "place ^ (power >> k + 1)"),
        ("ring", "sums += received", "sums += 2 * received"),
        ("hierarchical", "chunks[-1:] + chunks[:-1]", "chunks[1:] + chunks[:1]"),
    ],
)
def test_a_broken_line_changes_the_sums(name, old, new, tmp_path):
    mutant = getattr(broken(tmp_path, allreduce, (old, new)), name)
    modular = MODULAR.get(name, partial(hierarchical_allreduce, group=3))
    assert summed(mutant, 6, 24) != summed(modular, 6, 24)
