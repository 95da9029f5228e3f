"""The fused kernel against its formulas, number by number, in float64."""

import numpy as np
import pytest

from dml import sim
from dml.models.networks.glove import glove
from dml.strategies.glove.descend import CLIP, descend
from dml.strategies.glove.problem import take
from dml.strategies.glove.tiling import tiled
from dml.update.rows import pack, padded_length, unpack, width
from tests.strategies.glove.lattice import DIM, RATE, WORDS, corpus, order


def made(tables, count, scale=1.0):
    """Tile a corpus; scale the logarithms, so that gradients reach any size."""
    found, _ = sim.run(lambda c: tiled(c, corpus(count), WORDS, order(tables)), 1)[0]
    return found._replace(logs=found.logs * np.float32(scale))


def reference(state, records, rate):
    """Descend as the reference program does: the step by the squares so far."""
    vectors, biases, vector_squares, bias_squares = (x.astype(float) for x in state)
    loss, clipped = 0.0, 0
    for a, b, log, weight in zip(*records, strict=True):
        miss = vectors[a] @ vectors[b] + biases[a] + biases[b] - log
        grad = weight * miss
        loss += 0.5 * grad * miss
        grads = np.stack([grad * vectors[b], grad * vectors[a]])
        clipped += (abs(grads) > CLIP).sum()
        steps = rate * np.clip(grads, -CLIP, CLIP)
        for row, step in zip((a, b), steps, strict=True):
            vectors[row] -= step / np.sqrt(vector_squares[row])
            vector_squares[row] += step**2
            biases[row] -= grad / np.sqrt(bias_squares[row])
            bias_squares[row] += grad**2
    return (vectors, biases, vector_squares, bias_squares), loss, clipped


def run(state, tiles, these, rate=RATE):
    table = pack(state)
    loss = descend(table, tiles, np.asarray(these), rate)
    return table, loss


@pytest.mark.parametrize("tables", (1, 2))
@pytest.mark.parametrize(
    "records, scale, tolerance, clipped",
    [
        (3, 1.0, 1e-5, 0),  # roots that are 5e-6 off, and the rounding of float32
        (1500, 1.0, 3e-5, 0),  # errors add up: each step begins at the end of the last
        (200, 1e5, 1e-4, 100),  # gradients are clipped, biases are not
    ],
)
def test_a_pass_follows_the_reference(records, scale, tolerance, clipped, tables):
    """To a part of the largest move.

    Float32 rounds besides: squares that begin at 1 lose what is below 2^-24.
    """
    tiles, state = made(tables, records, scale), glove(WORDS, DIM, tables).init(3)
    table, loss = run(state, tiles, range(len(tiles.starts) - 1))
    every = take(tiles, range(len(tiles.logs)))
    want, lost, found = reference(state, every, RATE)
    assert loss == pytest.approx(lost, rel=tolerance)
    rows = np.concatenate([every.words, every.contexts])
    rounded = np.bincount(rows, minlength=tables * WORDS) * 2.0**-24  # once a record
    for got, wanted, began in zip(unpack(table, DIM), want, state, strict=True):
        most = abs(wanted - began).max()
        assert most > 0
        off = abs(got - wanted).reshape(len(rounded), -1).max(axis=1)
        assert (off <= tolerance * most + rounded * abs(wanted).max()).all()
    assert found >= clipped and (found > 0) == (clipped > 0)


def test_only_the_tiles_named_are_taken_in_order_and_padding_stays():
    tiles, state = made(2, 1500), glove(WORDS, DIM).init(3)
    full = np.flatnonzero(np.diff(tiles.starts))
    some = full[[5, 2, 9]]
    whole, loss = run(state, tiles, some)
    table, parts = pack(state), []
    for tile in some:
        parts.append(descend(table, tiles, np.array([tile]), RATE))
    assert table.tobytes() == whole.tobytes()
    assert loss == pytest.approx(sum(parts), rel=1e-14)
    before = pack(state)
    touched = set()
    for tile in some:
        records = take(tiles, range(tiles.starts[tile], tiles.starts[tile + 1]))
        touched |= set(records.words) | set(records.contexts)
    assert set(np.flatnonzero((whole != before).any(axis=1))) == touched
    pad = padded_length(DIM)
    kept = np.r_[DIM:pad, pad + DIM : 2 * pad, 2 * pad + 2 : width(DIM)]
    assert whole[:, kept].tobytes() == before[:, kept].tobytes()


@pytest.mark.parametrize("name", ("vectors_TxD", "biases_T", "vector_squares_TxD"))
def test_what_is_not_a_number_is_seen_in_the_loss(name):
    tiles, state = made(2, 1500), glove(WORDS, DIM).init(3)
    getattr(state, name)[int(take(tiles, range(1)).words[0])] = np.nan
    every = np.arange(len(tiles.starts) - 1)
    table, _ = run(state, tiles, every)
    assert np.isnan(descend(table, tiles, every, RATE))
    assert np.isnan(descend(table, tiles, every, RATE))
