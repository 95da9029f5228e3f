"""Updates of dense parameters by optax: gradients, state and params in, new ones out.

Leaves under the name "statistics" are running statistics, not weights. Their gradient
is running statistics - batch statistics, and their learning rate is constant.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import optax

from dml.types import STATISTICS, BadInput, Grads, Params
from dml.update import norms
from dml.update.muon import muon

Optimizer: TypeAlias = optax.GradientTransformation
Mask: TypeAlias = Callable[[Any], Any]  # tree -> mask of its leaves

STATISTICS_RATE = 0.1  # learning rate of running statistics
LARS_TRUST = 0.001  # ratio of the norms of update and weights (You 2017, section 5)


class OptimizerSettings(NamedTuple):
    """The arguments of a Maker; see `make`."""

    learning_rate: Any  # number or schedule
    decay: float | None
    matrices: Mask  # leaves of two or more axes
    axis: norms.Axis
    outputs: Collection[str] = ()  # names of the params of the output layer


Maker: TypeAlias = Callable[[OptimizerSettings], Optimizer]


def with_l2_decay(rule: Callable[..., Optimizer]) -> Maker:
    """Return a Maker that adds the decay to the gradient, as an L2 term of the loss."""

    def make_optimizer(settings: OptimizerSettings) -> Optimizer:
        optimizer = rule(settings.learning_rate)
        if not settings.decay:
            return optimizer
        return optax.chain(
            optax.add_decayed_weights(settings.decay, settings.matrices), optimizer
        )

    return make_optimizer


def with_decoupled_decay(rule: Callable[..., Optimizer]) -> Maker:
    """Return a Maker that passes the decay to the rule (Loshchilov 2019)."""

    def make_optimizer(settings: OptimizerSettings) -> Optimizer:
        if settings.decay is None:
            return rule(settings.learning_rate)
        return rule(
            settings.learning_rate,
            weight_decay=settings.decay,
            mask=settings.matrices,
        )

    return make_optimizer


def lars(settings: OptimizerSettings) -> Optimizer:
    """Return optax.lars with trust ratios summed over the axis."""
    ratios = norms.scale_by_trust_ratio(LARS_TRUST, settings.axis)
    return optax.chain(
        optax.add_decayed_weights(settings.decay or 0.0, settings.matrices),
        optax.masked(ratios, settings.matrices),
        optax.scale_by_learning_rate(settings.learning_rate),
        # order matters: momentum sums updates times learning rates (You 2017)
        optax.trace(0.9),
    )


def lamb(settings: OptimizerSettings) -> Optimizer:
    """Return optax.lamb with trust ratios summed over the axis."""
    ratios = norms.scale_by_trust_ratio(1.0, settings.axis)
    return optax.chain(
        optax.scale_by_adam(eps=1e-6),
        optax.add_decayed_weights(settings.decay or 0.0, settings.matrices),
        optax.masked(ratios, settings.matrices),
        optax.scale_by_learning_rate(settings.learning_rate),
    )


def unsliced_muon(settings: OptimizerSettings) -> Optimizer:
    """Return muon; raise BadInput if leaves are sharded."""
    if settings.axis is not None:
        raise BadInput(
            "expected whole matrices with --optimizer=muon, got slices of them; pass "
            "--strategy=owned, or mesh without --zero"
        )
    return muon(
        settings.learning_rate, settings.decay, settings.matrices, settings.outputs
    )


OPTIMIZERS: dict[str, Maker] = {
    "sgd": with_l2_decay(optax.sgd),
    "momentum": with_l2_decay(partial(optax.sgd, momentum=0.9)),
    "nesterov": with_l2_decay(partial(optax.sgd, momentum=0.9, nesterov=True)),
    "adagrad": with_l2_decay(optax.adagrad),
    "rmsprop": with_l2_decay(optax.rmsprop),
    "adam": with_l2_decay(optax.adam),
    "adamw": with_decoupled_decay(optax.adamw),
    "nadam": with_l2_decay(optax.nadam),
    "lion": with_decoupled_decay(optax.lion),
    "lars": lars,
    "lamb": lamb,
    "muon": unsliced_muon,
}


def make(
    name: str,
    learning_rate: Any,
    *,
    clip: float = 0.0,
    decay: float | None = None,
    axis: norms.Axis = None,
    like: Params = None,
    outputs: Collection[str] = (),
) -> Optimizer:
    """Return the optimizer of that name.

    Args:
      name: Key of OPTIMIZERS.
      learning_rate: Number, or schedule.
      clip: Maximum norm of all gradients together; 0: no clipping.
      decay: Weight decay of leaves of two or more axes; None: adamw and lion use
        optax's default on all leaves, the others do not decay weights.
      axis: Axis of the mesh over which each leaf is sharded in flat slices; None:
        leaves are not sharded.
      like: Tree of the shapes of the full leaves, to find the leaves of two or more
        axes, which decay and trust ratios are limited to; required with an axis.
      outputs: Names of the params of the output layer, which muon leaves to AdamW.
    """
    if name not in OPTIMIZERS:
        raise BadInput(
            f"expected an optimizer of {', '.join(OPTIMIZERS)}, got {name!r}; "
            "pass --optimizer=<one of them>"
        )
    if axis is not None and like is None:
        raise BadInput(
            f"expected the shapes of full params with {axis=}, got like=None; pass "
            "like=params"
        )
    settings = OptimizerSettings(learning_rate, decay, matrices(like), axis, outputs)
    optimizer = OPTIMIZERS[name](settings)
    if clip:
        optimizer = optax.chain(norms.clip(clip, axis), optimizer)
    return optax.chain(
        optax.masked(optimizer, partial(statistics, wanted=False)),
        optax.masked(optax.sgd(STATISTICS_RATE), statistics),
    )


def statistics(tree: Any, wanted: bool = True) -> Any:
    """Return a mask of the leaves that are running statistics.

    With wanted=False the mask is true for all other leaves.
    """

    def is_wanted(path: Any, leaf: Any) -> bool:
        names = [getattr(entry, "key", None) for entry in path]
        return (STATISTICS in names) == wanted

    return jax.tree_util.tree_map_with_path(is_wanted, tree)


def matrices(like: Params = None) -> Mask:
    """Return tree -> mask of the leaves of two or more axes.

    The axes are those of the leaves of `like`, or of the tree if `like` is None.
    """
    is_matrix_by_path = {
        jax.tree_util.keystr(path): leaf.ndim >= 2
        for path, leaf in jax.tree_util.tree_leaves_with_path(like)
    }

    def is_matrix(path: Any, leaf: Any) -> bool:
        name = jax.tree_util.keystr(path)
        return leaf.ndim >= 2 if like is None else is_matrix_by_path[name]

    return partial(jax.tree_util.tree_map_with_path, is_matrix)


# Grads and state are donated: new params and state are written into their memory.
# Params are not donated, because the last Step may still refer to them.
@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def apply(
    optimizer: Optimizer, grads: Grads, state: Any, params: Params
) -> tuple[Params, Any]:
    """Return params and state after one update; grads and state must not be reused."""
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state
