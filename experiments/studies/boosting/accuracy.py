"""Accuracy with few bins, and with few columns whose sums are sent, by voting."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dml.boosting import Data, Model, Settings, share, train
from dml.data.tables import generated
from dml.data.tables.named import HELD_OUT_DIVISOR
from dml.runs.writers import Row
from dml.wire.costs.allreduce import Rates
from studies.boosting.report import area
from studies.boosting.splits import trained

BINS = (5, 10, 20, 50, 100, 250)  # the last one has a bin for each value
RANKS, TOP, SHARDS = 4, 20, 16  # of a vote
FREE = Rates(0.0, 0.0, 0.0)  # only words are counted


def held_out_area(model: Model, x: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the curve."""
    return area(model.predictions(x)[:, 1], y)


def bins_rows(rows: int, rounds: int, seed: int) -> Iterator[Row]:
    """Yield the area by number of bins, of columns with as many values as BINS[-1]."""
    x, y = generated.higgs(rows, seed)
    places = np.argsort(np.argsort(x, axis=0), axis=0)
    levels = (places * BINS[-1] // rows).astype(np.float32)
    held_out = rows // HELD_OUT_DIVISOR
    for bins in BINS:
        given = Settings(loss="logistic", rounds=rounds, bins=bins)
        data = Data(levels[held_out:], y[held_out:])
        model = train(None, data, given).model
        yield {
            "bins": bins,
            "exact": bins == BINS[-1],
            "auc": held_out_area(model, levels[:held_out], y[:held_out]),
        }


def votes_rows(rows: int, columns: int, rounds: int, seed: int) -> Iterator[Row]:
    """Yield area and words of a tree by split, with and without twice the columns."""
    for width in (columns, 2 * columns):
        x, y = generated.zipf(rows, width, 50, seed)
        held_out = rows // HELD_OUT_DIVISOR
        for split in ("rows", "vote"):
            given = Settings(loss="logistic", rounds=rounds, split=split)
            given = replace(given, shards=SHARDS, top=TOP)
            made = trained(RANKS, FREE, given, partial(block, x, y, held_out, given))
            yield {
                "columns": width,
                "split": split,
                "words": made.words / (rounds - 1),
                "auc": held_out_area(made.model, x[:held_out], y[:held_out]),
            }


def block(x: Any, y: np.ndarray, held_out: int, given: Settings, rank: int) -> Data:
    """Return the block of a rank, of the rows that are not held out."""
    x, y = x[held_out:], y[held_out:]
    place = share(rank, RANKS, given.split, *x.shape, given.shards)[0]
    return Data(x[place], y[place])
