"""AlexNet (Krizhevsky 2012): two towers that exchange maps before some layers.

A tower has half of each layer's maps. Here both towers are on one device; in `towers`
each tower is on one of two devices.
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
from dml.models.networks.classifier import entropy, measures
from dml.types import BadInput, Batch, Layer, Model, Params

TOWERS = 2
PUBLISHED = (3, 6, 7, 8)  # layers that read the maps of both towers

# Convolutions: maps in units of 32 (96, 256, 384, 384, 256 maps), side of the filters
# (0 for that of Sizes), whether normalised, whether pooled.
CONVOLUTIONS = ((3, 0, 1, 1), (8, 5, 1, 1), (12, 3, 0, 0), (12, 3, 0, 0), (8, 3, 0, 1))
CONNECTED = (128, 128)  # units of 32 of the two hidden connected layers

# Local response normalisation, section 3.3.
NEAR, OFFSET, ALPHA, BETA = 5, 2.0, 1e-4, 0.75


class Sizes(NamedTuple):
    """Sizes of the network; those of AlexNet are Sizes(32, 11, 4).

    Attributes:
      unit: Number of maps in a unit.
      kernel: Height and width of the first filters.
      stride: Stride of the first filters.
    """

    unit: int = 4
    kernel: int = 7
    stride: int = 2


SMALL = Sizes()  # for images of 28 x 28 or 32 x 32


class Filters(NamedTuple):
    """One layer of both towers; a connected layer has filters of a map's size.

    Attributes:
      sees: Shape of the input maps of both towers, HxWxC.
      kernel: Height and width of the filters.
      makes: Number of output maps.
      crosses: Whether each tower reads the maps of both; otherwise it reads its own
        half.
      stride: Stride of the filters.
      padding: Padding, as in jax.lax.
      rectified: Whether a relu follows.
      normalised: Whether local response normalisation follows.
      pooled: Whether max pooling follows.
    """

    sees: tuple[int, int, int]
    kernel: tuple[int, int]
    makes: int
    crosses: bool
    stride: int = 1
    padding: str = "SAME"
    rectified: bool = True
    normalised: bool = False
    pooled: bool = False


class Place(NamedTuple):
    """The device of a network: both towers on one device, or one on each of two.

    Attributes:
      towers: Number of towers on this device.
      meet: Maps of this device's towers -> maps of both towers.
      alike: Scores of this device's towers -> scores of both, for equal losses.
    """

    towers: int
    meet: Callable[[jax.Array], jax.Array]
    alike: Callable[[jax.Array], jax.Array]


def plan(
    shape: tuple[int, ...], classes: int, sizes: Sizes, crossings: Sequence[int]
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
    layers, sees = [], (shape[0], shape[1], shape[2])
    for number, (maps, side, normalised, pooled) in enumerate(CONVOLUTIONS, 1):
        side, stride = (side, 1) if side else (sizes.kernel, sizes.stride)
        layers.append(
            Filters(
                sees,
                (side, side),
                makes=maps * sizes.unit,
                crosses=number == 1 or number in crossings,
                stride=stride,
                normalised=bool(normalised),
                pooled=bool(pooled),
            )
        )
        shrink = stride * (2 if pooled else 1)
        sees = (-(-sees[0] // shrink), -(-sees[1] // shrink), maps * sizes.unit)
    for number, makes in enumerate([m * sizes.unit for m in CONNECTED] + [classes], 6):
        layers.append(
            Filters(
                sees,
                sees[:2],
                makes=makes,
                crosses=number in crossings,
                padding="VALID",
            )
        )
        sees = (1, 1, makes)
    return [*layers[:-1], layers[-1]._replace(rectified=False)]


def alexnet(
    shape: tuple[int, ...],
    classes: int,
    sizes: Sizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Return the network with both towers on one device; without dropout.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      sizes: Sizes of the network.
      crossings: Numbers of the layers, 2 to 8, that read the maps of both towers.
    """
    same = Place(TOWERS, lambda maps: maps, lambda scores: scores)
    return network(plan(shape, classes, sizes, crossings), same)


def network(layers: Sequence[Filters], place: Place) -> Model:
    """Return the model of these layers with the towers of a Place."""
    names = [f"layer_{number}" for number in range(1, len(layers) + 1)]

    def init(key: jax.Array) -> Params:
        shapes = {}
        for name, filters in zip(names, layers, strict=True):
            maps = filters.sees[2] // (1 if filters.crosses else TOWERS)
            kernel = (*filters.kernel, maps, filters.makes)
            shapes[name] = {"kernel": kernel, "bias": (filters.makes,)}
        return initial(shapes, key, spread)

    def layer(name: str, filters: Filters) -> Layer:
        def apply(params: Mapping[str, Params], inputs: Any, batch: Batch) -> Any:
            first = inputs is None  # every device has the full image
            maps_BxHxWxC = jnp.asarray(batch.inputs) if first else inputs
            if filters.crosses and not first:
                maps_BxHxWxC = place.meet(maps_BxHxWxC)
            maps_BxHxWxC = apply_filters(filters, params[name], maps_BxHxWxC, place)
            if name != names[-1]:
                return maps_BxHxWxC
            return place.alike(maps_BxHxWxC.reshape(len(maps_BxHxWxC), -1))

        return Layer((name,), apply)

    parts = [layer(*item) for item in zip(names, layers, strict=True)]
    scored = compose(parts)
    loss = Layer((), lambda params, scores, batch: entropy(scores, batch.targets))

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        return measures(scored(params, batch), batch.targets)

    def scores(params: Params, inputs: Any) -> Any:
        return scored(params, Batch(inputs, None))

    return layered([*parts, loss], init, metrics, scores)


def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return He's standard deviation of a kernel, which preserves scales after relu."""
    return math.sqrt(2 / math.prod(shape[:-1])) if len(shape) > 1 else None


def apply_filters(
    filters: Filters, params: Params, maps_BxHxWxC: jax.Array, place: Place
) -> jax.Array:
    """Return a layer's maps: convolved, rectified, normalised and pooled.

    Args:
      filters: The layer.
      params: Its kernel and bias.
      maps_BxHxWxC: Input maps.
      place: Where the towers are.
    """
    halves = 1 if filters.crosses else place.towers
    # Equal to feature_group_count=2, which is slow in XLA on CPUs.
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
        parts = jnp.split(maps_BxHxWxC, place.towers, axis=-1)
        maps_BxHxWxC = jnp.concatenate(
            [local_response(part) for part in parts], axis=-1
        )
    if filters.pooled:  # overlapping, section 3.4
        maps_BxHxWxC = linen.max_pool(maps_BxHxWxC, (3, 3), (2, 2), "SAME")
    return maps_BxHxWxC


def local_response(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Divide each number by a power of the sum of squares in neighbouring maps."""
    number = np.arange(maps_BxHxWxC.shape[-1])
    is_near_CxC = abs(number[:, None] - number) <= NEAR // 2
    sums_BxHxWxC = maps_BxHxWxC**2 @ is_near_CxC.astype(np.float32)
    return maps_BxHxWxC / (OFFSET + ALPHA * sums_BxHxWxC) ** BETA
