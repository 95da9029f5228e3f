"""AlexNet (Krizhevsky 2012), two towers that see each other at some layers.

A tower has half of each layer's maps. Here both towers are on one device; in `towers`
each is on its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from dml.models.initial import initial
from dml.models.layered import composed, layered
from dml.models.networks.classifier import entropy, measures
from dml.types import BadInput, Batch, Layer, Model, Params

TOWERS = 2
PUBLISHED = (3, 6, 7, 8)  # layers that see the maps of both towers

# AlexNet's maps in units of 32, sides of filters, which are normalised and pooled:
# 96, 256, 384, 384, 256 maps, then 4096 and 4096 numbers, then the classes.
CONVOLUTIONS = ((3, 0, 1, 1), (8, 5, 1, 1), (12, 3, 0, 0), (12, 3, 0, 0), (8, 3, 0, 1))
CONNECTED = (128, 128)

# Local response normalisation, section 3.3.
NEAR, OFFSET, ALPHA, BETA = 5, 2.0, 1e-4, 0.75


class Sizes(NamedTuple):
    """AlexNet has units of 32 maps and first filters of 11 x 11 at a stride of 4."""

    unit: int = 4
    kernel: int = 7
    stride: int = 2


SMALL = Sizes()  # for images of 28 x 28 or 32 x 32


class Filters(NamedTuple):
    """One layer, of both towers together. Connected ones have filters of a map's size.

    A layer that crosses sees all maps, else each tower's half sees that tower's half.
    """

    sees: tuple[int, int, int]  # maps, HxWxC
    kernel: tuple[int, int]
    makes: int  # maps
    crosses: bool
    stride: int = 1
    padding: str = "SAME"
    rectified: bool = True
    normalised: bool = False
    pooled: bool = False


class Place(NamedTuple):
    """The location of the network: both towers on one device, or one on each of two."""

    towers: int  # on this device
    meet: Callable[[jax.Array], jax.Array]  # maps of this device's towers -> of both
    alike: Callable[[jax.Array], jax.Array]  # scores likewise, for equal losses


def plan(
    shape: tuple[int, ...], classes: int, sizes: Sizes, crossings: Sequence[int]
) -> list[Filters]:
    """Return the eight layers for images of that shape, HxWxC."""
    if len(shape) != 3 or min(*shape, *sizes) < 1:
        raise BadInput(
            f"expected images HxWxC and sizes of 1 at least, got {shape} and {sizes}; "
            "pass inputs BxHxWxC"
        )
    if sizes.unit % TOWERS or classes % TOWERS:
        raise BadInput(
            f"expected {TOWERS} equal towers, got unit={sizes.unit} and {classes=}; "
            f"pass multiples of {TOWERS}"
        )
    if not set(crossings) <= set(range(2, 9)):
        raise BadInput(
            f"expected crossings at layers 2 to 8, got {tuple(crossings)}; layer 1 "
            "sees the whole image always"
        )
    found, sees = [], (shape[0], shape[1], shape[2])
    for number, (maps, side, normalised, pooled) in enumerate(CONVOLUTIONS, 1):
        side, stride = (side, 1) if side else (sizes.kernel, sizes.stride)
        found.append(
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
        found.append(Filters(*(sees, sees[:2], makes, number in crossings, 1, "VALID")))
        sees = (1, 1, makes)
    return [*found[:-1], found[-1]._replace(rectified=False)]


def alexnet(
    shape: tuple[int, ...],
    classes: int,
    sizes: Sizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Return the reference, both towers on one device; without dropout."""
    same = Place(TOWERS, lambda maps: maps, lambda scores: scores)
    return network(plan(shape, classes, sizes, crossings), same)


def network(layers: Sequence[Filters], place: Place) -> Model:
    """Return the model whose layers are in that place."""
    names = [f"layer_{number}" for number in range(1, len(layers) + 1)]

    def init(key: jax.Array) -> Params:
        shapes = {}
        for name, one in zip(names, layers, strict=True):
            seen = one.sees[2] // (1 if one.crosses else TOWERS)
            kernel = (*one.kernel, seen, one.makes)
            shapes[name] = {"kernel": kernel, "bias": (one.makes,)}
        return initial(shapes, key, spread)

    def layer(name: str, one: Filters) -> Layer:
        def apply(params: Mapping[str, Params], given: Any, batch: Batch) -> Any:
            first = given is None  # both devices have the image
            maps_BxHxWxC = jnp.asarray(batch.inputs) if first else given
            if one.crosses and not first:
                maps_BxHxWxC = place.meet(maps_BxHxWxC)
            found_BxHxWxC = filtered(one, params[name], maps_BxHxWxC, place)
            if name != names[-1]:
                return found_BxHxWxC
            return place.alike(found_BxHxWxC.reshape(len(found_BxHxWxC), -1))

        return Layer((name,), apply)

    parts = [layer(name, one) for name, one in zip(names, layers, strict=True)]
    scored = composed(parts)
    lost = Layer((), lambda params, given, batch: entropy(given, batch.targets))

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        return measures(scored(params, batch), batch.targets)

    def scores(params: Params, inputs: Any) -> Any:
        return scored(params, Batch(inputs, None))

    return layered([*parts, lost], init, metrics, scores)


def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return the spread of a leaf: rectified maps keep their size (He 2015)."""
    return math.sqrt(2 / math.prod(shape[:-1])) if len(shape) > 1 else None


def filtered(
    one: Filters, params: Params, maps_BxHxWxC: jax.Array, place: Place
) -> jax.Array:
    """Return the maps of a layer: convolved, rectified, normalised and pooled."""
    halves = 1 if one.crosses else place.towers
    # not feature_group_count=2, the same in one call: XLA's is slow on CPUs
    made = [
        jax.lax.conv_general_dilated(
            some_BxHxWxC,
            kernel_HxWxIxO,
            window_strides=(one.stride, one.stride),
            padding=one.padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        for some_BxHxWxC, kernel_HxWxIxO in zip(
            jnp.split(maps_BxHxWxC, halves, axis=-1),
            jnp.split(params["kernel"], halves, axis=-1),
            strict=True,
        )
    ]
    maps_BxHxWxC = jnp.concatenate(made, axis=-1) + params["bias"]
    if one.rectified:
        maps_BxHxWxC = jax.nn.relu(maps_BxHxWxC)
    if one.normalised:
        parts = jnp.split(maps_BxHxWxC, place.towers, axis=-1)
        maps_BxHxWxC = jnp.concatenate([normalised(part) for part in parts], axis=-1)
    if one.pooled:  # overlapping, section 3.4
        maps_BxHxWxC = linen.max_pool(maps_BxHxWxC, (3, 3), (2, 2), "SAME")
    return maps_BxHxWxC


def normalised(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Divide each number by a power of the squares in the neighbouring maps."""
    place = np.arange(maps_BxHxWxC.shape[-1])
    beside_CxC = abs(place[:, None] - place) <= NEAR // 2
    sums_BxHxWxC = maps_BxHxWxC**2 @ beside_CxC.astype(np.float32)
    return maps_BxHxWxC / (OFFSET + ALPHA * sums_BxHxWxC) ** BETA
