"""One start of a program: how many of its parts were found in the cache."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from lab import compiling

found = {"folder": str(compiling.enable_cache()), "hits": 0}


def heard(event, **_):
    found["hits"] += event == "/jax/compilation_cache/cache_hits"


def network(weights, inputs):
    for weight in weights:
        inputs = jnp.tanh(inputs @ weight)
    return inputs.mean()


jax.monitoring.register_event_listener(heard)
weights = [np.ones((8, 8), np.float32)] * 8
inputs = np.ones((4, 8), np.float32)
jax.block_until_ready(jax.jit(jax.grad(network))(weights, inputs))
json.dump(found, sys.stdout)
