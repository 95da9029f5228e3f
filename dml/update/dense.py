"""UPDATE of dense parameters by optax: grads, state and params in, new ones out.

Leaves under the name "statistics" are running means, not weights: their gradient is how
far they are from the batch's, and they follow it at a rate of their own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import optax

from dml.types import STATISTICS, BadInput, Grads, Params
from dml.update import norms

Optimizer: TypeAlias = optax.GradientTransformation
Mask: TypeAlias = Callable[[Any], Any]  # a tree -> which of its leaves are meant

FOLLOWING = 0.1  # of the way to each batch's statistics
LARS_TRUST = 0.001  # You 2017, section 5: a layer's update to its weights


class Settings(NamedTuple):
    """The arguments of a Maker."""

    learning_rate: Any  # a number or a schedule
    decay: float | None
    matrices: Mask
    axis: norms.Axis


Maker: TypeAlias = Callable[[Settings], Optimizer]


def summed(rule: Callable[..., Optimizer]) -> Maker:
    """Add the decay to the gradient, as if it were part of the loss."""

    def made(settings: Settings) -> Optimizer:
        optimizer = rule(settings.learning_rate)
        if not settings.decay:
            return optimizer
        return optax.chain(
            optax.add_decayed_weights(settings.decay, settings.matrices), optimizer
        )

    return made


def decoupled(rule: Callable[..., Optimizer]) -> Maker:
    """Leave the decay to a rule that keeps it apart (Loshchilov 2019)."""

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
    """Chain what optax.lars does, but with trust ratios that know the axis."""
    ratios = norms.trust(LARS_TRUST, settings.axis)
    return optax.chain(
        optax.add_decayed_weights(settings.decay or 0.0, settings.matrices),
        optax.masked(ratios, settings.matrices),
        optax.scale_by_learning_rate(settings.learning_rate),
        # order matters: what it sums holds its rates, as You 2017 has it
        optax.trace(0.9),
    )


def lamb(settings: Settings) -> Optimizer:
    """Chain what optax.lamb does, but with trust ratios that know the axis."""
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
    """Return the optimizer of that name; learning_rate is a number or a schedule.

    Clip is the greatest norm of all gradients together, 0 is none. Decay, and the trust
    ratios of lars and lamb, are for leaves of two or more axes; without a decay adamw
    and lion have optax's, on all leaves. If each leaf lies in flat slices over an axis,
    like tells the shapes of the whole ones.
    """
    if name not in OPTIMIZERS:
        raise BadInput(
            f"expected an optimizer of {', '.join(OPTIMIZERS)}, got {name!r}; "
            "pass --optimizer=<one of them>"
        )
    if axis is not None and like is None:
        raise BadInput(
            f"expected the shapes of whole params beside {axis=}, got none; pass like"
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

    def one(path: Any, leaf: Any) -> bool:
        names = [getattr(entry, "key", None) for entry in path]
        return (STATISTICS in names) == wanted

    return jax.tree_util.tree_map_with_path(one, tree)


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
