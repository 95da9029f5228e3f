"""Muon: which leaves it updates, and that its update is optax's."""

import jax
import numpy as np
import optax
import pytest

from dml.models.layers.blocks import Shape
from dml.models.networks.cnn import cnn
from dml.models.networks.mlp import mlp
from dml.models.networks.transformer import transformer
from dml.types import BadInput
from dml.update import muon
from dml.update.dense import make

SHAPE = Shape(vocabulary=20, length=6, layers=1, width=8, heads=2)
HIDDEN = {f"block_0/{part}/kernel" for part in ("qkv", "out", "up", "down")}
GROUPS = {
    "gpt": (transformer(SHAPE, True), HIDDEN),
    "bert": (transformer(SHAPE, False), HIDDEN),
    "cnn": (cnn((8, 8, 1), 4, 3), {"Conv_0/kernel", "Conv_1/kernel"}),
    "mlp": (mlp((9,), 4, (7, 5)), {"hidden_00/kernel", "hidden_01/kernel"}),
}


@pytest.mark.parametrize("name", GROUPS)
def test_hidden_matrices_are_orthogonalised_and_other_leaves_are_not(name):
    model, expected = GROUPS[name]
    params = model.init(jax.random.key(0))
    axes = muon.dimension_numbers(model.layers[-1].names, params)
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, leaf in jax.tree_util.tree_leaves_with_path(
            axes,
            is_leaf=lambda node: isinstance(node, optax.contrib.MuonDimensionNumbers),
        )
        if leaf is not None
    }
    assert found == expected


def test_updates_of_hidden_matrices_have_equal_singular_values():
    model, _ = GROUPS["mlp"]
    params = model.init(jax.random.key(0))
    update = make("muon", 1.0, outputs=model.layers[-1].names)
    rng = np.random.default_rng(0)
    grads = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), params
    )
    changes, _ = update.update(grads, update.init(params), params)
    values = np.linalg.svd(changes["hidden_01"]["kernel"], compute_uv=False)
    assert values.max() / values.min() < 2  # of the gradient: above 3
    spread = np.linalg.svd(grads["hidden_01"]["kernel"], compute_uv=False)
    assert spread.max() / spread.min() > 3
    head = np.abs(changes["head"]["kernel"])  # AdamW's first update has one size
    np.testing.assert_allclose(head, head[0, 0], rtol=1e-3)


def test_without_outputs_and_tables_the_update_is_optax_muon():
    params = {"a": np.ones((4, 6), np.float32), "b": np.ones(3, np.float32)}
    rng = np.random.default_rng(1)
    grads = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), params
    )
    ours, reference = make("muon", 0.1, decay=0.0), optax.contrib.muon(0.1)
    expected, _ = reference.update(grads, reference.init(params), params)
    changes, _ = ours.update(grads, ours.init(params), params)
    for leaf, other in zip(*map(jax.tree.leaves, (changes, expected)), strict=True):
        assert np.array_equal(leaf, other)


def test_slices_of_matrices_are_refused():
    with pytest.raises(BadInput, match="expected whole matrices with --optimizer=muon"):
        make("muon", 0.1, axis="data", like={"a": np.ones((2, 2))})


def test_iterations_of_a_convolution_are_those_of_its_matrix():
    assert muon.iterations((3, 3, 4, 8)) == muon.iterations((36, 8))
    assert muon.iterations((5, 36, 8)) == 5 * muon.iterations((8, 36))


def test_tables_outputs_and_vectors_have_the_costs_of_their_elements():
    matrix = np.ones((8, 4))
    params = {
        "block": {"bias": np.ones(4), "kernel": matrix},
        "embed": {"embedding": matrix},
        "head": {"kernel": matrix},
    }
    costs = muon.costs(("head",), params)
    bias, kernel, table, head = costs
    assert (bias, table, head) == (4 * muon.ADAMW, 32 * muon.ADAMW, 32 * muon.ADAMW)
    assert kernel == muon.iterations((8, 4)) != 32 * muon.ADAMW
