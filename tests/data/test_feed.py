import gc
import threading
import time
import traceback
from functools import partial

import numpy as np
import pytest

from dml.data.feed import feed
from dml.data.minibatches import draws, take
from dml.data.shards import shard
from dml.types import BadInput, Batch
from tests.commands import PYTHON, output

DATA = Batch(np.arange(20).reshape(10, 2), np.arange(10))
examples = partial(take, DATA)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "feed"]


def halves(index):
    return [shard(index, part, 2) for part in range(2)]


def whole(index):
    return [index]


@pytest.mark.parametrize("ahead", [1, 2, 7])
def test_a_thread_ahead_changes_nothing_and_ends(ahead):
    alone, fed = (
        list(feed(examples, draws(10, 3, 0, 34), halves, prefetch=n))
        for n in (0, ahead)
    )
    assert [count for count, _ in fed] == [3] * 11 + [1]
    assert fed[-1][1][1] is None and alone[-1][1][1] is None  # one example, two parts
    for (_, one), (_, other) in zip(alone[:-1], fed[:-1], strict=True):
        for left, right in zip(one, other, strict=True):
            assert left.examples == right.examples == len(left.batch.targets)
            assert np.array_equal(left.batch.inputs, right.batch.inputs)
            assert np.array_equal(left.batch.targets, right.batch.targets)
    seen = [part.batch.targets for _, parts in fed for part in parts if part]
    assert np.array_equal(
        np.concatenate(seen), np.concatenate(list(draws(10, 3, 0, 34))) % 10
    )
    assert not threads()


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_the_thread_is_so_many_minibatches_ahead_and_no_more(ahead):
    made = threading.Semaphore(0)
    fed = feed(
        examples, draws(10, 2, 0, 80), whole, lambda _: made.release(), prefetch=ahead
    )
    next(fed)
    assert len(threads()) == (ahead > 0)
    for taken in range(1, 4):
        for _ in range(1 + ahead if taken == 1 else 1):
            assert made.acquire()
        assert not made.acquire(timeout=0.02)
        next(fed)
    fed.close()


def slowly(batch):
    time.sleep(0.01)
    return batch


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_closing_it_or_dropping_it_ends_the_thread(taken):
    for end in (lambda fed: fed.close(), lambda fed: None):
        fed = feed(examples, draws(10, 2, 0, 80), whole, slowly)
        for _ in range(taken):
            next(fed)
        assert len(threads()) == (taken > 0)
        end(fed)
        del fed
        gc.collect()
        assert not threads()


def spoiled(index):
    if len(index) < 3:
        raise BadInput("expected a better part")
    return [index]


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_error_comes_in_its_turn_with_the_place_that_raised_it(ahead):
    fed = feed(examples, draws(10, 3, 0, 8), spoiled, prefetch=ahead)
    assert [next(fed)[0], next(fed)[0]] == [3, 3]
    with pytest.raises(BadInput, match="a better part") as caught:
        next(fed)
    assert "spoiled" in [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert not threads()
    with pytest.raises(StopIteration):
        next(fed)


def test_a_process_ends_though_its_feed_was_never_closed():
    program = (
        "import sys, time, numpy as np\n"
        "from dml.data.feed import feed\n"
        "take = lambda draws: time.sleep(0.01)\n"
        "sys.kept = feed(take, [np.arange(1)] * 10**6, lambda index: [index])\n"
        "next(sys.kept)"
    )
    assert output(PYTHON, "-c", program) == ""
    with pytest.raises(BadInput, match="0 minibatches or more, got prefetch=-1"):
        feed(examples, [], whole, prefetch=-1)
