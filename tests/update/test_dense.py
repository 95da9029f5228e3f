import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, apply, make
from dml.update.schedules import SCHEDULES, WARMUPS, linear_scaling, schedule
from tests.checks import said
from tests.update.sliced_main import OPTIONS, draw, gradients, train


def start():
    return {"w": jnp.arange(2.0, 8.0).reshape(2, 3), "b": jnp.ones(2)}


def test_every_optimizer_goes_down_a_quadratic_on_a_way_of_its_own():
    def quadratic(params):
        return jnp.sum((params["w"] - 1) ** 2) + jnp.sum((params["b"] + 2) ** 2)

    ends, loss_and_grads = set(), jax.jit(jax.value_and_grad(quadratic))
    for name in OPTIMIZERS:
        params, optimizer, losses = start(), make(name, 0.02), []
        state = optimizer.init(params)
        for _ in range(60):
            loss, grads = loss_and_grads(params)
            losses.append(float(loss))
            params, state = apply(optimizer, grads, state, params)
        # means of a third: momentum swings through the minimum
        first, second, third = np.mean(np.reshape(losses, (3, 20)), axis=1)
        assert first > second > third, name
        ends.add(np.asarray(params["w"]).tobytes())
    assert len(ends) == len(OPTIMIZERS)


def test_params_outlive_the_update_and_state_does_not():
    optimizer, params = make("adam", 0.1), start()
    state = optimizer.init(params)
    apply(optimizer, start(), state, params)
    assert params["w"].tolist() == start()["w"].tolist()
    assert jax.tree.leaves(state)[1].is_deleted()


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("sdg", {}, "sgd, momentum, .* got 'sdg'; pass --opt"),
        ("lamb", {"axis": "data"}, "shapes of full params .* pass like"),
    ],
)
def test_bad_arguments_are_bad_input(name, options, message):
    with pytest.raises(BadInput, match=message):
        make(name, 0.1, **options)


