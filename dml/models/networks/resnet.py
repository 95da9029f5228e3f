"""Residual networks (He 2015): 8, 20, 32 (small images) or 50 layers (large images).

    stem → group → ... → group → mean over pixels → dense

    group:  → block → ... → block →       block:  ─┬→ convolutions → + →
                                                   ╰── shortcut ─────╯

Inputs are images BxHxWxC and integer targets B; the loss is the mean cross entropy.
From the second group on, the first block of a group halves height and width, in its
first 3x3 convolution, and doubles the number of maps. Shortcuts between maps of
different shapes are projections (He's option B). The last scale of a block is initially
0, so that the block initially returns its rectified shortcut (Goyal 2017).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.layers.normalisation import norm
from dml.models.networks.classifier import Part, classifier
from dml.types import BadInput, Model

LAST = "last"  # name of a block's last normalisation, whose scale is initially 0


class ResNetPlan(NamedTuple):
    """The blocks of a network of one depth.

    Attributes:
      blocks: Number of blocks in each group.
      width: Number of maps of a convolution in the first group.
      kernels: Sides of the filters of a block's convolutions.
      growth: Number of maps that a block returns, divided by its width.
      large: Whether the stem divides height and width by 4.
      smallest: Minimum height and width of an image.
    """

    blocks: tuple[int, ...]
    width: int
    kernels: tuple[int, ...]
    growth: int
    large: bool
    smallest: int


DEPTHS = {
    8: ResNetPlan((1, 1, 1), 16, (3, 3), 1, False, 4),
    20: ResNetPlan((3, 3, 3), 16, (3, 3), 1, False, 4),
    32: ResNetPlan((5, 5, 5), 16, (3, 3), 1, False, 4),
    50: ResNetPlan((3, 4, 6, 3), 64, (1, 3, 1), 4, True, 32),
}


class Stem(linen.Module):
    """The first layer: images -> maps."""

    width: int
    large: bool
    dtype: Any

    @linen.compact
    def __call__(self, images_BxHxWxC: jax.Array) -> jax.Array:
        size, stride = (7, 2) if self.large else (3, 1)
        maps_BxHxWxC = linen.Conv(
            self.width, (size, size), stride, use_bias=False, dtype=self.dtype
        )(images_BxHxWxC)
        maps_BxHxWxC = linen.relu(norm(self, self.dtype)()(maps_BxHxWxC))
        if self.large:
            return linen.max_pool(maps_BxHxWxC, (3, 3), (2, 2), "SAME")
        return maps_BxHxWxC


class Block(linen.Module):
    """A residual block: convolutions, added to a shortcut."""

    width: int
    kernels: tuple[int, ...]
    growth: int
    stride: int
    dtype: Any

    @linen.compact
    def __call__(self, maps_BxHxWxC: jax.Array) -> jax.Array:
        normed = norm(self, self.dtype)
        last = len(self.kernels) - 1
        shortcut_BxHxWxC = branch_BxHxWxC = maps_BxHxWxC
        for index, size in enumerate(self.kernels):
            branch_BxHxWxC = self.convolve(
                branch_BxHxWxC,
                size,
                self.width * (self.growth if index == last else 1),
                self.stride if index == self.kernels.index(3) else 1,
            )
            if index == last:
                branch_BxHxWxC = normed(name=LAST)(branch_BxHxWxC)
            else:
                branch_BxHxWxC = linen.relu(normed()(branch_BxHxWxC))
        if maps_BxHxWxC.shape != branch_BxHxWxC.shape:
            width = branch_BxHxWxC.shape[-1]
            shortcut_BxHxWxC = self.convolve(maps_BxHxWxC, 1, width, self.stride)
            shortcut_BxHxWxC = normed()(shortcut_BxHxWxC)
        return linen.relu(shortcut_BxHxWxC + branch_BxHxWxC)

    def convolve(
        self, maps_BxHxWxC: jax.Array, size: int, width: int, stride: int
    ) -> jax.Array:
        """Return the maps of a convolution, whose bias is in the next normalisation."""
        return linen.Conv(
            width, (size, size), stride, use_bias=False, dtype=self.dtype
        )(maps_BxHxWxC)


def resnet(
    shape: tuple[int, ...],
    classes: int,
    depth: int = 20,
    dtype: str = "float32",
    remat: bool = False,
) -> Model:
    """Return the model for images.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      depth: Number of layers, a key of DEPTHS.
      dtype: Dtype of the arithmetic.
      remat: Whether the backward pass recomputes the activations inside each block.
    """
    if depth not in DEPTHS:
        raise BadInput(
            f"expected a depth of {', '.join(map(str, DEPTHS))}, got {depth}; "
            "pass --depth=<one of them>"
        )
    plan = DEPTHS[depth]
    if len(shape) != 3 or min(shape) < 1 or min(shape[:2]) < plan.smallest:
        raise BadInput(
            f"expected images HxWxC of {plan.smallest} by {plan.smallest} or more for "
            f"{depth=}, got {shape}; pass larger images or another depth"
        )
    arithmetic = jnp.dtype(dtype)
    blocks = [
        Block(
            plan.width * 2**group,
            plan.kernels,
            plan.growth,
            2 if group > 0 and index == 0 else 1,
            arithmetic,
        )
        for group, count in enumerate(plan.blocks)
        for index in range(count)
    ]
    parts: dict[str, linen.Module] = {"stem": Stem(plan.width, plan.large, arithmetic)}
    parts |= {f"block_{index:02d}": block for index, block in enumerate(blocks)}
    dense = linen.Dense(classes, dtype=arithmetic)
    parts["head"] = Part(dense, lambda maps_BxHxWxC: maps_BxHxWxC.mean(axis=(1, 2)))
    return classifier(parts, shape, spread, remat)


def spread(path: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return He's standard deviation for kernels, and 0 for a block's last scale."""
    if path[-2:] == (LAST, "scale"):
        return 0.0
    return math.sqrt(2 / math.prod(shape[:-1])) if len(shape) == 4 else None
