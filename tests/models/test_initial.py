import jax
import numpy as np
import pytest

from dml.models.initial import initial

SHAPES = jax.eval_shape(
    lambda: {
        "conv": {"kernel": np.zeros((3, 3, 20, 40)), "bias": np.zeros(40)},
        "norm": {"scale": np.zeros(30), "bias": np.zeros(30)},
        "statistics": {"mean": np.zeros(30), "var": np.zeros(30)},
        "tokens": {"embedding": np.zeros((300, 20))},
    }
)


def test_kernels_keep_the_scale_of_what_they_sum_and_embeddings_are_small():
    params, same, other = (initial(SHAPES, jax.random.key(seed)) for seed in (0, 0, 1))
    assert np.array_equal(params["conv"]["kernel"], same["conv"]["kernel"])
    assert not np.array_equal(params["conv"]["kernel"], other["conv"]["kernel"])
    kernel, table = params["conv"]["kernel"], params["tokens"]["embedding"]
    # five standard errors of so many draws
    error = 5 / np.sqrt(2 * 6000)
    assert kernel.std() * np.sqrt(9 * 20) == pytest.approx(1, abs=error)
    assert table.std() / 0.02 == pytest.approx(1, abs=error)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("f4")}
    for name, leaf, start in [("norm", "scale", 1), ("statistics", "var", 1)] + [
        *(("conv", "bias", 0), ("norm", "bias", 0), ("statistics", "mean", 0))
    ]:
        assert (params[name][leaf] == start).all()


def test_a_rule_by_path_comes_first_and_zero_means_zeros():
    wide = {("norm", "scale"): 0.0, ("conv", "kernel"): 3.0}
    params = initial(SHAPES, jax.random.key(0), lambda path, shape: wide.get(path))
    assert not params["norm"]["scale"].any()
    assert params["conv"]["kernel"].std() == pytest.approx(3, rel=5 / np.sqrt(2 * 7200))
    assert (params["statistics"]["var"] == 1).all()
