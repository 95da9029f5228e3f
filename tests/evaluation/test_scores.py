import numpy as np
import pytest

from dml.evaluation.residuals import MIN_ENTRIES, residuals, rmse_by_count
from dml.evaluation.scores import digest, evaluate
from dml.types import Batch, Model

SHAPES = []
PARAMS = {"scale": np.float32([2.0])}


def metrics(params, batch):
    places, values = batch.targets  # as BERT's are: a pair
    SHAPES.append(batch.inputs.shape)
    mean = (params["scale"] * batch.inputs).mean()
    return {"mean": mean, "apart": (places * values).mean()}


MODEL = Model(init=lambda key: PARAMS, loss=lambda *_: 0.0, metrics=metrics)
RNG = np.random.default_rng(0)


def held_out(count):
    inputs, values = RNG.normal(size=(2, count, 3)).astype(np.float32)
    return Batch(inputs, (np.arange(count, dtype=np.int32)[:, None], values))


@pytest.mark.parametrize("count, block, shapes", [(10, 4, 2), (8, 4, 1), (3, 4, 1)])
def test_blocks_weigh_as_many_examples_as_they_have(count, block, shapes):
    batch = held_out(count)
    SHAPES.clear()
    found = evaluate(MODEL, batch, PARAMS, block=block)
    assert len(SHAPES) <= shapes  # compilations
    assert found["mean"] == pytest.approx(2 * batch.inputs.mean(), rel=1e-5)
    want = (batch.targets[0] * batch.targets[1]).mean()
    assert found["apart"] == pytest.approx(want, rel=1e-5)
    assert found["sha256"] == digest(PARAMS)


def test_params_that_another_rank_collects_give_nothing_here():
    assert evaluate(MODEL, held_out(2), lambda: None) == {}
    batch = held_out(2)
    assert evaluate(MODEL, batch, lambda: PARAMS) == evaluate(MODEL, batch, PARAMS)


def test_misses_are_grouped_by_powers_of_two_of_what_was_seen(tmp_path):
    seen = np.repeat([1, 2, 3, 0, 64], [10, MIN_ENTRIES, MIN_ENTRIES, 10, 3])
    misses = np.where(seen < 2, 3.0, np.where(seen == 2, 1.0, 7.0))
    xs, ys = rmse_by_count(misses, seen)
    assert xs.tolist() == [0.5, 2.5]  # 64: too few
    assert ys.tolist() == [3, 5]
    residuals(tmp_path / "few", np.array([0.5]), np.array([4]))
    assert (tmp_path / "few.svg").stat().st_size > 0
