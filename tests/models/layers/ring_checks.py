"""What ring attention on four devices must do."""

import math
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from dml.models.layers import ring_attention as ring
from tests.models.layers.axes_main import DEVICES, close, drawn, line

LENGTH = 128  # of a batch of 2 with 3 heads of 4: the most numbers are scores


def qkv(length, dtype=jnp.float32):
    # Scores of about 3: some weights are near 0, some near 1.
    return [2 * drawn(seed, 2, length, 3, 4).astype(dtype) for seed in range(3)]


def plain(queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, seen_LxL):
    """Return softmax(queries · keys / √K) · values with all scores at once."""
    scores_BxHxLxL = jnp.einsum("blhk,bmhk->bhlm", queries_BxLxHxK, keys_BxLxHxK) / 2.0
    scores_BxHxLxL = jnp.where(seen_LxL[None, None], scores_BxHxLxL, -jnp.inf)
    weights_BxHxLxL = jax.nn.softmax(scores_BxHxLxL)
    return jnp.einsum("bhlm,bmhk->blhk", weights_BxHxLxL, values_BxLxHxK)


def taught(attend):
    """Return the program of what attention gives, and of its gradients."""

    def loss(queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, *seen):
        mixed_BxLxHxK = attend(queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, *seen)
        targets_BxLxHxK = drawn(9, *mixed_BxLxHxK.shape)
        return (mixed_BxLxHxK * targets_BxLxHxK).sum(), mixed_BxLxHxK

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))


def over(axes, causal):
    """Return attention of whole queries, keys and values on a mesh."""
    return jax.shard_map(
        lambda *given: ring.ring_attention(*given, causal),
        mesh=axes,
        in_specs=P(None, "sequence"),
        out_specs=P(None, "sequence"),
        check_vma=False,
    )


reference = taught(plain)


def seen(length, causal):
    return np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)


@cache
def around(size, causal):
    return taught(over(line("sequence", size), causal))


def check_ring_attention_is_attention():
    for size, length, causal in (1, LENGTH, False), (4, LENGTH, True), (4, 4, False):
        found = around(size, causal)(*qkv(length))
        close(found, reference(*qkv(length), seen(length, causal)))


def check_half_precision_goes_in_and_comes_out():
    attend = jax.jit(over(line("sequence"), True))
    mixed_BxLxHxK = attend(*qkv(LENGTH, jnp.bfloat16))
    assert mixed_BxLxHxK.dtype == jnp.bfloat16
    (_, wanted_BxLxHxK), _ = reference(*qkv(LENGTH), seen(LENGTH, True))
    apart = np.abs(np.float32(mixed_BxLxHxK) - wanted_BxLxHxK).max()
    assert apart < 0.1  # 2**-8 of values up to 6, of scores up to 10


def check_no_device_gathers_or_holds_more_than_its_share():
    program = around(DEVICES, True).lower(*qkv(LENGTH)).compile().as_text()
    shapes = re.findall(r"\b[a-z]+\d+\[([\d,]+)\]", program)
    most = max(math.prod(map(int, shape.split(","))) for shape in shapes)
    assert most == 2 * 3 * (LENGTH // DEVICES) ** 2  # the scores of a round
    assert "all-gather" not in program and "all-to-all" not in program
    # 2 in the rounds forward, 4 in those backward, 2 home
    assert program.count(" collective-permute(") == 8
    # rounds are a loop of any size
    for size in (2, 3, 4):
        said = around(size, True).lower(*qkv(12)).as_text()
        assert said.count("stablehlo.collective_permute") == 8


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]
