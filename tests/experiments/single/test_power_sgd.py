"""The single file of PowerSGD and QSGD has bits and words of the reducers of dml."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from dml.wire.collectives.ring import ring_allreduce
from dml.wire.reducers import power_sgd as modular
from dml.wire.reducers.codecs import decode, levels
from dml.wire.reducers.codecs.hashing import write_random
from dml.wire.reducers.lossy import coded, compressed
from dml.wire.reducers.transports import gather
from experiments.single import power_sgd
from tests.experiments.single.proof import broken, ran
from tests.experiments.single.training import regression, trained

STEPS, BATCH, A, B, RATE = 8, 4, 12, 10, 2.0
START = np.zeros((A, B), np.float32)


SEEDS = {}  # rank, step -> seed of a code in the last training by a strategy


def recorded_gather(codec, comm, term, lost, seed):
    SEEDS[comm.rank].append(seed)
    gather(codec, comm, term, lost, seed)


def draws(seed, size):
    """Return the random numbers in [0, 1) of a code of dml."""
    bits = np.empty(size, np.uint32)
    write_random(seed, 0, bits)
    return (bits >> 8).astype(np.float32) * np.float32(2.0**-24)


def draws_of_dml(rank):
    """Return a generator of the random numbers of a rank in one step after another."""
    seeds = iter(SEEDS[rank])
    return SimpleNamespace(random=lambda size, dtype: draws(next(seeds), size))


def without_feedback(module, comm, m, q):
    return module.power_sgd(comm, m, 0, q)[::2]


def single(name, number, size, module=power_sgd):
    """Return the params of the file on virtual ranks, and the bytes sent."""

    def program(comm):
        q = np.random.default_rng(0).standard_normal((B, number)).astype(np.float32)
        compress, *state = {
            "power_sgd": (module.power_sgd, np.zeros_like(START), q),
            "without_feedback": (partial(without_feedback, module), q),
            "qsgd": (module.qsgd, number, draws_of_dml(comm.rank)),
        }[name]
        examples = module.examples(comm.rank, STEPS, BATCH, A, B)
        return module.train(comm, START, examples, RATE, compress, state)[1]

    return ran(program, size)


def by_strategy(name, number, size):
    """Return the same by synchronous training, without the all-reduces of the loss."""
    SEEDS.update((rank, []) for rank in range(size))
    lossy = modular.power_sgd(number, ring_allreduce)
    if name == "qsgd":
        lossy = coded(levels.qsgd(number), recorded_gather)
    reducer = compressed(lossy, ring_allreduce, feedback=name == "power_sgd")
    shards = [power_sgd.examples(rank, STEPS, BATCH, A, B) for rank in range(size)]
    x, y = (np.concatenate(parts, axis=1) for parts in zip(*shards, strict=True))
    x, y = x.reshape(-1, A), y.reshape(-1, B)
    problem = regression(power_sgd.gradient, x, y, START)
    batches = np.arange(len(x)).reshape(STEPS, -1)
    results = trained("synchronous", problem, batches, RATE, size, reducer=reducer)
    scalars = ran(lambda comm: ring_allreduce(comm, np.zeros(1, np.float32)), size)
    return [
        (params, nbytes - STEPS * loss_bytes)
        for ((_, params), nbytes), (_, loss_bytes) in zip(results, scalars, strict=True)
    ]


CASES = [("power_sgd", 1), ("power_sgd", 2), ("without_feedback", 1)]
CODES = [("qsgd", 1), ("qsgd", 4), ("qsgd", 100)]


def differ(name, number, size, module=power_sgd):
    """Return whether bits of params, or bytes sent, differ on some rank."""
    expected = by_strategy(name, number, size)
    return any(
        (params.tobytes(), nbytes) != (vector.tobytes(), counted)
        for (params, nbytes), (vector, counted) in zip(
            single(name, number, size, module), expected, strict=True
        )
    )


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("name, number", CASES + CODES)
def test_params_and_words_are_those_of_the_reducer(name, number, size):
    assert not differ(name, number, size)


@pytest.mark.parametrize("factor", (1, 0))  # a gradient of zeros has the norm 0
def test_codes_have_the_bytes_of_dml(factor):
    values = np.random.default_rng(1).standard_normal(99).astype(np.float32) * factor
    for number in (1, 2, 4, 7, 127):
        codec = levels.qsgd(number)
        code = power_sgd.encode(values, number, draws(5, 99))
        expected = np.empty(codec.nbytes(99), np.uint8)
        codec.encode(values, expected, 5)
        assert code.tobytes() == expected.tobytes()
        found = power_sgd.decode(code, number, 99)
        assert found.tobytes() == decode(codec, expected, 99).tobytes()


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(power_sgd.main, size)
    lines = capsys.readouterr().out.splitlines()
    words = [int(line.split(": ")[1].split()[0]) for line in lines[:-1]]
    assert len(words) == 5 and 4 * 100 * sum(words) == counted[0][1]
    assert lines[-1].endswith("except for rounding: True")


@pytest.mark.parametrize(
    "old, new",
    [
        ("m = m + error", "m = m"),
        ("error = m - p @ q.T\n    q = add_up(comm, q)", "q = add_up(comm, q)"),
        ("np.linalg.qr(add_up(comm, m @ q))[0]", "add_up(comm, m @ q)"),
        ("np.linalg.qr(q)[0]  #", "q  #"),
        ("+ draws)", "+ 0.5)"),
        ("np.sum(x.astype(np.float64) ** 2)", "np.max(np.abs(x))"),
    ],
)
def test_a_broken_line_changes_the_params(old, new, tmp_path):
    mutant = broken(tmp_path, power_sgd, (old, new))
    assert differ("power_sgd", 1, 3, mutant) or differ("qsgd", 4, 3, mutant)
