"""Checkpoints of trees: every bit of every kind of leaf is read back."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml.runs import snapshots, states
from dml.types import BadInput

RULES = {"model": "cnn", "batch": 32, "lr": 0.1, "sizes": (1, 2)}


def state(number=1.0):
    """Return a tree of every kind of leaf, with optax's NamedTuples in it."""
    rng = np.random.default_rng(int(number))
    params = {
        "dense": {"kernel": jnp.float32(rng.normal(size=(3, 2))), "bias": np.ones(2)},
        "half": jnp.asarray(rng.normal(size=5), jnp.bfloat16),
        "none": np.zeros((0, 3), np.float32),
        "seen": [np.array([True, False]), np.int8([-1, 2])],
    }
    kernel = {"kernel": np.float32(rng.normal(size=(2, 2)))}
    adam = optax.chain(optax.clip(1.0), optax.adam(0.1))
    return {
        "params": params,
        "optimizer": adam.init(kernel),
        "step": 3,
        "drawn": np.int64(2**40 + int(number)),
        "raw": jax.random.key_data(jax.random.key(7)),
        "key": jax.random.key(int(number)),
    }


def shapes(tree):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if hasattr(x, "dtype") else x,
        tree,
    )


def bits(tree):
    plain = lambda x: jax.random.key_data(x) if snapshots.is_key(x) else x  # noqa: E731
    return [
        (str(getattr(x, "dtype", type(x))), np.shape(x), np.asarray(plain(x)).tobytes())
        for x in jax.tree.leaves(tree)
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with steps 3 and 4, which tests copy before they break it."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    for number in (2, 3, 4):
        states.save(folder, number, state(number), RULES)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def load(folder, rules=RULES, like=None):
    said = []
    like = shapes(state()) if like is None else like
    return (*states.load(folder, rules, like, said.append), said)


@pytest.mark.parametrize("like", (state(), shapes(state())))
def test_every_bit_of_every_kind_of_leaf_comes_back(saved, like):
    with jax.transfer_guard("disallow"):  # as in training
        number, found, said = load(saved, like=like)
    assert (number, said) == (4, [])
    assert bits(found) == bits(state(4)) != bits(state(3))
    assert jax.tree.structure(found) == jax.tree.structure(state())
    assert found["step"] == 3 and isinstance(found["step"], int)
    assert jax.random.uniform(found["key"]) == jax.random.uniform(jax.random.key(4))
    assert sorted(path.name for path in saved.iterdir()) == ["step-3.npz", "step-4.npz"]


def test_a_state_that_is_not_finite_leaves_the_earlier_ones(copied):
    for bad in (jnp.asarray([np.nan], jnp.bfloat16), np.float32(np.inf)):
        states.save(copied, 5, state() | {"params": bad}, RULES)
        assert load(copied)[0] == 4


@pytest.mark.parametrize(
    "rules, line",
    [
        (
            RULES | {"batch": 64},
            "expected batch=32 as in .*step-4.npz, got batch=64; pass",
        ),
        (RULES | {"size": "mini"}, "expected size=None as in .*, got size=mini; pass"),
        ({"model": "cnn"}, "expected batch=32 as in .*, got batch=None"),
    ],
)
def test_another_runs_checkpoint_is_bad_input_that_names_the_rule(saved, rules, line):
    with pytest.raises(BadInput, match=line):
        load(saved, rules)


def test_another_models_checkpoint_is_bad_input_that_names_the_leaf(saved):
    other = shapes(state())
    other["params"]["dense"]["kernel"] = jax.ShapeDtypeStruct((3, 5), np.float32)
    line = r"params/dense/kernel=float32\[3, 2\] as .* got .*=float32\[3, 5\]; pass"
    with pytest.raises(BadInput, match=line):
        load(saved, like=other)
    del other["params"]["dense"]
    with pytest.raises(BadInput, match="expected params/dense/bias=.*=None; pass"):
        load(saved, like=other)
