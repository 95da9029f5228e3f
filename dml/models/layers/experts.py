"""A mixture of experts (GShard, Lepikhin 2020; Switch, Fedus 2021).

    rows ─ router ─┬─ expert 0 ─┬─ · gates, summed ─→ added to the rows
                   └─ expert 1 ─┘

Each row is sent to the experts with the highest router scores, up to the capacity of
each expert. Rows are routed in groups, such as the tokens of one example: the experts
of a row depend neither on other groups nor on the number of devices.

Axes: G groups of R rows of width D; K choices per row; E experts, of capacity C per
group; N = G·C slots per expert; F units in the hidden layer of an expert.
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
      choices: Number of experts per row: 1 in Switch, 2 in GShard.
      factor: Capacity of an expert divided by its load if all loads are equal.
      weight: Weight of the auxiliary loss that balances loads (Fedus 2021, 2.2).
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
    slots_RxK: jax.Array  # index of the row among the rows of the expert
    gates_RxK: jax.Array  # weight of the expert's output
    balance: jax.Array  # auxiliary loss; 1 where loads are equal


class Measures(NamedTuple):
    """Measures of the routes of a device's groups."""

    dropped: jax.Array  # number of choices beyond the capacity
    load_E: jax.Array  # number of choices of each expert, including dropped choices
    balance: jax.Array  # mean over groups; 1 where loads are equal


class Routing(NamedTuple):
    """Sums, over the blocks so far, of measures of the routes."""

    balance: Any  # auxiliary loss; a block with equal loads adds 1
    dropped: Any  # share of dropped choices


def shapes(mixture: Mixture, size: int = 1) -> Any:
    """Return the shapes of the params of one of `size` devices."""
    _, width, hidden, *_ = mixture
    per_device = mixture.experts // size
    shape_of = {
        "router": {"kernel": (width, mixture.experts)},
        "up": {"kernel": (per_device, width, hidden), "bias": (per_device, hidden)},
        "down": {"kernel": (per_device, hidden, width), "bias": (per_device, width)},
    }
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        shape_of,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def init_params(mixture: Mixture, key: jax.Array) -> Params:
    """Draw the params of all experts; biases are 0."""
    # the standard deviation depends on the inputs of one expert, not of all experts
    return initial(
        shapes(mixture),
        key,
        lambda path, shape: None if path[-1] == "bias" else 1 / math.sqrt(shape[-2]),
    )


def specs(axis: str = "expert") -> dict[str, Any]:
    """Return PartitionSpecs of params: experts sharded, router replicated.

    Each device computes the router's gradient for its own rows only: sum these
    gradients over devices.
    """
    sharded = {"kernel": PartitionSpec(axis), "bias": PartitionSpec(axis)}
    return {"router": {"kernel": PartitionSpec()}, "up": sharded, "down": sharded}


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

    Gradients are of the sum of the losses of all p devices; divide the loss of each
    device by p to obtain a mean.

    Cost: 2 all-to-alls forward and 2 backward. In each, a device exchanges G·E·C·D
    elements, about factor · choices · G·R·D; (p-1)/p of them go to other devices.

    Args:
      params: Params of the router and of this device's experts.
      rows_GxRxD: Groups of rows.
      mixture: Sizes of the mixture.
      axis: Axis over which experts are sharded; None: one device has all experts.
    """
    count = mixture.experts
    groups, rows, width = rows_GxRxD.shape
    limit = capacity(mixture, rows)
    if axis and count % jax.lax.axis_size(axis):
        size = jax.lax.axis_size(axis)
        raise BadInput(
            f"expected experts divisible by {size}, the devices of axis {axis!r}, got "
            f"{count}; pass a multiple of {size}"
        )
    routes_G = jax.vmap(lambda rows_RxD: route(params, rows_RxD, mixture))(rows_GxRxD)
    slots_GxExCxD = jax.vmap(
        lambda group, rows_RxD: dispatch(group, rows_RxD, count, limit)
    )(routes_G, rows_GxRxD)
    slots_ExNxD = slots_GxExCxD.swapaxes(0, 1).reshape(count, groups * limit, width)
    if axis:  # this device's slots, all experts -> all slots, this device's experts
        slots_ExNxD = jax.lax.all_to_all(slots_ExNxD, axis, 0, 1, tiled=True)
    outputs_ExNxD = feed_forward(params, slots_ExNxD)
    if axis:
        outputs_ExNxD = jax.lax.all_to_all(outputs_ExNxD, axis, 1, 0, tiled=True)
    outputs_ExGxCxD = outputs_ExNxD.reshape(count, groups, limit, width)
    mixed_GxRxD = jax.vmap(combine)(routes_G, outputs_ExGxCxD.swapaxes(0, 1))
    load_E = jnp.bincount(routes_G.experts_RxK.reshape(-1), length=count)
    dropped = (routes_G.slots_RxK >= limit).sum()
    return mixed_GxRxD, Measures(dropped, load_E, routes_G.balance.mean())


def capacity(mixture: Mixture, rows: int) -> int:
    """Return the maximum number of rows of a group per expert (Fedus 2021, eq. 3)."""
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
    # no expert has more than all rows of a group
    return min(rows, math.ceil(factor * choices * rows / count))


def route(params: Params, rows_RxD: jax.Array, mixture: Mixture) -> Routes:
    """Return the routes of rows, computed in float32 (Fedus 2021, 2.4)."""
    return routes_from_scores(
        jnp.dot(
            rows_RxD.astype(jnp.float32),
            params["router"]["kernel"].astype(jnp.float32),
        ),
        mixture.choices,
    )


def routes_from_scores(scores_RxE: jax.Array, choices: int) -> Routes:
    """Return the routes of rows from the router's scores."""
    rows, count = scores_RxE.shape
    probabilities_RxE = jax.nn.softmax(scores_RxE)
    gates_RxK, experts_RxK = jax.lax.top_k(probabilities_RxE, choices)
    if choices > 1:  # normalised, a single gate would be 1 and have no gradient
        gates_RxK = gates_RxK / gates_RxK.sum(axis=1, keepdims=True)
    # order matters: slots of all first choices precede those of second choices (GShard,
    # alg. 1)
    hits_NxE = jax.nn.one_hot(experts_RxK.T.reshape(-1), count, dtype=jnp.int32)
    slots_N = (hits_NxE * (hits_NxE.cumsum(axis=0) - 1)).sum(axis=1)
    # Fedus 2021, eq. 4, without the weight of the mixture; shares_E has no gradient
    shares_E = hits_NxE.astype(jnp.float32).mean(axis=0)
    balance = count * jnp.dot(shares_E, probabilities_RxE.mean(axis=0))
    return Routes(experts_RxK, slots_N.reshape(choices, rows).T, gates_RxK, balance)


