"""Shards of rows elect the columns whose sums are added over ranks."""

import numpy as np
import pytest

from dml import sim
from dml.boosting import Data, share, train
from dml.boosting.vote import elected
from dml.types import BadInput
from dml.wire.comm import Metered
from tests.boosting.tables import CATEGORY, settings, table

SHARDS = 8


def trained(size, given, x, y):
    """Return the hashes of the model on all ranks, and the words they sent."""

    def program(comm):
        comm = Metered(comm)
        rows, _ = share(comm.rank, size, "vote", *x.shape, given.shards)
        made = train(comm, Data(x[rows], y[rows]), given)
        return made.model, comm.bytes_sent / 8

    results = sim.run(program, size)
    return [model for model, _ in results], sum(words for _, words in results)


CASES = {
    "one row a leaf": ("logistic", {"min_rows": 1}),
    "categories": ("softmax", {"categories": (CATEGORY,), "min_rows": 16}),
    "constraints": ("squared", {"monotone": (1, 0, 0, 0, -1, 0, 0)}),
    "samples": ("logistic", {"row_share": 0.6, "column_share": 0.7}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_model_of_a_vote_has_one_hash_for_every_number_of_ranks(case):
    loss, changes = CASES[case]
    x, y = table(loss)
    given = settings(loss, split="vote", shards=SHARDS, top=2, **changes)
    want = train(None, Data(x, y), given).model.sha256
    for size in (2, 3, 8, 9):
        models, _ = trained(size, given, x, y)
        assert {model.sha256 for model in models} == {want}, size
    assert want != train(None, Data(x, y), settings(loss, **changes)).model.sha256


@pytest.mark.parametrize("loss", ("squared", "logistic"))
def test_one_shard_elects_the_columns_of_the_best_splits(loss):
    x, y = table(loss)
    want = train(None, Data(x, y), settings(loss)).model.sha256
    given = settings(loss, split="vote", shards=1, top=1)
    assert train(None, Data(x, y), given).model.sha256 == want
    models, _ = trained(2, given, x, y)  # one rank has no row
    assert {model.sha256 for model in models} == {want}


def test_the_words_of_a_vote_are_those_of_the_formula():
    x = np.random.default_rng(0).standard_normal((640, 40)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(float)
    for size in (2, 4):
        sent = {}
        for rounds in (1, 2):
            given = settings(
                "logistic", split="vote", shards=SHARDS, top=3, rounds=rounds, leaves=2
            )
            models, sent[rounds] = trained(size, given, x, y)
        v, p, top = SHARDS // size, size, given.top
        chosen = p * (p - 1) * 2 * v * top + (p - 1) * top * given.bins * 3
        # the root: sums, a vote, the best split, the number on the left, two leaves
        formula = chosen + p * (p - 1) * 7 + 2 * (p - 1) * (3 + 1 + 4)
        assert sent[2] - sent[1] == formula


def test_columns_are_elected_by_their_largest_vote_then_by_number():
    votes = np.array([3.0, 5.0, 5.0, 4.0, 9.0]).view(np.int64)
    proposals = np.column_stack([[6, 4, 1, 6, 5], votes])
    proposals = np.concatenate([proposals, [[-1, -1]]])
    assert elected(proposals, 8, 2).tolist() == [1, 5]
    assert elected(proposals, 8, 3).tolist() == [1, 4, 5]
    assert elected(proposals, 8, 9).tolist() == [1, 4, 5, 6]


def test_parts_of_shards_are_refused():
    x, y = table()

    def program(comm):
        rows = slice(0, 101) if comm.rank == 0 else slice(101, None)
        return train(comm, Data(x[rows], y[rows]), settings(split="vote"))

    with pytest.raises(
        BadInput, match="expected whole shards of 400 rows in 16 shards"
    ):
        sim.run(program, 2)
