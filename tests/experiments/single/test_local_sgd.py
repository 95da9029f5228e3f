"""The single file of local SGD and DiLoCo has the bits and words of the strategies."""

import numpy as np
import pytest

from dml.wire.collectives.ring import ring_allreduce
from dml.wire.reducers.exact import exact
from experiments.single import local_sgd
from tests.experiments.single.proof import broken, ran
from tests.experiments.single.training import regression, trained

UPDATES, BATCH, DIM, RATE = 12, 4, 7, 0.25
OUTER = {"outer_lr": 0.7, "outer_momentum": 0.9}
CASES = [
    ("local_sgd", 1, "local", {"every": 1}),
    ("local_sgd", 4, "local", {"every": 4}),
    ("local_sgd", 5, "local", {"every": 5}),  # the last round has 2 updates
    ("diloco", 1, "diloco", {"outer_every": 1} | OUTER),
    ("diloco", 5, "diloco", {"outer_every": 5} | OUTER),
]


def single(name, every, size, module=local_sgd):
    """Return losses and params of the file on virtual ranks, and the bytes sent."""

    def program(comm):
        x, y = module.examples(comm.rank, UPDATES, BATCH, DIM)
        rounds = module.in_rounds(x, y, every)
        start = np.zeros(DIM, np.float32)
        losses, params = getattr(module, name)(comm, start, rounds, RATE)
        return [*map(float, losses)], params

    return ran(program, size)


def modular(name, size, own):
    """Return the same of the strategy."""
    shards = [local_sgd.examples(rank, UPDATES, BATCH, DIM) for rank in range(size)]
    x, y = (np.concatenate(parts, axis=1) for parts in zip(*shards, strict=True))
    problem = regression(local_sgd.gradient, x.reshape(-1, DIM), y.reshape(-1))
    batches = np.arange(y.size).reshape(UPDATES, -1)
    own = {"reducer": exact(ring_allreduce)} | own
    return trained(name, problem, batches, RATE, size, **own)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("name, every, strategy, own", CASES)
def test_params_and_words_are_those_of_the_strategy(name, every, strategy, own, size):
    for found, expected in zip(
        single(name, every, size), modular(strategy, size, own), strict=True
    ):
        (losses, params), nbytes = found
        (steps, vector), counted = expected
        assert params.dtype == np.float32
        assert (params.tobytes(), nbytes) == (vector.tobytes(), counted)
        assert losses == pytest.approx(steps, rel=1e-6)  # rounded to float32 once more


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(local_sgd.main, size)
    lines = capsys.readouterr().out.splitlines()
    printed = [int(line.split()[-6]) for line in lines if "words sent" in line]
    assert len(printed) == 4 and 4 * sum(printed) == counted[0][1]
    assert "except for rounding: True" in lines[-1]


@pytest.mark.parametrize(
    "old, new",
    [
        ("(delta + mu * u)", "(mu * u)"),
        ("u = mu * u + delta", "u = u + delta"),
        ("params = means[:-1]", "params = local"),
        ("params - local)", "local - params)"),
        ("vector * (1 / size)", "vector * 1"),
    ],
)
def test_a_broken_line_changes_the_params(old, new, tmp_path):
    mutant = broken(tmp_path, local_sgd, (old, new))
    for name, every, strategy, own in CASES[2::2]:
        found, expected = single(name, every, 3, mutant), modular(strategy, 3, own)
        if not np.array_equal(found[0][0][1], expected[0][0][1]):
            return
    raise AssertionError("no difference")
