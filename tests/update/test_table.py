"""Every rule on rows, slices and blocks, against optax on the dense gradient.

And rows that a sparse model moves.
"""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml.models.sparse import cuts
from dml.types import BadInput
from dml.update.moves import Moves
from dml.update.rules import RULES, compile_rule
from dml.update.table import BLOCK, table

RATE = 0.125  # a power of two: optax's own products with it are exact
OPTAX = {
    "sgd": optax.sgd(RATE),
    "momentum": optax.sgd(RATE, momentum=0.9),
    "adagrad": optax.adagrad(RATE),
    "adam": optax.adam(RATE),
    # steps of rate · g, whose squares are summed from 1 on
    "glove": optax.chain(
        optax.scale(RATE), optax.adagrad(1.0, initial_accumulator_value=1, eps=0)
    ),
}
# No rounding apart in the first two. The others: rsqrt to 5e-6, or 1 - 0.999^t, which
# optax computes with cancellation (6e-8 of 1e-3), under a root.
CLOSE = {"sgd": 0, "momentum": 0, "adagrad": 1e-6, "adam": 5e-5, "glove": 2e-5}


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", ((BLOCK + 7, 1), (2, BLOCK + 1), (700, 3)))
@pytest.mark.parametrize("rule", RULES)
def test_a_dense_update_is_that_of_optax(rule, shape):
    values = normal(0, *shape)
    ours, params = table(rule, values, RATE), jnp.array(values)
    state = OPTAX[rule].init(params)
    for step in range(1, 5):
        grads = normal(step, *shape)
        ours.update(slice(None), grads)
        updates, state = OPTAX[rule].update(jnp.array(grads), state, params)
        params = optax.apply_updates(params, updates)
    off = abs(ours.values - np.asarray(params)).max()
    assert off <= CLOSE[rule] * RATE * 4
    assert values.tobytes() == normal(0, *shape).tobytes()  # it owns a copy


@pytest.mark.parametrize("kind", (np.int32, np.int64))
@pytest.mark.parametrize("rule", RULES)
def test_each_row_moves_as_if_it_were_alone(rule, kind):
    values = normal(0, 9, 4)
    together = table(rule, values, RATE)
    apart = [table(rule, values[[row]], RATE) for row in range(9)]
    for step in range(1, 6):
        at = np.random.default_rng(step).permutation(9)[: step + 1].astype(kind)
        grads = normal(step, len(at), 4)
        together.update(at, grads)
        for row, grad in zip(at, grads, strict=True):
            apart[row].update(slice(None), grad[None])
        want = np.concatenate([one.values for one in apart])
        assert together.values.tobytes() == want.tobytes()
    for arrays in zip(together.state, *(one.state for one in apart), strict=True):
        assert arrays[0].tobytes() == np.concatenate(arrays[1:]).tobytes()
    assert (together.values != values).any(axis=1).sum() > 5


@pytest.mark.parametrize("at", (slice(1, 400), np.arange(1, 400), slice(5, 5)))
@pytest.mark.parametrize("rule", RULES)
def test_each_column_has_its_rate_and_a_slice_is_its_rows_by_number(rule, at):
    rates, numbers = (0.5, 0.0, 0.125), np.arange(401)[at]
    ours = table(rule, normal(0, 401, 3), rates)
    each = [table(rule, normal(0, 401, 3)[:, [d]], rates[d]) for d in range(3)]
    for step in range(3):
        grads = normal(step, len(numbers), 3)
        ours.update(at, grads)
        for column, one in enumerate(each):
            one.update(numbers, grads[:, [column]])
    assert ours.values.tobytes() == np.hstack([one.values for one in each]).tobytes()
    for mine, *state in zip(ours.state, *(one.state for one in each), strict=True):
        assert mine.tobytes() == np.hstack(state).tobytes()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_compiled_once_for_all_that_comes(rule):
    one, grads = table(rule, normal(0, 6, 2), RATE), normal(1, 3, 2)
    fixed = grads.copy()
    fixed.flags.writeable = False
    for at in (slice(0, 3), np.arange(3), np.arange(3, dtype=np.int32), [0, 2, 4]):
        for some in (grads, fixed, np.asfortranarray(grads), jnp.array(grads)):
            one.update(at, some)
    assert len(compile_rule(rule).signatures) == 1
    assert np.isfinite(one.values).all()


@pytest.mark.parametrize("rule, l1", [*((rule, 0) for rule in RULES), ("sgd", 0.7)])
def test_a_gradient_that_is_not_a_number_does_not_pass_for_one(rule, l1):
    one = table(rule, np.ones((2, 2)), RATE, l1=l1)
    one.update(np.array([1]), np.array([[np.nan, 1]]))
    assert np.isnan(one.values).tolist() == [[False, False], [True, False]]


