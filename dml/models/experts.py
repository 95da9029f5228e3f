"""GRADIENT: a mixture of experts (GShard, Lepikhin 2020; Switch, Fedus 2021).

    rows ─ router ─┬─ expert 0 ─┬─ · gates, summed ─→ what is added to the rows
                   └─ expert 1 ─┘

Each row goes to the few experts that its router finds best, as long as they have room.
Params and rows come in, what the experts make of them and Measures go out.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dml.models.initial import initial
from dml.types import BadInput, Params


class Mixture(NamedTuple):
    """What a mixture is made of: Mixture(experts=64, width=768, hidden=3072)."""

    experts: int
    width: int
    hidden: int  # of each expert's feed-forward
    choices: int = 1  # experts a row goes to: Switch's 1, GShard's 2
    factor: float = 1.25  # room, over what equal loads would take


class Routes(NamedTuple):
    """Where the rows of a group go; slots from the capacity on are dropped."""

    experts_RxK: jax.Array  # K choices, best first
    slots_RxK: jax.Array  # places among all that go to that expert: 0, 1, 2, ...
    gates_RxK: jax.Array
    balance: jax.Array


class Measures(NamedTuple):
    """What a mixture saw; over devices: the sum, the sum and the mean."""

    dropped: jax.Array  # choices that found no room
    load_E: jax.Array  # choices by expert, before any is dropped
    balance: jax.Array  # 1 where loads are equal; add 0.01 of it to the loss


def start(mixture: Mixture, key: jax.Array) -> Params:
    """Draw params; biases are 0."""
    experts, width, hidden, *_ = mixture
    shapes = {
        "router": {"kernel": (width, experts)},
        "up": {"kernel": (experts, width, hidden), "bias": (experts, hidden)},
        "down": {"kernel": (experts, hidden, width), "bias": (experts, width)},
    }
    leaves = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )
    # by what one expert's number sums, not by all experts'
    return initial(
        leaves,
        key,
        lambda path, shape: None if path[-1] == "bias" else 1 / math.sqrt(shape[-2]),
    )


def specs(axis: str = "expert") -> dict[str, Any]:
    """Return how params lie over the axis: experts cut, the router whole.

    Of the router each device finds the gradient of its own rows: a part of the sum.
    """
    cut = {"kernel": PartitionSpec(axis), "bias": PartitionSpec(axis)}
    return {"router": {"kernel": PartitionSpec()}, "up": cut, "down": cut}


def dense_experts(
    params: Params, rows_RxD: jax.Array, mixture: Mixture, groups: int = 1
) -> tuple[jax.Array, Measures]:
    """Return mixed_RxD with all experts on one device: the reference of `experts`.

    Room is counted within each of so many groups of consecutive rows, as experts over
    an axis of that size count it.
    """
    room = capacity(mixture, len(rows_RxD), groups)
    rows_GxRxD = rows_RxD.reshape(groups, -1, rows_RxD.shape[1])
    ways = jax.vmap(lambda some_RxD: routed(params, some_RxD, mixture))(rows_GxRxD)
    slots_GxExCxD = jax.vmap(
        lambda way, some_RxD: dispatched(way, some_RxD, mixture.experts, room)
    )(ways, rows_GxRxD)
    slots_ExGxCxD = slots_GxExCxD.swapaxes(0, 1)
    slots_ExNxD = slots_ExGxCxD.reshape(mixture.experts, groups * room, -1)
    made_ExGxCxD = fed(params, slots_ExNxD).reshape(slots_ExGxCxD.shape)
    mixed_GxRxD = jax.vmap(combined)(ways, made_ExGxCxD.swapaxes(0, 1))
    seen = jax.vmap(lambda way: measured(way, mixture.experts, room))(ways)
    measures = Measures(
        seen.dropped.sum(), seen.load_E.sum(axis=0), seen.balance.mean()
    )
    return mixed_GxRxD.reshape(rows_RxD.shape), measures


def experts(
    params: Params, rows_RxD: jax.Array, mixture: Mixture, axis: str = "expert"
) -> tuple[jax.Array, Measures]:
    """Return mixed_RxD of a device's rows, inside shard_map; params lie as specs says.

                   device 0         device 1
        rows       a b c d          e f g h      each device routes its own
        slots   0: a c  1: b -   0: f -  1: e g  room for 2: d and h are dropped
                     └──────╲───────╱──────┘     all-to-all: by expert
        experts    0: a c f -       1: b - e g
                     ┌──────╱───────╲──────┐     all-to-all: back
        mixed      a b c 0          e f g 0      · gates, summed over choices

    Equals dense_experts with groups = size; measures are those of the device's rows.
    Gradients are of the sum of all devices' losses: let each add its share.
    2 all-to-alls forward, 2 backward, each of E·C·D words a device, about factor ·
    choices · R · D, of which (p-1)/p change devices.
    """
    size = jax.lax.axis_size(axis)
    if mixture.experts % size:
        raise BadInput(
            f"expected experts that {size} devices of axis {axis!r} share equally, got "
            f"{mixture.experts}; pass a multiple of {size}"
        )
    room = capacity(mixture, len(rows_RxD))
    way = routed(params, rows_RxD, mixture)
    slots_ExCxD = dispatched(way, rows_RxD, mixture.experts, room)
    # E experts' C slots of one device -> one device's experts' slots of all, by device
    slots_PxNxD = jax.lax.all_to_all(slots_ExCxD, axis, 0, 1, tiled=True)
    made_PxNxD = fed(params, slots_PxNxD)
    made_ExCxD = jax.lax.all_to_all(made_PxNxD, axis, 1, 0, tiled=True)
    return combined(way, made_ExCxD), measured(way, mixture.experts, room)


def capacity(mixture: Mixture, rows: int, groups: int = 1) -> int:
    """Return how many rows of a group an expert has room for (Fedus 2021, eq. 3)."""
    count, choices, factor = mixture.experts, mixture.choices, mixture.factor
    if not 1 <= choices <= count:
        raise BadInput(
            f"expected choices of 1 to {count} experts, got {choices}; pass fewer "
            "choices, or more experts"
        )
    if not factor > 0:
        raise BadInput(
            f"expected a capacity factor above 0, got {factor}; pass 1 for equal loads"
        )
    if rows < 1 or groups < 1 or rows % groups:
        raise BadInput(
            f"expected rows that {groups} groups share equally, got {rows}; pass a "
            f"multiple of {groups}"
        )
    # no row goes to an expert twice: more room than rows would stay empty
    return min(rows // groups, math.ceil(factor * choices * (rows // groups) / count))


def routed(params: Params, rows_RxD: jax.Array, mixture: Mixture) -> Routes:
    """Return where rows go; in float32, as softmax is taken (Fedus 2021, 2.4)."""
    return routes(
        jnp.dot(
            rows_RxD.astype(jnp.float32),
            params["router"]["kernel"].astype(jnp.float32),
        ),
        mixture.choices,
    )


def routes(scores_RxE: jax.Array, choices: int) -> Routes:
    """Return where rows with these scores go."""
    rows, count = scores_RxE.shape
    chances_RxE = jax.nn.softmax(scores_RxE)
    gates_RxK, experts_RxK = jax.lax.top_k(chances_RxE, choices)
    if choices > 1:  # of one alone it would be 1, which teaches the router nothing
        gates_RxK = gates_RxK / gates_RxK.sum(axis=1, keepdims=True)
    # order matters: all first choices find room before any second one (GShard, alg. 1)
    hits_NxE = jax.nn.one_hot(experts_RxK.T.reshape(-1), count, dtype=jnp.int32)
    slots_N = (hits_NxE * (hits_NxE.cumsum(axis=0) - 1)).sum(axis=1)
    # Fedus 2021, eq. 4, without its weight: chances pass a gradient, loads do not
    shares_E = hits_NxE.astype(jnp.float32).mean(axis=0)
    balance = count * jnp.dot(shares_E, chances_RxE.mean(axis=0))
    return Routes(experts_RxK, slots_N.reshape(choices, rows).T, gates_RxK, balance)


def dispatched(way: Routes, rows_RxD: jax.Array, count: int, room: int) -> jax.Array:
    """Return slots_ExCxD: the rows that each expert has room for, then zeros."""
    empty_ExCxD = jnp.zeros((count, room, rows_RxD.shape[1]), rows_RxD.dtype)
    rows_RxKxD = jnp.broadcast_to(
        rows_RxD[:, None], (*way.slots_RxK.shape, rows_RxD.shape[1])
    )
    # No slot is taken twice. An index out of bounds, in JAX, is where to drop a row.
    return empty_ExCxD.at[way.experts_RxK, way.slots_RxK].add(
        rows_RxKxD, mode="drop", unique_indices=True
    )


def fed(params: Mapping[str, Any], slots_ExNxD: jax.Array) -> jax.Array:
    """Return what each expert makes of the rows in its slots."""
    up, down = jax.tree.map(
        lambda leaf: leaf.astype(slots_ExNxD.dtype), (params["up"], params["down"])
    )
    hidden_ExNxF = jnp.einsum("end,edf->enf", slots_ExNxD, up["kernel"])
    hidden_ExNxF = jax.nn.gelu(hidden_ExNxF + up["bias"][:, None], approximate=True)
    made_ExNxD = jnp.einsum("enf,efd->end", hidden_ExNxF, down["kernel"])
    return made_ExNxD + down["bias"][:, None]


def combined(way: Routes, made_ExCxD: jax.Array) -> jax.Array:
    """Return mixed_RxD: what experts made of each row, by gates; 0 where dropped."""
    made_RxKxD = made_ExCxD.at[way.experts_RxK, way.slots_RxK].get(
        mode="fill", fill_value=0, unique_indices=True
    )
    gates_RxKx1 = way.gates_RxK[:, :, None].astype(made_ExCxD.dtype)
    return (made_RxKxD * gates_RxKx1).sum(axis=1)


def measured(way: Routes, count: int, room: int) -> Measures:
    """Return what a group's routes say."""
    load_E = jnp.bincount(way.experts_RxK.reshape(-1), length=count)
    return Measures((way.slots_RxK >= room).sum(), load_E, way.balance)
