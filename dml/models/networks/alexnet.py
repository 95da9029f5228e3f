"""AlexNet (Krizhevsky 2012): two towers that exchange feature maps before some layers.

A tower has half of the feature maps (channels) of each layer. In this module both
towers are on one device; in `towers` each of two devices has one tower.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from dml.models.initial import initial
from dml.models.layered import compose, layered
from dml.models.networks.classifier import mean_cross_entropy, measures
from dml.types import BadInput, Batch, Layer, Model, Params, identity

TOWERS = 2
PUBLISHED = (3, 6, 7, 8)  # layers that read the maps of both towers

# Of each convolution: number of maps, in multiples of `unit` (32 in AlexNet: 96, 256,
# 384, 384 and 256 maps); side of the filters (0: `kernel`); whether local response
# normalisation follows; whether pooling follows. See AlexNetSizes.
CONVOLUTIONS = ((3, 0, 1, 1), (8, 5, 1, 1), (12, 3, 0, 0), (12, 3, 0, 0), (8, 3, 0, 1))
CONNECTED = (128, 128)  # widths of hidden connected layers, in multiples of `unit`

# Local response normalisation, section 3.3: n, k, alpha and beta.
NEIGHBOURS, OFFSET, ALPHA, BETA = 5, 2.0, 1e-4, 0.75


class AlexNetSizes(NamedTuple):
    """Sizes of the network; AlexNet has AlexNetSizes(32, 11, 4).

    Attributes:
      unit: Number that is multiplied by the widths in CONVOLUTIONS and CONNECTED.
      kernel: Height and width of the first filters.
      stride: Stride of the first filters.
    """

    unit: int = 4
    kernel: int = 7
    stride: int = 2


SMALL = AlexNetSizes()  # for images of 28 x 28 or 32 x 32


class Filters(NamedTuple):
    """One layer of both towers. Filters of a connected layer are as large as a map.

    Attributes:
      input_shape: Shape of the input maps of both towers together, HxWxC.
      kernel: Height and width of the filters.
      outputs: Number of output maps of both towers together.
      reads_both: Whether each tower reads the maps of both towers; otherwise a tower
        reads its own half.
      stride: Stride of the filters.
      padding: Padding, as in jax.lax.
      rectified: Whether a relu follows.
      normalised: Whether local response normalisation follows.
      pooled: Whether max pooling follows.
    """

    input_shape: tuple[int, int, int]
    kernel: tuple[int, int]
    outputs: int
    reads_both: bool
    stride: int = 1
    padding: str = "SAME"
    rectified: bool = True
    normalised: bool = False
    pooled: bool = False


class Placement(NamedTuple):
    """The towers of a device: both, or one on each of two devices.

    Attributes:
      towers: Number of towers on this device.
      gather_maps: Maps of this device's towers -> maps of both towers.
      gather_scores: Scores of this device's towers -> scores of both towers. The loss
        is then equal on both devices.
    """

    towers: int
    gather_maps: Callable[[jax.Array], jax.Array]
    gather_scores: Callable[[jax.Array], jax.Array]


def network_layers(
    shape: tuple[int, ...], classes: int, sizes: AlexNetSizes, crossings: Sequence[int]
) -> list[Filters]:
    """Return the eight layers for images of a shape HxWxC.

    Args:
      shape: Shape of an image.
      classes: Number of classes.
      sizes: Sizes of the network.
      crossings: Numbers of the layers, 2 to 8, that read the maps of both towers.
    """
    if len(shape) != 3 or min(*shape, *sizes) < 1:
        raise BadInput(
            f"expected images HxWxC and sizes of 1 or more, got {shape} and {sizes}; "
            "pass inputs BxHxWxC"
        )
    if sizes.unit % TOWERS or classes % TOWERS:
        raise BadInput(
            f"expected multiples of {TOWERS}, the number of towers, got "
            f"unit={sizes.unit} and {classes=}; pass multiples of {TOWERS}"
        )
    if not set(crossings) <= set(range(2, 9)):
        raise BadInput(
            f"expected crossings at layers 2 to 8, got {tuple(crossings)}; layer 1 "
            "always reads the full image"
        )
    layers = []
    input_shape = (shape[0], shape[1], shape[2])
    for number, (maps, side, normalised, pooled) in enumerate(CONVOLUTIONS, 1):
        side, stride = (side, 1) if side else (sizes.kernel, sizes.stride)
        layers.append(
            Filters(
                input_shape,
                (side, side),
                outputs=maps * sizes.unit,
                reads_both=number == 1 or number in crossings,
                stride=stride,
                normalised=bool(normalised),
                pooled=bool(pooled),
            )
        )
        shrink = stride * (2 if pooled else 1)
        input_shape = (
            -(-input_shape[0] // shrink),
            -(-input_shape[1] // shrink),
            maps * sizes.unit,
        )
    widths = [multiple * sizes.unit for multiple in CONNECTED] + [classes]
    for number, outputs in enumerate(widths, 6):
        layers.append(
            Filters(
                input_shape,
                input_shape[:2],
                outputs=outputs,
                reads_both=number in crossings,
                padding="VALID",
            )
        )
        input_shape = (1, 1, outputs)
    return [*layers[:-1], layers[-1]._replace(rectified=False)]


def alexnet(
    shape: tuple[int, ...],
    classes: int,
    sizes: AlexNetSizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Return the network with both towers on one device; without dropout.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      sizes: Sizes of the network.
      crossings: Numbers of the layers, 2 to 8, that read the maps of both towers.
    """
    one_device = Placement(TOWERS, identity, identity)
    return network(network_layers(shape, classes, sizes, crossings), one_device)


