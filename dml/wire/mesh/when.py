"""What some devices do and others do not, in one program of them all.

A conditional copies all that it may change; a loop of no or one round changes it where
it lies. So `when` is a loop. Collectives inside are right where all devices that they
join agree.
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

    asked = jnp.asarray(condition, bool)
    return jax.lax.while_loop(lambda carry: carry[0], once, (asked, state))[1]
