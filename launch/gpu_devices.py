"""Print the devices of JAX as JSON, after a product on each of them."""

import json
import sys
from collections.abc import Mapping
from typing import Any


def query() -> Mapping[str, Any]:
    """Return platform, number, kind and memory of the devices, and versions."""
    import jax
    import jax.numpy as jnp
    import jaxlib

    devices = jax.local_devices()
    for device in devices:
        ones = jax.device_put(jnp.ones((256, 256)), device)
        product = float((ones @ ones)[0, 0])
        if product != 256:
            raise ArithmeticError(f"expected 256 on {device}, got {product}")
    stats = devices[0].memory_stats() or {}
    return {
        "platform": devices[0].platform,
        "devices": len(devices),
        "kind": devices[0].device_kind,
        "memory_bytes": stats.get("bytes_limit", 0),
        "memories": sorted(each.kind for each in devices[0].addressable_memories()),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(query()) + "\n")
