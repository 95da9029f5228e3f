"""volunteers.py: its tables, and the network that peers train."""

import jax
import numpy as np
import pytest
import volunteers
from studies.volunteers import formulas, learner, regrets
from studies.volunteers.training import scaled, squarest

from dml.data.images.digits import digits
from dml.models.networks.mlp import mlp
from dml.sim.delays import constant, delay_distribution
from dml.types import Batch
from tests.experiments.run_folder import check_folder, read_rows

SMALL = (
    "--simulate=60 --group=4 --steps=2 --rounds=3 --compared=9 --most=2 --groups=40 "
    "--deadlines=100 --lifetime=0.05 --matchmakings=4"
)
KINDS = ("svg", "png")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small run: its folder, its summary, its rows by table."""
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formulas, "PEERS", (1, 3, 4))
        patch.setattr(learner, "CHUNK", 16)
        summary = volunteers.main(["volunteers.py", *SMALL.split(), f"--out={out}"])
    tables = {}
    for row in read_rows(out):
        tables.setdefault(row["table"], []).append(row)
    return out, summary, tables


def test_a_run_has_all_tables_and_figures(made):
    out, summary, tables = made
    pictures = [f"{name}.{kind}" for name in ("training", "formulas") for kind in KINDS]
    check_folder(out, summary, *pictures)
    assert list(tables) == list(volunteers.report.TABLES)
    last = tables["volunteers"][-1]
    assert summary["volunteers_hours"] == last["hours"] > 0
    assert last["lost"] > 0 and last["newcomers"] > 0  # lifetimes of three minutes


def test_the_data_centre_has_as_many_evaluations_and_no_losses(made):
    _, _, tables = made
    last = tables["volunteers"][-1]["evaluations"]
    evaluations = [row["evaluations"] for row in tables["data_centre"]]
    assert evaluations == list(range(2, 2 * len(evaluations) + 2, 2))
    assert last <= evaluations[-1] < last + 2
    for row in tables["policies"]:
        if row["policy"] == "data centre":
            assert row["lost"] == row["late"] == 0 and row["consensus"] < 1e-4
            assert row["evaluations"] == 2 * row["round"]
            hours = row["round"] * 2 * 20 * np.exp(0.3**2 / 2) * row["scale"] / 3600
            assert hours < row["hours"] < hours + 0.01


def test_volunteers_of_one_seed_are_equal(made, monkeypatch):
    monkeypatch.setattr(learner, "CHUNK", 9)  # which does not change the results
    again = volunteers.training()
    rows = list(volunteers.report.volunteer_rows(again))
    for row, first in zip(rows, made[2]["volunteers"], strict=True):
        assert row["hours"] == first["hours"]
        assert row["consensus"] == pytest.approx(first["consensus"], rel=1e-4)


def test_shares_are_the_best_and_broadcasts_are_not_below_their_bound(made):
    for row in made[2]["balance"]:
        assert row["level"] <= 1.0001 * min(row["proportional"], row["equal"])
    for row in made[2]["broadcast"]:
        assert row["bound"] <= row["rarest_first"]
        assert row["cube"] == row["bound"] + (row["peers"] == 3)
        seconds = row["cube"] * (0.05 + 72e6 / 2.5e6 / row["pieces"])
        assert row["swarm_seconds"] == pytest.approx(seconds, rel=1e-6)


def test_deadlines_from_arrivals_lose_a_tenth_and_each_constant_half():
    rows = list(regrets.rows(300, 1.0, 0))
    assert regrets.worst(rows, "regret") <= 0.1
    assert regrets.worst(rows, "one_regret") >= 0.5


def by_hand(vector, unravel, model, batches, lr):
    """Return the vector after updates by SGD, one after another."""
    gradient = jax.jit(
        jax.grad(lambda vector, batch: model.loss(unravel(vector), batch))
    )
    for batch in batches:
        vector = vector - lr * gradient(vector, batch)
    return np.asarray(vector)


def network():
    """Return the start, its inverse of packing, the model and the training images."""
    training, _ = digits()
    model = mlp(training.inputs.shape[1:], 10, widths=learner.WIDTHS)
    start, unravel = jax.flatten_util.ravel_pytree(model.init(jax.random.key(0)))
    return start, unravel, model, training


def test_local_updates_are_those_of_the_model_and_of_these_seats_only(monkeypatch):
    monkeypatch.setattr(learner, "CHUNK", 2)
    start, unravel, model, training = network()
    own = learner.learner(0, steps=3, batch=4, lr=0.3)
    rows = np.tile(own.start, (30, 1))
    seats = np.array([29, 2, 7])
    own.local(rows, seats, 5)
    others = np.setdiff1d(np.arange(30), seats)
    assert (rows[others] == own.start).all()
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), 5), 7)
    draws = [
        jax.random.randint(draw, (4,), 0, len(training.targets))
        for draw in jax.random.split(key, 3)
    ]
    batches = [Batch(training.inputs[i], training.targets[i]) for i in draws]
    expected = by_hand(start, unravel, model, batches, 0.3)
    assert rows[7] == pytest.approx(expected, abs=1e-5)
    assert (rows[2] != rows[7]).any()


def test_an_exact_update_is_that_of_all_drawn_examples():
    start, unravel, model, training = network()
    own = learner.learner(0, steps=1, batch=4, lr=0.3)
    count = len(training.targets)
    generator = np.random.default_rng((0, 9))
    counts = generator.multinomial(50 * 4, np.full(count, 1 / count))
    drawn = np.repeat(np.arange(count), counts)
    batch = Batch(training.inputs[drawn], training.targets[drawn])
    expected = by_hand(start, unravel, model, [batch], 2 * 0.3)
    assert own.update(own.start, 9, 50, 2.0) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "peers, most, sides",
    ((10_000, 10, (10,) * 4), (512, 10, (8, 8, 8)), (5, 10, (5,)), (17, 4, (3, 3, 3))),
)
def test_the_grid_is_the_smallest_cube_with_seats_for_all(peers, most, sides):
    assert squarest(peers, most) == sides


def test_scaled_work_takes_the_factor_of_the_seconds():
    work = delay_distribution("lognormal:2,1")
    assert scaled(work, 10).mean == 10 * work.mean
    draws = [
        some.draws(np.random.default_rng(0), 5) for some in (work, scaled(work, 10))
    ]
    assert draws[1] == pytest.approx(10 * draws[0])
    assert scaled(constant(3.0), 2).mean == 6
