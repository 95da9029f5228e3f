"""Tasks: every minibatch of every shard once, in the order of progress."""

import numpy as np
import pytest

from dml.data.lookahead import Lookahead
from dml.wire.plans.tasks import ShardTask, Tasks


@pytest.mark.parametrize("seed", range(4))
def test_all_minibatches_of_all_shards_are_assigned_once(seed):
    generator = np.random.default_rng(seed)
    batches = [np.array([number]) for number in range(23)]
    windows = [Lookahead(batches) for _ in range(5)]  # of each worker
    windows[0].stop = 17
    tasks, counts, before = Tasks(5, 4, windows[0].available), np.zeros((5, 23), int), 0
    while True:
        worker = int(generator.integers(5))
        shard, first, length = tasks.assign(worker, int(generator.integers(1, 5)))
        if not length:
            break
        taken = windows[worker].take(first, length)
        assert [batch[0] for batch in taken] == list(range(first, first + length))
        assert first >= before  # so that windows move forward
        counts[shard, first : first + length] += 1
        before = first
    assert (counts[:, 4:17] == 1).all() and counts.sum() == 5 * 13


def test_a_worker_has_its_own_shard_while_no_other_has_less_progress():
    tasks = Tasks(3, 0, Lookahead([np.zeros(1)] * 9).available)
    assert [tasks.assign(worker, 4).shard for worker in (0, 1, 2)] == [0, 1, 2]
    assert tasks.assign(1, 4) == ShardTask(1, 4, 4)
    assert tasks.assign(1, 4) == ShardTask(0, 4, 4)
    assert tasks.assign(2, 4) == ShardTask(2, 4, 4)
    assert tasks.assign(0, 4) == ShardTask(0, 8, 1)  # the last minibatch
