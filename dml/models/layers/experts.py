"""A mixture of experts (GShard, Lepikhin 2020; Switch, Fedus 2021).

    rows ─ router ─┬─ expert 0 ─┬─ · gates, summed ─→ added to the rows
                   └─ expert 1 ─┘

Each row goes to the experts with the highest scores of its router, up to the capacity
of each expert. Rows are routed in groups, such as the tokens of one example: a row's
experts do not depend on other groups, nor on the devices that process them.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dml.models.initial import initial
from dml.models.layers.partition import AXIS, Partition, check_divisible, offset
from dml.types import BadInput, Params
from dml.wire.mesh.conjugate import sum_over_devices


class Mixture(NamedTuple):
    """The sizes of a mixture: Mixture(experts=64, width=768, hidden=3072).

    Attributes:
      experts: Number of experts.
      width: Width of the rows.
      hidden: Width of an expert's hidden layer.
      choices: Number of experts of a row: 1 in Switch, 2 in GShard.
      factor: Capacity of an expert relative to equal loads.
      weight: Weight of the balance in the loss (Fedus 2021, 2.2).
    """

    experts: int
    width: int
    hidden: int
    choices: int = 1
    factor: float = 1.25
    weight: float = 0.01


class Routes(NamedTuple):
    """The experts of a group's rows; choices beyond the capacity are dropped."""

    experts_RxK: jax.Array  # K choices of each row, best first
    slots_RxK: jax.Array  # number of the row in the expert's queue: 0, 1, 2, ...
    gates_RxK: jax.Array  # weight of the expert's output
    balance: jax.Array  # auxiliary loss; 1 where loads are equal


class Measures(NamedTuple):
    """Measures of the routes of a device's groups."""

    dropped: jax.Array  # number of choices above the capacity
    load_E: jax.Array  # number of choices of each expert, with dropped choices
    balance: jax.Array  # mean over groups; 1 where loads are equal


class Routing(NamedTuple):
    """Sums over the blocks so far of measures of the routes."""

    balance: Any  # auxiliary loss; 1 in each block where loads are equal
    dropped: Any  # share of dropped choices


def shapes(mixture: Mixture, size: int = 1) -> Any:
    """Return the shapes of the params of one of `size` devices."""
    _, width, hidden, *_ = mixture
    each = mixture.experts // size
    shape_of = {
        "router": {"kernel": (width, mixture.experts)},
        "up": {"kernel": (each, width, hidden), "bias": (each, hidden)},
        "down": {"kernel": (each, hidden, width), "bias": (each, width)},
    }
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        shape_of,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def start(mixture: Mixture, key: jax.Array) -> Params:
    """Draw params; biases are 0."""
    # the standard deviation depends on the inputs of one expert, not of all experts
    return initial(
        shapes(mixture),
        key,
        lambda path, shape: None if path[-1] == "bias" else 1 / math.sqrt(shape[-2]),
    )


def specs(axis: str = "expert") -> dict[str, Any]:
    """Return PartitionSpecs of params: experts sharded, router replicated.

    The router's gradient on a device is that of the device's rows: sum it over devices.
    """
    cut = {"kernel": PartitionSpec(axis), "bias": PartitionSpec(axis)}
    return {"router": {"kernel": PartitionSpec()}, "up": cut, "down": cut}


