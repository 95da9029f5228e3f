"""A small network cut over devices by hand, cheap to compile, and its dense reference.

Ends share a table; blocks are products by columns, then by rows; see conjugate.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dml.models.layered import layered
from dml.types import Batch, Layer, Tensor
from dml.wire.mesh import conjugate
from dml.wire.mesh.axes import COLUMNS, REPLICATED, ROWS

WIDTH, BLOCKS, AXIS = 16, 6, "tensor"


def embed(params, given, batch):
    return batch.inputs @ params["table"]


def head(params, given, batch):
    errors = given @ params["table"].T - batch.targets
    return jnp.mean(errors**2)


def block(name, enter, leave):
    def apply(params, given, batch):
        mine = params[name]
        hidden = jnp.tanh(enter(given) @ mine["up"])
        return given + leave(hidden @ mine["down"]) * mine["scale"]

    return Layer((name,), apply)


def layers(enter=lambda x: x, leave=lambda x: x, blocks=BLOCKS):
    body = [block(f"b{n}", enter, leave) for n in range(blocks)]
    return [Layer(("table",), embed), *body, Layer(("table",), head)]


def init(key=None, blocks=BLOCKS):
    rng = np.random.default_rng(0)

    def weights(*shape):
        return jnp.asarray(0.3 * rng.standard_normal(shape), jnp.float32)

    def one():
        up, down = weights(WIDTH, 2 * WIDTH), weights(2 * WIDTH, WIDTH)
        return {"up": up, "down": down, "scale": 1 + weights(WIDTH)}

    return {"table": weights(WIDTH, WIDTH), **{f"b{n}": one() for n in range(blocks)}}


def model(blocks=BLOCKS):
    return layered(layers(blocks=blocks), init, lambda params, batch: {}, head)


def cut(size, blocks=BLOCKS):
    """Return the network on one of so many devices."""
    params = jax.eval_shape(lambda: init(blocks=blocks))
    nowhere = jax.tree.map(lambda _: False, params)
    if size == 1:
        specs = jax.tree.map(lambda _: REPLICATED, params)
        return Tensor(layers(blocks=blocks), specs, nowhere)
    lies = {"up": COLUMNS, "down": ROWS, "scale": REPLICATED}
    specs = {name: REPLICATED if name == "table" else lies for name in params}
    enter, leave = conjugate.copy_to_devices, conjugate.sum_over_devices
    device = layers(lambda x: enter(x, AXIS), lambda x: leave(x, AXIS), blocks)
    return Tensor(device, specs, nowhere)


def data(count):
    rng = np.random.default_rng(1)
    return Batch(*rng.standard_normal((2, count, WIDTH)).astype(np.float32))
