"""The single file of data parallelism has the bits and words of `synchronous`."""

import jax
import numpy as np
import optax
import pytest

from dml.metrics.timer import Timer
from dml.strategies.synchronous import synchronous
from dml.types import Problem
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.reducers.exact import exact
from experiments.single import data_parallel
from tests.experiments.single.proof import broken, ran

STEPS, BATCH = 6, data_parallel.BATCH
DATA = [
    np.concatenate(part)
    for part in zip(*map(data_parallel.minibatch, range(STEPS)), strict=True)
]


def single(size, module=data_parallel):
    """Return the parameters and losses of every rank, and its bytes."""

    def program(comm):
        layers, losses = module.start(), []
        for step in range(STEPS):
            shard = [np.split(part, size)[comm.rank] for part in module.minibatch(step)]
            own = module.gradients(layers, *shard, np.float32(1 / size))
            total = module.sum_gradients(comm, own, len(layers), [])
            module.update(layers, total)
            losses.append(float(total[-1]))
        return [leaf.tobytes() for leaf in sum(layers, [])], losses

    return ran(program, size)


def modular(size):
    """Return what `single` returns, of the strategy, with the same gradients."""

    def gradient(params, batch):
        layers = jax.tree.map(np.asarray, params)
        batch = map(np.asarray, batch)
        vectors = data_parallel.gradients(layers, *batch, np.float32(1))
        *grads, (loss,) = vectors
        pairs = zip(layers, reversed(grads), strict=True)
        return loss, [
            [vector[: w.size].reshape(w.shape), vector[w.size :]]
            for (w, _), vector in pairs
        ]

    def take(indices):
        return [part[indices] for part in DATA]

    task = Problem(data_parallel.start(), STEPS * BATCH, gradient, dict, take)
    minibatches = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)

    def program(comm):
        how = {"comm": comm, "timer": Timer(), "reducer": exact(butterfly_allreduce)}
        update = optax.sgd(float(data_parallel.ETA))
        steps = [*synchronous(task, minibatches, update, **how)]
        leaves = jax.tree.leaves(steps[-1].params())
        return [np.asarray(x).tobytes() for x in leaves], [step.loss for step in steps]

    return ran(program, size)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_bits_losses_and_words_are_those_of_the_strategy(size):
    assert single(size) == modular(size)


def test_rounds_overlap_with_the_backward_pass(capsys):
    (_, sent), *_ = ran(data_parallel.main, 4)
    order, words, _, equal = capsys.readouterr().out.splitlines()
    assert order.endswith("g3 g2 [0] g1 [0] [1] g0 [1] loss [2] wait")
    assert int(words.split()[0]) * 4 * data_parallel.STEPS == sent
    assert equal == "equal bits to one process: True"
    with pytest.raises(SystemExit, match="got 3"):
        ran(data_parallel.main, 3)


@pytest.mark.parametrize("bucket", [1, 10**6])
def test_bits_do_not_depend_on_the_buckets(bucket, monkeypatch):
    wanted = single(4)
    monkeypatch.setattr(data_parallel, "BUCKET", bucket)
    assert single(4) == wanted


@pytest.mark.parametrize(
    "old, new",
    [
        ("x += received", "x = x + received"),
        ("comm.Isend(x,", "comm.Isend(np.zeros_like(x),"),
        ("(1 - x * x)", "(1 - x)"),
        ("        for _ in rounds:\n", "        for _ in ():\n"),
    ],
)
def test_a_broken_line_changes_the_parameters(old, new, tmp_path):
    assert single(4, broken(tmp_path, data_parallel, (old, new))) != modular(4)
