from functools import partial

import jax
import jax.numpy as jnp
import large_batch
import numpy as np
import pytest
from lab import flags
from studies.large_batch import rates
from studies.large_batch import training as large_batch_training
from studies.large_batch.report import critical_batch, row, speed_ups
from studies.large_batch.training import (
    LargeBatchPlan,
    Result,
    accuracy,
    noise_scales,
    train,
)

from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.models.networks.mlp import mlp
from dml.strategies.serial import serial
from dml.update.dense import make
from tests.experiments.run_folder import check_folder, read_rows, read_summary
from tests.strategies.small import alone

SMALL = ["--seeds=2", "--factors=1,2", "--large=2", "--epochs=1", "--target=0.6"]
SMALL += ["--warmup_epochs=0.25", "--base_batch=32", "--lr=0.05"]
RATES = np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01], np.float32)
WARMUPS = ["baseline", "unscaled", "none", "constant", "gradual"]


@pytest.fixture(scope="module")
def plan():
    """Two workers of four images, four snapshots of two updates."""
    training, held_out = digits()
    few = jax.tree.map(lambda leaf: leaf[:50], training)
    model = logistic(FEATURES, CLASSES)
    sizes = 4, 2, 4, 2, 650
    return LargeBatchPlan(model, few, held_out, *sizes, accuracy(model, held_out))


def test_workers_in_one_program_learn_what_serial_learns(plan):
    ran = train(plan, 2, 3, RATES, keep=True)
    params = plan.model.init(jax.random.key(3))
    optimizer = make("momentum", lambda count: jnp.asarray(RATES)[count])
    problem = model_problem(
        plan.model, params, examples=plan.count, take=partial(take, plan.training)
    )
    batches = plan.batches(2, 3)
    steps = serial(problem, batches, optimizer, comm=alone(), timer=Timer())
    done = [(step.loss, step.params()) for step in steps]
    # float32: the mean of two means of four, or one of eight
    losses = np.reshape([loss for loss, _ in done], (4, 2)).mean(axis=1)
    np.testing.assert_allclose(ran.losses, losses, rtol=1e-5)
    for mine, (_, its) in zip(ran.snapshots, done[1::2], strict=True):
        for one, other in zip(*map(jax.tree.leaves, (mine, its)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    found = plan.model.metrics(done[-1][1], plan.held_out)["accuracy"]
    assert ran.accuracies[-1] == pytest.approx(float(found), abs=0.01)


def test_all_numbers_of_workers_see_the_same_images_in_the_same_order(plan):
    one, two = (np.stack(list(plan.batches(factor, 5))) for factor in (1, 2))
    np.testing.assert_array_equal(one.ravel(), two.ravel())
    assert one.shape == (16, 4) and two.shape == (8, 8)
    assert sorted(one.ravel()[:50]) == list(range(50))
    assert (one != np.stack(list(plan.batches(1, 6)))).any()


def test_equal_images_have_no_noise_and_different_ones_do(plan):
    snapshots = train(plan, 2, 0, RATES, keep=True).snapshots
    different = noise_scales(plan, snapshots, 0)
    one = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 50), plan.training)
    equal = noise_scales(plan._replace(training=one), snapshots, 0)
    assert len(equal) == plan.snapshots
    assert max(np.abs(equal)) < 1e-3 < 0.1 < different[0]


def test_the_four_warm_ups_take_their_rates(plan):
    options = ["--lr=0.5", "--warmup_epochs=0.5", "--schedule=constant"]
    flags.parse(large_batch.FLAGS, ["large_batch.py", *options])
    chosen = {
        name: rates.learning_rates(plan, 2, name, large_batch.FLAGS)
        for name in WARMUPS[1:]
    }
    warm = 3  # of 8 updates of 8 images, of 50
    assert (chosen["unscaled"] == 0.5).all()
    assert (chosen["none"] == 1).all()
    assert chosen["constant"].tolist() == [0.5] * warm + [1] * 5
    assert chosen["gradual"][0] == 0.5 and (chosen["gradual"][warm:] == 1).all()
    assert (np.diff(chosen["gradual"][: warm + 1]) > 0).all()


def test_a_run_leaves_a_row_for_each_warm_up_a_summary_and_figures(
    tmp_path, monkeypatch, capsys
):
    linear = partial(mlp, widths=())  # compiles soonest
    monkeypatch.setitem(large_batch_training.MODELS, "mlp", linear)
    summary = large_batch.main(["large_batch.py", f"--out={tmp_path}", *SMALL])
    rows = read_rows(tmp_path)
    assert [one["warmup"] for one in rows] == WARMUPS
    assert [one["batch"] for one in rows] == [32] + [64] * 4
    assert [one["rate"] for one in rows] == pytest.approx([0.05, 0.05] + [0.1] * 3)
    for one in rows:
        assert len(set(one["errors"])) == 2  # seeds differ
        assert one["steps"] * one["batch"] == rows[0]["steps"] * 32
    names = ("accuracy.svg", "target.svg", "warmups.svg")
    check_folder(tmp_path, summary, *names)
    assert not any(isinstance(value, dict | list) for value in summary.values())
    assert summary["accuracy"] == 1 - rows[-1]["error"] == summary["x2_accuracy"]
    kept = read_summary(tmp_path)
    assert kept["verdict_gradual"] == "not testable here"  # 2 seeds prove nothing
    assert "23.74 ± 0.09" in capsys.readouterr().out


def told(plan, factor, warmup, at, seconds=1.0):
    """Return the row of seeds that reach 0.9 after so many snapshots; None: never."""
    reached = [np.where(np.arange(1, 5) == one, 0.9, 0.1) for one in at]
    runs = [Result(seconds, np.ones(4), accuracies) for accuracies in reached]
    return row(plan, factor, warmup, 0.1, 0.9, runs)


def test_the_target_counts_only_where_every_seed_reaches_it(plan):
    found = told(plan, 2, "none", (1, 4), seconds=4.0)
    assert found["epochs_to_target"] == 2.5 * 16 / 50
    # two of eight images each a snapshot
    assert found["steps_to_target"] == pytest.approx(5)
    assert found["seconds_to_target"] == pytest.approx(5 * 4 / 8)
    missed = told(plan, 2, "none", (1, None))
    assert missed["reached"] == 1 and missed["steps_to_target"] is None
    assert missed["errors"] == pytest.approx([0.9, 0.9])


def test_workers_with_a_processor_each_take_the_time_of_one_and_the_wire(plan):
    rows = [
        told(plan, 1, "baseline", (2, 2), seconds=16.0),
        told(plan, 2, "gradual", (4, 4)),
        told(plan, 2, "none", (3, 3)),
        told(plan, 2, "unscaled", (None, 1)),
    ]
    one, two = speed_ups(rows, plan.parameters)
    assert (one["warmup"], two["warmup"]) == ("baseline", "none")
    assert one["parallel_seconds_to_target"] == pytest.approx(8)  # steps of a second
    # steps of a second and an all-reduce of 650 words
    assert 6 < two["parallel_seconds_to_target"] < 6.001
    assert two["in_steps"] == pytest.approx(8 / 6)


def test_the_limit_is_the_batch_that_doubles_the_epochs():
    needed = {batch: 3 * (1 + batch / 80) for batch in (8, 16, 64, 128)}
    assert critical_batch(needed | {256: None}) == pytest.approx(80)
    assert critical_batch({8: 3.0, 16: 3.0, 32: 3.0}) is None
    assert critical_batch({8: 3.0, 16: None}) is None
