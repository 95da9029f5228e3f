"""Formulas of a stage against XLA's count of a block, and the law that follows."""

import jax
import numpy as np
import pytest

from dml.models import layer_costs
from dml.models.networks.transformer import Shape, transformer
from dml.types import Batch
from dml.wire.costs import square_cube
from dml.wire.costs.square_cube import Speeds, Stage

LENGTH, BATCH = 64, 2


@pytest.mark.parametrize("width, within", ((64, 0.08), (192, 0.04)))
def test_the_flops_are_those_of_a_block_and_the_words_its_activations(width, within):
    stage = Stage(width, LENGTH, BATCH)
    model = transformer(Shape(50, LENGTH, 1, width, 4), causal=True)
    params = model.init(jax.random.key(0))
    tokens = np.zeros((BATCH, LENGTH), np.int32)
    batch = Batch(tokens, tokens)
    counted = layer_costs.flops(model.layers, params, batch)[1]
    # XLA also counts norms and additions, which are proportional to the width
    assert 1 <= counted / square_cube.flops(stage) <= 1 + within
    _, (_, _, activations, _), _ = layer_costs.layer_passes(model.layers, params, batch)
    sizes = [leaf.size for leaf in jax.tree.leaves(activations)]
    assert square_cube.words(stage) == 2 * sum(sizes)  # and gradients backwards


def test_blocks_add_computation_and_no_communication():
    one, three = (Stage(32, LENGTH, blocks=n) for n in (1, 3))
    assert square_cube.flops(three) == 3 * square_cube.flops(one)
    assert square_cube.words(three) == square_cube.words(one)


def test_twice_the_width_has_eight_times_the_flops_and_four_times_the_words():
    """With as many tokens as units; attention is counted with the length."""
    one, two = (Stage(width, length=width) for width in (64, 128))
    assert square_cube.flops(two) == 8 * square_cube.flops(one)
    assert square_cube.words(two) == 4 * square_cube.words(one)


def test_the_share_of_communication_falls_with_width_and_bandwidth():
    peer = Speeds(1e12, 1e7)
    shares = [
        square_cube.communication(Stage(width, 512), peer)
        for width in (512, 2048, 8192)
    ]
    assert 1 > shares[0] > shares[1] > shares[2] > 0
    fast = peer._replace(bandwidth=1e8)
    assert square_cube.communication(Stage(512, 512), fast) < shares[0]
    compute, transfer = square_cube.seconds(Stage(512, 512), peer)
    assert shares[0] == pytest.approx(transfer / (compute + transfer))
    assert transfer == pytest.approx(2 * 512 * 512 * 4 / 1e7)
    late = square_cube.seconds(Stage(512, 512), peer._replace(latency=0.25))
    assert late == (compute, transfer + 0.5)  # of two messages


@pytest.mark.parametrize("share", (0.05, 0.5))
def test_the_least_width_is_the_first_with_its_share(share):
    stage, peer = Stage(1, 128), Speeds(1e12, 25e6, 0.01)
    width = square_cube.least_width(stage, peer, share)
    assert square_cube.communication(stage._replace(width=width), peer) <= share
    assert square_cube.communication(stage._replace(width=width - 1), peer) > share
