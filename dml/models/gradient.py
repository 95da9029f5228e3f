"""GRADIENT: a model's loss, params and a batch in, the loss and its gradient out."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from dml.types import Batch, Grads, Params


# The loss is static, so ranks that share a model (virtual ones) share one compilation.
@partial(jax.jit, static_argnums=0)
def gradient(
    loss: Callable[[Params, Batch], Any], params: Params, batch: Batch
) -> tuple[Any, Grads]:
    """Return loss and gradient; every strategy calls this, so all get equal bits."""
    return jax.value_and_grad(loss)(params, batch)
