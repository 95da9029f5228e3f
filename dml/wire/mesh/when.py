"""A conditional change of some devices' state, in one program of all devices.

`lax.cond` copies all state that a branch may change. A loop of zero or one iteration
changes the state in place. `change` may contain a collective if the condition is equal
on all devices of the collective.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

State = TypeVar("State")


def when(condition: Any, change: Callable[[State], State], state: State) -> State:
    """Return change(state) on devices where the condition holds, else state."""

    def once(carry: tuple[Any, State]) -> tuple[Any, State]:
        return jnp.zeros((), bool), change(carry[1])

    first = jnp.asarray(condition, bool), state
    return jax.lax.while_loop(lambda carry: carry[0], once, first)[1]
