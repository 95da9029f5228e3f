"""The layers of a pipeline: flags or a GPT come in, the seconds of each layer out."""

import math
from collections.abc import Sequence

from dml.types import BadInput

REPEATS = 20  # timings, of which the least


def given(text: str) -> list[float]:
    """Return the seconds of --layer_seconds; none of an empty one."""
    try:
        found = [float(word) for word in text.split(",")] if text else []
        if all(0 < one < math.inf for one in found):
            return found
    except ValueError:
        pass
    raise BadInput(
        f"expected seconds above 0 in --layer_seconds, got {text!r}; pass such as "
        "0.001,0.004"
    )


def measured(sizes: Sequence[int], microbatch: int) -> list[float]:
    """Time the layers of a GPT of transformer.Shape(*sizes); its blocks are alike."""
    import compiling
    import jax
    import jax.numpy as jnp

    from dml.models.layer_costs import seconds
    from dml.models.transformer import Shape, shapes, transformer
    from dml.types import Batch

    shape = Shape(*sizes)
    one = shape._replace(layers=1)
    tokens_BxL = jax.ShapeDtypeStruct((microbatch, shape.length), jnp.int32)
    with compiling.fitting("a smaller --microbatch, --width or --vocabulary"):
        compiling.cached()
        layers = transformer(one, causal=True).layers
        batch = Batch(tokens_BxL, tokens_BxL)
        embed, block, head = seconds(layers, shapes(one, True), batch, REPEATS)
    return [embed, *[block] * shape.layers, head]
