import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dml.models.layers.attention import attention
from dml.models.layers.cross_entropy import cross_entropy, logits
from dml.models.networks.transformer import SIZES, Shape, shapes, transformer
from dml.types import BadInput, Batch

SHAPE = Shape(vocabulary=11, length=6, layers=2, width=8, heads=2)


def gpt_batch(count=3):
    tokens_BxL = np.random.default_rng(0).integers(0, 11, (count, 7), np.int32)
    return Batch(tokens_BxL[:, :-1], tokens_BxL[:, 1:])


def bert_batch(count=3):
    rng = np.random.default_rng(1)
    positions_BxM = np.array([rng.permutation(6)[:2] for _ in range(count)], np.int32)
    tokens_BxM = rng.integers(0, 11, (count, 2), np.int32)
    return Batch(gpt_batch(count).inputs, (positions_BxM, tokens_BxM))


KINDS = {
    "gpt": (True, gpt_batch(), SHAPE),
    "bert": (False, bert_batch(), SHAPE._replace(layers=1)),
}


each_kind = pytest.mark.parametrize("kind", KINDS)


@functools.cache
def compiled(kind, dtype="float32", remat=False):
    """Return a model, its loss with grads, its scores with metrics: compiled once."""
    causal, _, shape = KINDS[kind]
    model = transformer(shape, causal, dtype, remat)

    def evaluate(params, batch):
        return model.scores(params, batch.inputs), model.metrics(params, batch)

    return model, jax.jit(jax.value_and_grad(model.loss)), jax.jit(evaluate)


@functools.cache
def made(kind, dtype="float32", remat=False):
    """A model, and params none of which is 0, with its loss and grads."""
    model, gradient, _ = compiled(kind, dtype, remat)
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf) + rng.normal(0, 0.3, leaf.shape).astype("f4"),
        model.init(jax.random.key(0)),
    )
    loss, grads = gradient(params, KINDS[kind][1])
    return model, params, float(loss), grads