def network(layers: Sequence[Filters], placement: Placement) -> Model:
    """Return the model of these layers on one device of a Placement."""
    names = [f"layer_{number}" for number in range(1, len(layers) + 1)]

    def init(key: jax.Array) -> Params:
        shapes = {}
        for name, filters in zip(names, layers, strict=True):
            maps = filters.input_shape[2] // (1 if filters.reads_both else TOWERS)
            kernel = (*filters.kernel, maps, filters.outputs)
            shapes[name] = {"kernel": kernel, "bias": (filters.outputs,)}
        return initial(shapes, key, spread)

    def layer(name: str, filters: Filters) -> Layer:
        def apply(params: Mapping[str, Params], inputs: Any, batch: Batch) -> Any:
            if inputs is None:  # the first layer; every device has the full image
                maps_BxHxWxC = jnp.asarray(batch.inputs)
            elif filters.reads_both:
                maps_BxHxWxC = placement.gather_maps(inputs)
            else:
                maps_BxHxWxC = inputs
            maps_BxHxWxC = apply_filters(filters, params[name], maps_BxHxWxC, placement)
            if name != names[-1]:
                return maps_BxHxWxC
            return placement.gather_scores(maps_BxHxWxC.reshape(len(maps_BxHxWxC), -1))

        return Layer((name,), apply)

    parts = [layer(*item) for item in zip(names, layers, strict=True)]
    logits = compose(parts)
    loss = Layer(
        (), lambda params, scores, batch: mean_cross_entropy(scores, batch.targets)
    )

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        return measures(logits(params, batch), batch.targets)

    def scores(params: Params, inputs: Any) -> Any:
        return logits(params, Batch(inputs, None))

    return layered([*parts, loss], init, metrics, scores)


def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return He's standard deviation of a kernel, for layers followed by a relu."""
    return math.sqrt(2 / math.prod(shape[:-1])) if len(shape) > 1 else None


def apply_filters(
    filters: Filters, params: Params, maps_BxHxWxC: jax.Array, placement: Placement
) -> jax.Array:
    """Return the output maps of a layer for the towers of one device.

    Args:
      filters: The layer.
      params: Kernel and bias of the layer.
      maps_BxHxWxC: Input maps.
      placement: The towers of this device.
    """
    halves = 1 if filters.reads_both else placement.towers
    # Equal to feature_group_count=halves, which is slow in XLA on CPUs.
    convolved = [
        jax.lax.conv_general_dilated(
            part_BxHxWxC,
            kernel_HxWxIxO,
            window_strides=(filters.stride, filters.stride),
            padding=filters.padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        for part_BxHxWxC, kernel_HxWxIxO in zip(
            jnp.split(maps_BxHxWxC, halves, axis=-1),
            jnp.split(params["kernel"], halves, axis=-1),
            strict=True,
        )
    ]
    maps_BxHxWxC = jnp.concatenate(convolved, axis=-1) + params["bias"]
    if filters.rectified:
        maps_BxHxWxC = jax.nn.relu(maps_BxHxWxC)
    if filters.normalised:
        parts = jnp.split(maps_BxHxWxC, placement.towers, axis=-1)
        maps_BxHxWxC = jnp.concatenate(
            [local_response(part) for part in parts], axis=-1
        )
    if filters.pooled:  # overlapping, section 3.4
        maps_BxHxWxC = linen.max_pool(maps_BxHxWxC, (3, 3), (2, 2), "SAME")
    return maps_BxHxWxC


def local_response(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Divide each element by a power of the sum of squares in neighbouring maps."""
    channel = np.arange(maps_BxHxWxC.shape[-1])
    is_near_CxC = abs(channel[:, None] - channel) <= NEIGHBOURS // 2
    sums_BxHxWxC = maps_BxHxWxC**2 @ is_near_CxC.astype(np.float32)
    return maps_BxHxWxC / (OFFSET + ALPHA * sums_BxHxWxC) ** BETA