def experts(
    params: Params, rows_GxRxD: jax.Array, mixture: Mixture, axis: str | None = None
) -> tuple[jax.Array, Measures]:
    """Return mixed_GxRxD of groups of rows, and measures of their routes.

    Without an axis one device has all experts. With an axis, inside shard_map, params
    are sharded by `specs`, and each device routes its groups:

                   device 0         device 1
        rows       a b c d          e f g h      a group of each device
        slots   0: a c  1: b -   0: f -  1: e g  capacity 2: d and h are dropped
                     └──────╲───────╱──────┘     all-to-all: by expert
        experts    0: a c f -       1: b - e g
                     ┌──────╱───────╲──────┐     all-to-all: back
        mixed      a b c 0          e f g 0      · gates, summed over choices

    Gradients are those of the sum of all devices' losses; divide each device's loss by
    p for a mean. 2 all-to-alls forward, 2 backward, each of G·E·C·D words of a device,
    about factor · choices · G · R · D, of which (p-1)/p go to other devices.

    Args:
      params: Params of the router and of this device's experts.
      rows_GxRxD: Groups of rows.
      mixture: Sizes of the mixture.
      axis: Axis over which experts are sharded; None: one device has all.
    """
    count, (groups, rows, width) = mixture.experts, rows_GxRxD.shape
    limit = capacity(mixture, rows)
    if axis and count % jax.lax.axis_size(axis):
        size = jax.lax.axis_size(axis)
        raise BadInput(
            f"expected experts divisible by {size}, the devices of axis {axis!r}, got "
            f"{count}; pass a multiple of {size}"
        )
    routes_G = jax.vmap(lambda rows_RxD: routed(params, rows_RxD, mixture))(rows_GxRxD)
    slots_GxExCxD = jax.vmap(
        lambda group, rows_RxD: dispatched(group, rows_RxD, count, limit)
    )(routes_G, rows_GxRxD)
    slots_ExNxD = slots_GxExCxD.swapaxes(0, 1).reshape(count, groups * limit, width)
    if axis:  # slots of one device for all experts -> slots of all devices for its own
        slots_ExNxD = jax.lax.all_to_all(slots_ExNxD, axis, 0, 1, tiled=True)
    made_ExNxD = feed_forward(params, slots_ExNxD)
    if axis:
        made_ExNxD = jax.lax.all_to_all(made_ExNxD, axis, 1, 0, tiled=True)
    made_ExGxCxD = made_ExNxD.reshape(count, groups, limit, width)
    mixed_GxRxD = jax.vmap(combined)(routes_G, made_ExGxCxD.swapaxes(0, 1))
    load_E = jnp.bincount(routes_G.experts_RxK.reshape(-1), length=count)
    dropped = (routes_G.slots_RxK >= limit).sum()
    return mixed_GxRxD, Measures(dropped, load_E, routes_G.balance.mean())


def capacity(mixture: Mixture, rows: int) -> int:
    """Return the greatest number of a group's rows per expert (Fedus 2021, eq. 3)."""
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
    # no row goes to an expert twice: a larger capacity would be unused
    return min(rows, math.ceil(factor * choices * rows / count))


def routed(params: Params, rows_RxD: jax.Array, mixture: Mixture) -> Routes:
    """Return the routes of rows, computed in float32 (Fedus 2021, 2.4)."""
    return routes(
        jnp.dot(
            rows_RxD.astype(jnp.float32),
            params["router"]["kernel"].astype(jnp.float32),
        ),
        mixture.choices,
    )


def routes(scores_RxE: jax.Array, choices: int) -> Routes:
    """Return the routes of rows from the router's scores."""
    rows, count = scores_RxE.shape
    probabilities_RxE = jax.nn.softmax(scores_RxE)
    gates_RxK, experts_RxK = jax.lax.top_k(probabilities_RxE, choices)
    if choices > 1:  # the share of a single choice is 1, without a gradient
        gates_RxK = gates_RxK / gates_RxK.sum(axis=1, keepdims=True)
    # order matters: all first choices have slots before any second one (GShard, alg. 1)
    hits_NxE = jax.nn.one_hot(experts_RxK.T.reshape(-1), count, dtype=jnp.int32)
    slots_N = (hits_NxE * (hits_NxE.cumsum(axis=0) - 1)).sum(axis=1)
    # Fedus 2021, eq. 4, without its weight; shares have no gradient
    shares_E = hits_NxE.astype(jnp.float32).mean(axis=0)
    balance = count * jnp.dot(shares_E, probabilities_RxE.mean(axis=0))
    return Routes(experts_RxK, slots_N.reshape(choices, rows).T, gates_RxK, balance)


