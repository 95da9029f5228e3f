from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.images.digits import digits
from dml.data.minibatches import minibatches, take
from dml.evaluation.scores import digest
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from tests.strategies.small import alone

MODEL = logistic(64, 10, l2=1e-3)
WORDS = 65 * 10 + 1  # params and loss


def train(strategy, name, batch, count, **world):
    training, _ = digits()
    params, examples = MODEL.init(jax.random.key(0)), len(training.targets)
    problem = model_problem(
        MODEL, params, examples=examples, take=partial(take, training)
    )
    batches = minibatches(examples, batch, seed=1)
    how = {"comm": alone(), "timer": Timer(), **world}
    steps = islice(strategy(problem, batches, OPTIMIZERS[name], **how), count)
    return [step._replace(params=step.params()) for step in steps]


OPTIMIZERS = {"momentum": make("momentum", 0.1), "adam": make("adam", 0.01)}


def on_ranks(size, name="momentum", batch=64, count=12, allreduce="star"):
    def program(comm):
        world = {"comm": Metered(comm), "reducer": exact(ALLREDUCE[allreduce])}
        return train(synchronous, name, batch, count, **world)

    return sim.run(program, size)


def bits(steps):
    return [(np.float64(step.loss).tobytes(), digest(step.params)) for step in steps]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_rank_has_the_bits_of_serial(name):
    # 24 steps: past the ragged last minibatch of the first epoch
    (alone,) = on_ranks(1, name, count=24)
    assert bits(alone) == bits(train(serial, name, 64, 24))


# 7 examples: uneven on 2 and 3 ranks, and empty shards on 9
@pytest.mark.parametrize("size, batch", [(2, 64), (3, 64), (2, 7), (3, 7), (9, 7)])
def test_replicas_are_byte_equal_and_close_to_serial(size, batch):
    ranks = on_ranks(size, batch=batch)
    assert all(bits(rank) == bits(ranks[0]) for rank in ranks)
    for one, many in zip(train(serial, "momentum", batch, 12), ranks[0], strict=True):
        # the same terms added in another order: float32 has 2**-24 = 6e-8 relative,
        # and 12 steps of momentum carry the differences on
        assert many.loss == pytest.approx(one.loss, rel=1e-5)
        for name in one.params:
            np.testing.assert_allclose(
                many.params[name], one.params[name], rtol=0, atol=1e-5
            )


def test_the_loss_curve_depends_on_the_order_of_the_sum_alone():
    # star and shared both add up in rank order
    star, shared = (on_ranks(4, allreduce=name)[0] for name in ("star", "shared"))
    assert bits(star) == bits(shared)
    assert bits(star) != bits(on_ranks(4, allreduce="butterfly")[0])


def test_words_are_those_of_the_allreduce_in_each_step():
    for step in on_ranks(3, count=2)[0]:  # rank 0 is the star's master
        assert step.words_sent == 2 * WORDS
        assert step.examples == 64
        assert set(step.seconds) == {"input", "gradient", "wire", "update"}