def test_l1_shrinks_every_row_by_its_share_after_the_step():
    rates, l1, share = np.float32([0.5, 0.25]), 0.5, 0.25
    values, grads = normal(0, 700, 2), normal(1, 2, 2)
    values[5, 0] = rates[0] * l1 * share  # becomes 0, and not less
    one = table("sgd", values, rates, l1=l1)
    one.update(np.array([3, 699]), grads, share)
    stepped, amounts = values.copy(), rates * l1 * share
    stepped[[3, 699]] -= rates * grads
    want = np.sign(stepped) * np.maximum(abs(stepped) - amounts, 0)
    np.testing.assert_allclose(one.values, want, rtol=1e-6, atol=1e-8)
    assert (one.values == 0).sum() == (abs(stepped) <= amounts).sum() > 40


@pytest.mark.parametrize("rule, start", (("adagrad", 0.1), ("glove", 1)))
def test_squares_start_at_the_given_value(rule, start):
    values, squares = normal(0, 4, 2), 1 + normal(1, 4, 2) ** 2
    assert (table(rule, values, RATE).state[0] == np.float32(start)).all()
    assert (table(rule, values, RATE, squares=7).state[0] == 7).all()
    whole = table(rule, values, RATE, squares=squares)
    whole.update(slice(None), np.ones_like(values))
    # saved and begun anew from there, it goes on as it would have
    again = table(rule, whole.values, RATE, squares=whole.state[0])
    for one in whole, again:
        one.update(slice(None), np.ones_like(values))
    assert again.values.tobytes() == whole.values.tobytes()
    assert squares.tobytes() == (1 + normal(1, 4, 2) ** 2).tobytes()


@pytest.mark.parametrize(
    "arguments, options, said",
    [
        (("sdg", [[1]], 1), {}, "sgd, momentum, .* got 'sdg'; pass --opt"),
        (("adam", [[1]], 1), {"l1": 0.1}, "l1=0.1 with sgd only, got it with adam"),
        (("sgd", [[1]], 1), {"l1": -1.0}, "0 <= l1 < inf, got l1=-1.0; pass --l1"),
        (("sgd", [[1]], 1), {"l1": np.nan}, "got l1=nan"),
        (("sgd", [[1]], 1), {"squares": 1}, "with adagrad or glove only, got .* sgd"),
        (("glove", [[1]], 1), {"squares": -1}, "at least 0, got squares=-1"),
        (("sgd", [[1]], np.nan), {}, "finite rate, .* got nan"),
        (("sgd", [[1]], -1), {}, "rate of at least 0, got -1"),
        (("sgd", [[1, 2]], [1, 2, 3]), {}, r"each of 2 columns, got \[1, 2, 3\]"),
        (("sgd", 1, 1), {}, r"values RxD, got \(\); reshape"),
        (("sgd", [[], []], 1), {}, r"values RxD, got \(2, 0\); reshape"),
    ],
)
def test_bad_arguments_are_bad_input(arguments, options, said):
    with pytest.raises(BadInput, match=said):
        table(*arguments, **options)


@pytest.mark.parametrize(
    "at, shape, said",
    [
        (np.array([0, 3]), (2, 2), "rows 0 to 2, got 0 to 3; push keys"),
        (np.array([-1]), (1, 2), "rows 0 to 2, got -1 to -1; push keys"),
        (np.array([0, 1]), (1, 2), r"gradients of shape \(2, 2\), got \(1, 2\); push"),
        (np.array([0]), (1, 1), r"gradients of shape \(1, 2\), got \(1, 1\); push"),
        (slice(0, 2), (3, 2), r"gradients of shape \(2, 2\), got \(3, 2\); push"),
        (slice(0, 3, 2), (2, 2), "consecutive rows, got slice.*; pass row indices"),
    ],
)
def test_rows_and_gradients_that_do_not_fit_are_bad_input(at, shape, said):
    one = table("momentum", np.ones((3, 2)), RATE)
    with pytest.raises(BadInput, match=said):
        one.update(at, np.ones(shape, np.float32))
    assert (one.values == 1).all() and (one.state[0] == 0).all()


def test_rows_of_cuts_stay_on_the_simplex_and_gradients_stay_as_they_are():
    start, grads = np.full((5, 3), 1 / 3, np.float32), normal(0, 3, 3)
    shard = Moves(start, cuts.move, lambda number: 0.5 / number)
    shard.update(slice(2, 3), np.zeros((1, 3), np.float32))
    shard.update(np.array([4, 0, 2]), grads)
    assert (shard.values >= 0).all()
    np.testing.assert_allclose(shard.values.sum(axis=1), 1, rtol=1e-6)
    nearest = start[0] - 0.25 * grads[1]
    cuts.project(nearest)
    np.testing.assert_allclose(shard.values[0], nearest, rtol=1e-6)
    assert shard.values[1].tolist() == start[1].tolist()
    assert grads.tolist() == normal(0, 3, 3).tolist()
