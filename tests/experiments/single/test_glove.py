"""The single file of GloVe has the bits and words of two strategies.

dml's own kernels of GloVe reorder sums and approximate roots, so that they agree up to
rounding. The strategies are compared with the arithmetic of the single file, exactly.
"""

from typing import NamedTuple

import numpy as np
import pytest

from dml.metrics.timer import Timer
from dml.models.networks.glove import Records
from dml.strategies.glove.problem import Gradient
from dml.strategies.operation import operation
from dml.strategies.synchronous import synchronous
from dml.types import Embeddings, Problem, Rows
from dml.update import rows
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.all_gather_parts import gather_lengths
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.reducers.exact import exact
from experiments.single import glove
from tests.experiments.single.proof import broken, ran

D, ALL = glove.D, slice(0, glove.T)
BATCHES = [*glove.minibatches()][:20]
START = np.float32(np.random.default_rng(1).random((glove.T, D + 1)) - 0.5) / D


def single(how, size, module=glove):
    """Return the parameters and losses of every rank, and its bytes."""

    def program(comm):
        def add_up(terms):
            return module.butterfly(comm, *terms)

        train = getattr(module, f"{how}_parallel")
        (own,), losses = train([comm.rank], size, add_up, START, BATCHES)
        return own, losses

    return ran(program, size)


class AdaGrad:
    """The rule of the single file."""

    def __init__(self, values):
        self.values, self.h = values.copy(), np.ones_like(values)

    def update(self, at, grads, share=1.0):
        total = np.zeros_like(self.values)
        total[at] = grads
        glove.adagrad(self.values, self.h, total)


def gradient(table, batch, total=None):
    total = glove.products(table, batch) if total is None else total
    g, loss = glove.gradient(table, batch, total)
    return float(loss) / len(total), Rows(ALL, g)


class Inner(NamedTuple):
    """Inner products of columns, as `operation` needs them."""

    def split(self, rank, size):
        columns = np.array_split(np.arange(D), size)[rank]
        return START[:, [*columns, D]], glove.products, gradient


def task():
    fields = [np.concatenate(field) for field in zip(*BATCHES, strict=True)]

    def take(indices):
        return [field[indices] for field in fields]

    problem = Problem(START, len(fields[0]), gradient, dict, take)
    return problem._replace(products=Inner(), sums=True)


def modular(how, size):
    """Return what `single` returns, of the strategy."""
    indices = np.arange(len(BATCHES) * glove.B).reshape(len(BATCHES), -1)

    def program(comm):
        shards, common = [], {"comm": comm, "timer": Timer()}

        def rule(values):
            shards.append(AdaGrad(values))
            return shards[0]

        if how == "operation":
            own = {"allreduce": butterfly_allreduce, "batch": glove.B}
            steps = operation(task(), indices, rule, **own, **common)
        else:
            own = {"reducer": exact(butterfly_allreduce)}
            own["dense"] = lambda buffer, nbytes: True
            steps = synchronous(task(), indices, rule, **own, **common)
        losses = [step.loss * glove.B for step in steps]
        return shards[0].values, losses

    return ran(program, size)


def more_words(comm):
    """Send what `synchronous` sends besides gradients in a step."""
    gather_lengths(comm, 1)  # of sparse gradients
    tree_allreduce(comm, np.zeros(1))  # the loss


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("how", ["data", "operation"])
def test_bits_and_words_are_those_of_the_strategy(how, size):
    wanted = modular(how, size)
    more = [0] * size
    if how == "data":  # the single file adds the loss as one more float32
        more = [sent - 4 * (size.bit_length() - 1) for _, sent in ran(more_words, size)]
    found = single(how, size)
    for rank, ((own, losses), sent) in enumerate(found):
        (values, wanted_losses), wanted_sent = wanted[rank]
        assert own.tobytes() == values.tobytes()
        assert losses == pytest.approx(wanted_losses, rel=1e-5)
        assert sent == wanted_sent - len(BATCHES) * more[rank]


@pytest.mark.parametrize("how", ["data", "operation"])
def test_the_vectors_are_those_of_the_kernels_of_dml(how):
    """After 20 steps of AdaGrad by approximate roots: measured 4e-6 at most."""
    squares = np.ones_like(START)
    state = Embeddings(START[:, :D], START[:, D], squares[:, :D], squares[:, D])
    shard = rows.AdaGrad(rows.pack(state), glove.ETA)
    gradient_of = Gradient(glove.T, D, glove.B)
    for i, j, logs, weights in BATCHES:
        records = Records(i.astype(np.int32), j.astype(np.int32), logs, weights)
        shard.update(*gradient_of(shard.values, records)[1])
    wanted = rows.unpack(shard.values, D)
    parts = [own for (own, _), _ in single(how, 2)]
    vectors = parts[0][:, :-1]
    if how == "operation":
        vectors = np.hstack([part[:, :-1] for part in parts])
    np.testing.assert_allclose(vectors, wanted.vectors_TxD, atol=1e-4)
    np.testing.assert_allclose(parts[0][:, -1], wanted.biases_T, atol=1e-4)


def test_the_printed_words_and_bits_are_the_counted_ones(capsys):
    (_, sent), *_ = ran(glove.main, 4)
    words, printed = 0, capsys.readouterr().out
    for line in printed.splitlines():
        words += int(line.split()[1]) if "words per rank" in line else 0
    assert words * glove.STEPS * 4 == sent
    assert printed.count("equal bits to one process: True") == 2
    with pytest.raises(SystemExit, match="expected 1, 2, 4, 8 or 16 ranks, got 3"):
        ran(glove.main, 3)


@pytest.mark.parametrize(
    "how, old, new",
    [
        ("data", "h += step * step", "h += np.abs(step)"),
        ("data", "np.add.at(g[:, :-1], j, slopes * v[i, :-1])", "pass"),
        ("operation", "x += received", "x -= received"),
        ("operation", "total + v[i, -1]", "total + v[j, -1]"),
    ],
)
def test_a_broken_line_changes_the_vectors(how, old, new, tmp_path):
    mutant = single(how, 2, broken(tmp_path, glove, (old, new)))
    ((found, _), _), _ = mutant
    ((wanted, _), _), _ = modular(how, 2)
    assert found.tobytes() != wanted.tobytes()
