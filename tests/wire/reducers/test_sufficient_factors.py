"""The exchange of factors over ranks."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.comm import Metered
from dml.wire.costs.factors import sent_factors
from dml.wire.reducers.sufficient_factors import Columns, gather_factors


@pytest.mark.parametrize("rows", [[4], [3, 0], [2, 1, 5, 0, 3]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_factors_of_all_ranks_are_in_rank_order_and_words_are_predicted(rows, dtype):
    columns = {"a": Columns(3, 2), "b": Columns(1, 4)}
    by_path = {"a": rows, "b": [2 * count for count in rows]}
    rng = np.random.default_rng(0)
    parts = [
        {
            path: tuple(
                rng.standard_normal((by_path[path][rank], width)).astype(dtype)
                for width in widths
            )
            for path, widths in columns.items()
        }
        for rank in range(len(rows))
    ]

    def program(comm):
        metered = Metered(comm)
        own, weight = parts[comm.rank], 0.5 + comm.rank
        gathered = gather_factors(metered, own, columns, by_path, weight, dtype)
        return gathered, metered.bytes_sent // np.dtype(dtype).itemsize

    results = sim.run(program, len(rows))
    predicted = [sent_factors(by_path[path], *columns[path]) for path in columns]
    assert [sent for _, sent in results] == np.sum(predicted, axis=0).tolist()
    for path in columns:
        inputs = np.concatenate([part[path][0] for part in parts])
        outputs = np.concatenate(
            [part[path][1] * dtype(0.5 + rank) for rank, part in enumerate(parts)]
        )
        for gathered, _ in results:
            assert gathered[path][0].tobytes() == inputs.tobytes()
            assert gathered[path][1].tobytes() == outputs.tobytes()


def test_factors_with_other_rows_than_agreed_are_refused():
    pair = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)

    def program(comm):
        gather_factors(comm, {"w": pair}, {"w": Columns(3, 4)}, {"w": [3, 3]})

    with pytest.raises(BadInput, match="expected factors of w with shapes"):
        sim.run(program, 2)
    assert gather_factors(None, {}, {}, {}) == {}
