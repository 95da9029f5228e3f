import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.models.sparse import dropout
from dml.models.sparse.dropout import accuracy, draw_masks, gradient, objective, optimum
from dml.types import BadInput, Batch

INPUTS, CLASSES, HIDDEN, KEEP, MU = 6, 3, 9, 0.4, 0.05


def example(kind=np.float32, masks=2, mu=MU):
    """A few images with their masks, and a table far from its start."""
    rng = np.random.default_rng(0)
    images = Batch(rng.random((8, INPUTS)), rng.integers(0, CLASSES, 8))
    data = draw_masks(images, HIDDEN, KEEP, masks, 1, mu, dtype=kind)
    table_HxD = rng.standard_normal((HIDDEN, INPUTS + 1 + CLASSES))
    return table_HxD.astype(kind), data


def units(data, e):
    return data.edges.rows[data.edges.starts[e] : data.edges.starts[e + 1]].astype(int)


def edge_loss(table_HxD, mask_H, image_I, target):
    units_H = jnp.tanh(table_HxD[:, :INPUTS] @ image_I + table_HxD[:, INPUTS])
    scores_C = (units_H * mask_H / KEEP) @ table_HxD[:, INPUTS + 1 :]
    norm = (mask_H[:, None] * table_HxD**2).sum()
    return -jax.nn.log_softmax(scores_C)[target] + 0.5 * MU * norm


SLOPES = jax.jit(jax.vmap(jax.value_and_grad(edge_loss), (None, 0, 0, 0)))


@pytest.mark.parametrize("kind, near", [(np.float64, 1e-10), (np.float32, 2e-5)])
def test_every_edge_has_the_loss_and_the_gradient_of_jax(kind, near):
    table_HxD, data = example(kind)
    masks_ExH = np.zeros((16, HIDDEN))
    for e in range(16):
        masks_ExH[e, units(data, e)] = 1
    inputs_ExI = data.inputs_BxI[data.images].astype(float)
    with jax.enable_x64(True):
        parts = table_HxD.astype(float), masks_ExH, inputs_ExI
        targets_E = jnp.asarray(data.targets[data.images])
        losses_E, slopes_ExHxD = SLOPES(*map(jnp.asarray, parts), targets_E)
        losses_E, slopes_ExHxD = np.asarray(losses_E), np.asarray(slopes_ExHxD)
    grads_HxD = np.full_like(table_HxD, np.nan)
    for e in range(16):
        loss, moves = gradient(table_HxD, data, e, 0, grads_HxD)
        assert moves and loss == pytest.approx(losses_E[e], rel=near)
        rows = units(data, e)
        # float32: chances of scores of size 10
        np.testing.assert_allclose(
            grads_HxD[: len(rows)], slopes_ExHxD[e][rows], rtol=near, atol=near
        )
        # the units that are not kept have none
        assert not np.delete(slopes_ExHxD[e], rows, axis=0).any()


def test_large_scores_do_not_overflow_and_accuracy_uses_all_units():
    table_HxD, data = example()
    grads_HxD = np.empty_like(table_HxD)
    table_HxD[:, INPUTS + 1 :] *= 1e6
    for e in range(16):
        loss, _ = gradient(table_HxD, data, e, 0, grads_HxD)
        assert np.isfinite(loss) and np.isfinite(grads_HxD[: len(units(data, e))]).all()
    table_HxD, _ = example(np.float64)
    table_HxD[:, :INPUTS] = 0  # whatever the image
    all_C = np.tanh(table_HxD[:, INPUTS]) @ table_HxD[:, INPUTS + 1 :]
    images = Batch(np.ones((CLASSES, INPUTS)), np.arange(CLASSES))
    assert accuracy(table_HxD, images) == 1 / CLASSES
    best = Batch(np.ones((1, INPUTS)), all_C.argmax(keepdims=True))
    assert accuracy(table_HxD, best) == 1


def test_masks_rise_and_keep_a_unit_and_masks_and_start_repeat_by_seed():
    images = Batch(np.ones((50, 4)), np.zeros(50, int))
    one, same, other = (draw_masks(images, 6, 0.2, 4, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.edges.rows, same.edges.rows)
    assert not np.array_equal(one.edges.starts, other.edges.starts)
    sizes = np.diff(one.edges.starts)
    assert len(sizes) == 200 and sizes.min() == 1 and one.edges.starts[-1] == sum(sizes)
    for e in range(200):
        assert (np.diff(units(one, e)) > 0).all() and units(one, e).max() < 6
    # none of six is drawn by 0.8⁶ = 26 %; those then have one, any
    alone = [int(units(one, e)[0]) for e in range(200) if sizes[e] == 1]
    assert set(alone) == set(range(6))
    assert sizes.mean() == pytest.approx(1.2 + 0.26, abs=0.3)
    assert np.bincount(one.images).tolist() == [4] * 50
    every = draw_masks(images, 6, 1.0, 2, 0)  # no dropout
    assert every.edges.rows.tolist() == [*range(6)] * 100
    table_HxD, same, other = (dropout.start(300, 64, 10, seed) for seed in (0, 0, 1))
    assert table_HxD.tobytes() == same.tobytes() != other.tobytes()
    assert table_HxD.dtype == np.float32 and not table_HxD[:, 64].any()
    # five standard errors of 3000 draws at least
    assert table_HxD[:, :64].std() == pytest.approx(1 / 8, rel=5 / np.sqrt(6000))
    assert table_HxD[:, 65:].std() == pytest.approx(300**-0.5, rel=5 / np.sqrt(6000))


def test_descents_on_the_whole_sum_end_where_it_has_no_slope():
    table_HxD, data = example(np.float64)
    best_HxD = optimum(data, table_HxD)
    assert abs(dropout.loss_and_gradient(best_HxD, data)[1]).max() < 1e-4
    assert objective(best_HxD, data) < 0.5 * objective(table_HxD, data)
    short_HxD = optimum(data, table_HxD, steps=3)
    assert objective(best_HxD, data) < objective(short_HxD, data)


@pytest.mark.parametrize(
    "hidden, keep, masks, images",
    [(4, 0.0, 1, 3), (4, 1.5, 1, 3), (0, 0.5, 1, 3), (4, 0.5, 0, 3), (4, 0.5, 1, 0)],
)
def test_nothing_to_keep_is_bad_input(hidden, keep, masks, images):
    batch = Batch(np.ones((images, 4)), np.zeros(images, int))
    with pytest.raises(BadInput, match=f"expected keep .* {masks=}, {images} imag"):
        draw_masks(batch, hidden, keep, masks, 0)
