import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from dml.models.networks.tensor_transformer import tensor_transformer
from dml.models.networks.transformer import shapes
from dml.types import BadInput, Batch
from tests.checks import said
from tests.models.networks.tensor_main import CHECKS, SHAPE


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_eight_devices(name):
    text = said("tests.models.networks.tensor_main")
    assert f"{name}: ok\n" in text, text


@pytest.mark.parametrize("causal", [True, False])
def test_a_device_has_a_part_of_all_large_matrices_alone(causal):
    specs = tensor_transformer(SHAPE, causal, 4).specs
    specs = jax.tree.leaves(specs, is_leaf=lambda one: isinstance(one, tuple))
    leaves = zip(jax.tree.leaves(shapes(SHAPE, causal)), specs, strict=True)
    copies = sum(leaf.size for leaf, spec in leaves if spec == PartitionSpec())
    _, length, layers, width, _ = SHAPE
    head = 2 * width if causal else width**2 + 5 * width
    # places, biases of out and of down, two norms, the head
    assert copies == length * width + layers * (2 + 4) * width + head


@pytest.mark.parametrize(
    "change, size, message",
    [
        ({"heads": 2}, 4, "heads to be divisible by tensor=4, got 2; pass 4, or"),
        ({"vocabulary": 11}, 2, "vocabulary to be divisible by tensor=2, got 11; pass"),
        ({"length": 7}, 2, "length to be divisible by tensor=2, got 7; pass 8, or"),
        ({}, 0, "at least 1 device, got tensor=0"),
    ],
)
def test_what_cannot_be_cut_is_bad_input(change, size, message):
    with pytest.raises(BadInput, match=message):
        tensor_transformer(SHAPE._replace(**change), True, size, sequence=True)


def test_a_batch_that_cannot_be_cut_is_bad_input():
    embed, *_ = tensor_transformer(SHAPE, True, 2, sequence=True).layers
    batch = Batch(np.zeros((1, 7), np.int32), None)
    table, places = np.zeros((6, 16), "f4"), np.zeros((8, 16), "f4")
    params = {"embed": {"tokens": table, "positions": places}}
    with pytest.raises(BadInput, match="tokens of an example .* tensor=2, got 7"):
        embed.apply(params, None, batch)
