"""Updates of dense parameters by optax: gradients, state and params in, new ones out.

Leaves under the name "statistics" are running means, not weights. Their gradient is the
difference from the batch's statistics, and they follow it at a constant rate.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import optax

from dml.types import STATISTICS, BadInput, Grads, Params
from dml.update import norms

Optimizer: TypeAlias = optax.GradientTransformation
Mask: TypeAlias = Callable[[Any], Any]  # tree -> mask of its leaves

FOLLOWING = 0.1  # rate at which running statistics follow those of a batch
LARS_TRUST = 0.001  # You 2017, section 5: ratio of a layer's update to its weights


class Settings(NamedTuple):
    """The arguments of a Maker."""

    learning_rate: Any  # number or schedule
    decay: float | None
    matrices: Mask
    axis: norms.Axis


Maker: TypeAlias = Callable[[Settings], Optimizer]


def summed(rule: Callable[..., Optimizer]) -> Maker:
    """Return a Maker whose decay is added to the gradient, as a part of the loss."""

    def made(settings: Settings) -> Optimizer:
        optimizer = rule(settings.learning_rate)
        if not settings.decay:
            return optimizer
        return optax.chain(
            optax.add_decayed_weights(settings.decay, settings.matrices), optimizer
        )

    return made


def decoupled(rule: Callable[..., Optimizer]) -> Maker:
    """Return a Maker that passes the decay to the rule (Loshchilov 2019)."""

    def made(settings: Settings) -> Optimizer:
        if settings.decay is None:
            return rule(settings.learning_rate)
        return rule(
            settings.learning_rate,
            weight_decay=settings.decay,
            mask=settings.matrices,
        )

    return made


def lars(settings: Settings) -> Optimizer:
    """Return optax.lars with trust ratios summed over the axis."""
    ratios = norms.trust(LARS_TRUST, settings.axis)
    return optax.chain(
        optax.add_decayed_weights(settings.decay or 0.0, settings.matrices),
        optax.masked(ratios, settings.matrices),
        optax.scale_by_learning_rate(settings.learning_rate),
        # order matters: momentum sums updates multiplied by their rates (You 2017)
        optax.trace(0.9),
    )


def lamb(settings: Settings) -> Optimizer:
    """Return optax.lamb with trust ratios summed over the axis."""
    ratios = norms.trust(1.0, settings.axis)
    return optax.chain(
        optax.scale_by_adam(eps=1e-6),
        optax.add_decayed_weights(settings.decay or 0.0, settings.matrices),
        optax.masked(ratios, settings.matrices),
        optax.scale_by_learning_rate(settings.learning_rate),
    )


OPTIMIZERS: dict[str, Maker] = {
    "sgd": summed(optax.sgd),
    "momentum": summed(partial(optax.sgd, momentum=0.9)),
    "nesterov": summed(partial(optax.sgd, momentum=0.9, nesterov=True)),
    "adagrad": summed(optax.adagrad),
    "rmsprop": summed(optax.rmsprop),
    "adam": summed(optax.adam),
    "adamw": decoupled(optax.adamw),
    "nadam": summed(optax.nadam),
    "lion": decoupled(optax.lion),
    "lars": lars,
    "lamb": lamb,
}


def make(
    name: str,
    learning_rate: Any,
    *,
    clip: float = 0.0,
    decay: float | None = None,
    axis: norms.Axis = None,
    like: Params = None,
) -> Optimizer:
    """Return the optimizer of that name.

    Args:
      name: Key of OPTIMIZERS.
      learning_rate: Number, or schedule.
      clip: Greatest norm of all gradients together; 0: none.
      decay: Weight decay of leaves of two or more axes; None: adamw and lion use
        optax's default on all leaves, others none.
      axis: Axis of the mesh over which each leaf is sharded in flat slices; None: none
        is.
      like: Shapes of the full leaves; needed with an axis, to find leaves of two or
        more axes, which trust ratios of lars and lamb apply to.
    """
    if name not in OPTIMIZERS:
        raise BadInput(
            f"expected an optimizer of {', '.join(OPTIMIZERS)}, got {name!r}; "
            "pass --optimizer=<one of them>"
        )
    if axis is not None and like is None:
        raise BadInput(
            f"expected the shapes of full params with {axis=}, got none; pass like"
        )
    optimizer = OPTIMIZERS[name](Settings(learning_rate, decay, matrices(like), axis))
    if clip:
        optimizer = optax.chain(norms.clip(clip, axis), optimizer)
    return optax.chain(
        optax.masked(optimizer, partial(statistics, wanted=False)),
        optax.masked(optax.sgd(FOLLOWING), statistics),
    )


def statistics(tree: Any, wanted: bool = True) -> Any:
    """Return a mask of the leaves that are running statistics, or of all others."""

    def is_wanted(path: Any, leaf: Any) -> bool:
        names = [getattr(entry, "key", None) for entry in path]
        return (STATISTICS in names) == wanted

    return jax.tree_util.tree_map_with_path(is_wanted, tree)


def matrices(like: Params = None) -> Mask:
    """Return a mask of the leaves with two axes or more, by the shapes of `like`."""
    whole = {
        jax.tree_util.keystr(path): leaf.ndim >= 2
        for path, leaf in jax.tree_util.tree_leaves_with_path(like)
    }

    def one(path: Any, leaf: Any) -> bool:
        at = jax.tree_util.keystr(path)
        return leaf.ndim >= 2 if like is None else whole[at]

    return partial(jax.tree_util.tree_map_with_path, one)


# Grads and state are donated: nobody else holds them, and params and state are written
# into their memory. Params are not: whoever took the last Step still holds them.
@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def apply(
    optimizer: Optimizer, grads: Grads, state: Any, params: Params
) -> tuple[Params, Any]:
    """Return params and state after one update; grads and state must not be reused."""
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state