def dispatch(group: Routes, rows_RxD: jax.Array, count: int, limit: int) -> jax.Array:
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
    # Slots are distinct. mode="drop" ignores slots at or above the capacity.
    return empty_ExCxD.at[group.experts_RxK, group.slots_RxK].add(
        rows_RxKxD, mode="drop", unique_indices=True
    )


def feed_forward(params: Mapping[str, Any], slots_ExNxD: jax.Array) -> jax.Array:
    """Return the outputs of experts for the rows in their slots."""
    up, down = jax.tree.map(
        lambda leaf: leaf.astype(slots_ExNxD.dtype), (params["up"], params["down"])
    )
    hidden_ExNxF = jnp.einsum("end,edf->enf", slots_ExNxD, up["kernel"])
    hidden_ExNxF = jax.nn.gelu(hidden_ExNxF + up["bias"][:, None], approximate=True)
    outputs_ExNxD = jnp.einsum("enf,efd->end", hidden_ExNxF, down["kernel"])
    return outputs_ExNxD + down["bias"][:, None]


def combine(group: Routes, outputs_ExCxD: jax.Array) -> jax.Array:
    """Return mixed_RxD: the gated outputs of experts; 0 where a row is dropped."""
    outputs_RxKxD = outputs_ExCxD.at[group.experts_RxK, group.slots_RxK].get(
        mode="fill", fill_value=0, unique_indices=True
    )
    gates_RxKx1 = group.gates_RxK[:, :, None].astype(outputs_ExCxD.dtype)
    return (outputs_RxKxD * gates_RxKx1).sum(axis=1)


def mixture_output(
    params: Params,
    rows_RxD: jax.Array,
    count: int,
    mixture: Mixture,
    partition: Partition,
) -> tuple[jax.Array, Routing]:
    """Return the outputs of the mixture for the rows of `count` examples, and Routing.

    Every device of the axis `tensor` has all rows, and routes the rows of its share of
    the examples.

    Args:
      params: Params of the router and of this device's experts.
      rows_RxD: Rows of all examples.
      count: Number of examples.
      mixture: Sizes of the mixture.
      partition: Partition of the network.
    """
    size, width = partition.size, rows_RxD.shape[1]
    check_divisible("the examples of a microbatch", count, size)
    rows_BxLxD = rows_RxD.reshape(count, -1, width)
    per_device = count // size
    choices = per_device * rows_BxLxD.shape[1] * mixture.choices
    if size == 1:
        outputs_BxLxD, measures = experts(params, rows_BxLxD, mixture)
        return outputs_BxLxD.reshape(-1, width), Routing(
            measures.balance, measures.dropped / choices
        )
    first = offset(partition, per_device)
    local_BxLxD = jax.lax.dynamic_slice_in_dim(rows_BxLxD, first, per_device)
    local_BxLxD, measures = experts(params, local_BxLxD, mixture, AXIS)
    empty_BxLxD = jnp.zeros_like(rows_BxLxD)
    outputs_BxLxD = jax.lax.dynamic_update_slice_in_dim(
        empty_BxLxD, local_BxLxD, first, 0
    )
    means = measures.balance, measures.dropped / choices
    routing = Routing(*(sum_over_devices(mean / size, AXIS) for mean in means))
    return partition.leave(outputs_BxLxD.reshape(-1, width), count), routing
