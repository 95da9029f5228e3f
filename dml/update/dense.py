"""UPDATE of dense parameters by optax: grads, state and params in, new ones out."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import optax

from dml.types import BadInput, Grads, Params

Optimizer: TypeAlias = optax.GradientTransformation

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "nadam": optax.nadam,
    "lion": optax.lion,
    "lars": optax.lars,
    "lamb": optax.lamb,
}


def make(name: str, learning_rate: Any) -> Optimizer:
    """Return the optimizer of that name; learning_rate is a number or a schedule."""
    if name not in OPTIMIZERS:
        raise BadInput(
            f"expected an optimizer of {', '.join(OPTIMIZERS)}, got {name!r}; "
            "pass --optimizer=<one of them>"
        )
    return OPTIMIZERS[name](learning_rate)


# Grads and state are donated: nobody else holds them, and params and state are written
# into their memory. Params are not: whoever took the last Step still holds them.
@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def apply(
    optimizer: Optimizer, grads: Grads, state: Any, params: Params
) -> tuple[Params, Any]:
    """Return params and state after one update; grads and state must not be reused."""
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state