def dispatched(group: Routes, rows_RxD: jax.Array, count: int, limit: int) -> jax.Array:
    """Return slots_ExCxD: the rows of each expert up to its capacity, then zeros.

    Args:
      group: Routes of a group's rows.
      rows_RxD: The rows.
      count: Number of experts.
      limit: Capacity of an expert.
    """
    empty_ExCxD = jnp.zeros((count, limit, rows_RxD.shape[1]), rows_RxD.dtype)
    rows_RxKxD = jnp.broadcast_to(
        rows_RxD[:, None], (*group.slots_RxK.shape, rows_RxD.shape[1])
    )
    # No slot is used twice. With mode=drop JAX ignores an index out of bounds.
    return empty_ExCxD.at[group.experts_RxK, group.slots_RxK].add(
        rows_RxKxD, mode="drop", unique_indices=True
    )


def feed_forward(params: Mapping[str, Any], slots_ExNxD: jax.Array) -> jax.Array:
    """Return the output of each expert for the rows in its slots."""
    up, down = jax.tree.map(
        lambda leaf: leaf.astype(slots_ExNxD.dtype), (params["up"], params["down"])
    )
    hidden_ExNxF = jnp.einsum("end,edf->enf", slots_ExNxD, up["kernel"])
    hidden_ExNxF = jax.nn.gelu(hidden_ExNxF + up["bias"][:, None], approximate=True)
    made_ExNxD = jnp.einsum("enf,efd->end", hidden_ExNxF, down["kernel"])
    return made_ExNxD + down["bias"][:, None]


def combined(group: Routes, made_ExCxD: jax.Array) -> jax.Array:
    """Return mixed_RxD: the gated outputs of experts; 0 where a row is dropped."""
    made_RxKxD = made_ExCxD.at[group.experts_RxK, group.slots_RxK].get(
        mode="fill", fill_value=0, unique_indices=True
    )
    gates_RxKx1 = group.gates_RxK[:, :, None].astype(made_ExCxD.dtype)
    return (made_RxKxD * gates_RxKx1).sum(axis=1)


def mixture_output(
    params: Params, rows_RxD: jax.Array, count: int, mixture: Mixture, cut: Partition
) -> tuple[jax.Array, Routing]:
    """Return the experts' outputs for the rows of `count` examples, on a Partition.

    Every device of `tensor` has all rows, and routes those of its share of the
    examples.

    Args:
      params: Params of the router and of this device's experts.
      rows_RxD: Rows of all examples.
      count: Number of examples.
      mixture: Sizes of the mixture.
      cut: Partition of the network.
    """
    size, width = cut.size, rows_RxD.shape[1]
    check_divisible("the examples of a microbatch", count, size)
    rows_BxLxD, each = rows_RxD.reshape(count, -1, width), count // size
    choices = each * rows_BxLxD.shape[1] * mixture.choices
    if size == 1:
        made_BxLxD, measures = experts(params, rows_BxLxD, mixture)
        return made_BxLxD.reshape(-1, width), Routing(
            measures.balance, measures.dropped / choices
        )
    start = offset(cut, each)
    own_BxLxD = jax.lax.dynamic_slice_in_dim(rows_BxLxD, start, each)
    own_BxLxD, measures = experts(params, own_BxLxD, mixture, AXIS)
    empty_BxLxD = jnp.zeros_like(rows_BxLxD)
    made_BxLxD = jax.lax.dynamic_update_slice_in_dim(empty_BxLxD, own_BxLxD, start, 0)
    means = measures.balance, measures.dropped / choices
    routing = Routing(*(sum_over_devices(mean / size, AXIS) for mean in means))
    return cut.leave(made_BxLxD.reshape(-1, width), count), routing