OWN = {
    "adamw": optax.adamw(0.1, weight_decay=0.1),
    "lamb": optax.lamb(0.1, weight_decay=0.1),
    "lars": optax.lars(0.1, weight_decay=0.1),
    "momentum": optax.chain(
        optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9)
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_with_clipping_and_decay_matrices_move_as_optax_moves_them(name):
    params, *grads = ({"deep": t["deep"], "w": t["w"]} for t in (draw(0), *gradients()))
    own = optax.chain(optax.clip_by_global_norm(OPTIONS["clip"]), OWN[name])
    rules = make(name, 0.1, **OPTIONS), own
    ended, expected = jax.jit(lambda *lists: [train(one, *lists) for one in rules])(
        params, grads
    )
    for leaf, own in zip(*map(jax.tree.leaves, (ended, expected)), strict=True):
        # XLA fuses the two otherwise: some numbers differ by their last bit
        np.testing.assert_allclose(leaf, own, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["adamw", "lion", "adam"])
def test_without_a_decay_it_is_optaxs_own_and_with_0_there_is_none(name):
    params, grads = {"w": draw(0)["w"]}, [{"w": np.zeros((4, 4), np.float32)}]
    rules = make(name, 0.1), getattr(optax, name)(0.1), make(name, 0.1, decay=0.0)
    mine, own, none = (np.asarray(train(rule, params, grads)["w"]) for rule in rules)
    assert np.array_equal(mine, own)
    assert np.array_equal(none, params["w"])
    assert np.array_equal(mine, none) == (name == "adam")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_decay_and_no_trust_ratio_reach_vectors(name):
    params, grads = {"b": draw(0)["b"]}, [{"b": draw(1)["b"]}]
    one = train(make(name, 0.1, decay=0.5), params, grads)
    other = train(make(name, 0.1, decay=0.0), params, grads)
    assert np.array_equal(one["b"], other["b"])
    same = {"lars": make("momentum", 0.1), "lamb": optax.adam(0.1, eps=1e-6)}.get(name)
    if same:
        expected = np.asarray(train(same, params, grads)["b"])
        assert np.asarray(one["b"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["momentum", "lars"])
def test_statistics_follow_the_batch_by_a_tenth_and_touch_nothing_else(name):
    params, (grads, *_) = draw(0), gradients()
    still = train(make(name, 0.0, **OPTIONS), params, [grads, grads])
    for leaf, before in zip(*map(jax.tree.leaves, (still, params)), strict=True):
        assert leaf.shape == (3,) or np.array_equal(leaf, before)
    follow, batch = params["statistics"]["mean"], np.float32([1, 2, 3])
    optimizer = make(name, lambda step: 0.01 * step, **OPTIONS)
    state = optimizer.init(params)
    for _ in range(2):
        own = {"statistics": {"mean": params["statistics"]["mean"] - batch}}
        updates, state = optimizer.update(grads | own, state, params)
        params = optax.apply_updates(params, updates)
        follow = 0.9 * follow + 0.1 * batch
    assert np.asarray(params["statistics"]["mean"]) == pytest.approx(follow, rel=1e-6)
    loud = grads | {"statistics": {"mean": np.float32([1e6, -1e6, 0])}}
    moved = [train(make(name, 0.1, **OPTIONS), draw(0), [g]) for g in (grads, loud)]
    assert np.array_equal(moved[0]["w"], moved[1]["w"])


def test_slices_on_4_devices_move_as_the_whole_does():
    text = said("tests.update.sliced_main")
    assert text == "slices_move_as_the_whole_does: ok\n", text


PEAK, STEPS, WARM = 0.8, 90, 10
# at 50, half way from the end of the warm-up, and at the last update and behind it
EXPECTED = {
    "constant": (0.8, 0.8, 0.8),
    "cosine": (0.4, 0.4 * (1 + np.cos(np.pi * 79 / 80)), 0),
    "linear": (0.4, 0.01, 0),
    "poly": (0.2, 0.8 / 80**2, 0),
    "steps": (0.08, 0.0008, 0.0008),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_meet_values_by_hand(name):
    rate = schedule(name, PEAK, STEPS, WARM)
    for step, expected in zip((50, 89, 90), EXPECTED[name], strict=True):
        assert float(rate(step)) == pytest.approx(expected, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_warmup_meets_every_schedule_at_its_peak(name, warmup):
    rate = schedule(name, PEAK, STEPS, WARM, warmup, start=0.1)
    first = {"none": PEAK, "constant": 0.1, "gradual": 0.1}[warmup]
    middle = {"constant": 0.1, "gradual": 0.45}.get(warmup)
    assert float(rate(0)) == pytest.approx(first)
    if middle is None:
        assert rate(5) == schedule(name, PEAK, STEPS)(5)
    else:
        assert float(rate(5)) == pytest.approx(middle)
        assert float(rate(WARM)) == np.float32(PEAK)
    if warmup == "gradual":  # were it one step longer, it would be there too
        assert 2 * rate(9) - rate(8) == pytest.approx(PEAK)


def test_drops_are_at_parts_of_all_steps_with_a_warmup_or_without():
    for warm in (0, WARM):
        rate = schedule("steps", 1.0, 90, warm)
        rates = [float(rate(step)) for step in (29, 30, 59, 60, 79, 80)]
        assert rates == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001])


def test_linear_scaling_is_in_proportion_to_the_batch():
    assert linear_scaling(0.1, 8192, 256) == pytest.approx(3.2)


def test_unknown_names_and_too_long_a_warmup_are_bad_input():
    for message, *arguments in [
        ("constant, cosine, .* got 'cos'; pass --sched", "cos", 1.0, 10),
        ("none, constant, gradual, got 'slow'", "cosine", 1.0, 10, 2, "slow"),
        ("0 to steps=10 steps of warm-up, got 11", "cosine", 1.0, 10, 11),
    ]:
        with pytest.raises(BadInput, match=message):
            schedule(*arguments)