def near(one, other, **tolerance):
    """Assert that two trees have near leaves."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


# float32, sums of tens of terms of size 1
FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}


def softmax(scores):
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_the_mean_of_values_by_alikeness_that_numpy_finds(causal):
    qkv = np.random.default_rng(0).normal(size=(2, 5, 2, 3, 4)).astype("f4")
    mixed = np.zeros((2, 5, 2, 4))
    for example, head, place in np.ndindex(2, 2, 5):
        seen = slice(place + 1 if causal else 5)
        query = qkv[example, place, head, 0]
        keys, values = qkv[example, seen, head, 1], qkv[example, seen, head, 2]
        mixed[example, place, head] = softmax(keys @ query / 2) @ values
    near(attention(qkv, causal), mixed, **FLOAT32)


def norm(rows, params):
    centred = rows - rows.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / spread * params["scale"] + params["bias"]


def dense(rows, params):
    return rows @ params["kernel"] + params["bias"]


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def by_hand(params, tokens, causal):
    """Return the logits, by numpy alone but for attention."""
    params = jax.tree.map(np.float64, params)
    stream = params["embed"]["tokens"][tokens] + params["embed"]["positions"]
    for number in range(len(params) - 2):
        block = params[f"block_{number}"]
        qkv = dense(norm(stream, block["norm_1"]), block["qkv"]).astype("f4")
        mixed = attention(qkv.reshape(*tokens.shape, 2, 3, 4), causal)
        stream = stream + dense(np.reshape(mixed, stream.shape), block["out"])
        hidden = gelu(dense(norm(stream, block["norm_2"]), block["up"]))
        stream = stream + dense(hidden, block["down"])
    head = params["head"]
    features = norm(stream, head["norm"])
    if not causal:
        features = norm(gelu(dense(features, head["dense"])), head["dense_norm"])
    return features @ params["embed"]["tokens"].T + head.get("bias", 0)


@each_kind
def test_scores_loss_and_metrics_are_those_of_the_formulas(kind):
    (causal, batch, _), (_, params, loss, _) = KINDS[kind], made(kind)
    scores_BxLxV = by_hand(params, batch.inputs, causal)
    found_BxLxV, metrics = compiled(kind)[2](params, batch)
    near(found_BxLxV, scores_BxLxV, rtol=1e-3, atol=1e-4)
    told, tokens = scores_BxLxV, batch.targets
    if not causal:
        positions, tokens = batch.targets
        told = np.take_along_axis(told, positions[:, :, None], axis=1)
    chances = np.take_along_axis(softmax(told), tokens[:, :, None], axis=2)
    for found in (loss, metrics["cross_entropy"]):
        assert found == pytest.approx(-np.log(chances).mean(), rel=1e-4)
    right = (told.argmax(axis=2) == tokens).mean()
    assert metrics["accuracy"] == pytest.approx(right)


def test_remat_changes_nothing_and_bfloat16_keeps_params_loss_and_grads_in_float32():
    loss, grads = made("gpt")[2:]
    near((loss, grads), made("gpt", remat=True)[2:], **FLOAT32)
    rough, rough_grads = made("gpt", "bfloat16")[2:]
    assert {leaf.dtype for leaf in jax.tree.leaves(rough_grads)} == {np.dtype("f4")}
    # 8 bits of mantissa, some tens of roundings
    assert rough == pytest.approx(loss, rel=0.02) and rough != loss
    one, other = (np.asarray(ravel_pytree(tree)[0]) for tree in (grads, rough_grads))
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


@pytest.mark.parametrize("rows, bias", [(3, True), (1100, False)])
def test_cross_entropy_in_pieces_has_the_gradient_of_the_whole(rows, bias):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, 4)).astype("f4")
    table, offset = rng.normal(size=(9, 4)).astype("f4"), rng.normal(size=9)
    offset = offset.astype("f4") if bias else None
    targets = rng.integers(0, 9, rows, np.int32)

    def whole(*operands):
        logs_RxV = jax.nn.log_softmax(logits(*operands))
        return -2 * logs_RxV[np.arange(rows), targets].mean()

    def pieces(*operands):
        return 2 * cross_entropy(*operands, targets)

    def both(*operands):
        index = (0, 1, 2)
        return [jax.value_and_grad(f, index)(*operands) for f in (pieces, whole)]

    found, expected = jax.jit(both)(features, table, offset)
    near(found, expected, **FLOAT32)


@pytest.mark.parametrize(
    "kind, size, vocabulary, length, millions",
    [("bert", "large", 30522, 512, 335), ("gpt", "medium", 50257, 1024, 355)],
)
def test_sizes_are_those_of_the_papers(kind, size, vocabulary, length, millions):
    shape = Shape(vocabulary, length, *SIZES[kind][size])
    leaves = jax.tree.leaves(shapes(shape, kind == "gpt"))
    assert round(sum(leaf.size for leaf in leaves) / 1e6) == millions
    assert {leaf.dtype for leaf in leaves} == {np.dtype("f4")}


# Renew these when the start of params, or the model, is changed on purpose: print both.
GOLDEN = {"gpt": (2.406743, 2.343938), "bert": (2.430152, 6.030206)}


@each_kind
def test_the_first_step_is_as_it_was(kind):
    model, gradient, _ = compiled(kind)
    loss, grads = gradient(model.init(jax.random.key(0)), KINDS[kind][1])
    norms = sum(float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(grads))
    assert (float(loss), norms) == pytest.approx(GOLDEN[kind], rel=1e-4)


@pytest.mark.parametrize(
    "change, dtype, message",
    [({"heads": 3}, "float32", "of heads=3"), ({"layers": 0}, "float32", "at least 1")]
    + [({}, "float16", "expected a dtype of float32, bfloat16, got 'float16'")],
)
def test_what_cannot_be_made_is_bad_input(change, dtype, message):
    with pytest.raises(BadInput, match=message):
        transformer(SHAPE._replace(**change), True, dtype)
    model, params, *_ = made("gpt")
    with pytest.raises(BadInput, match="at most 6 tokens per example, got 7"):
        model.scores(params, np.zeros((1, 7), np.int32))
