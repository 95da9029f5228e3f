"""A backward in two programs: products are divided between them, none is repeated."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dml.strategies.hybrid.parts import StagePart
from dml.strategies.hybrid.pieces import trace_pieces
from dml.types import Layer
from dml.wire.mesh.packed import packing

WIDTH = 8


def network():
    """Return two layers of two products, the first without an input gradient."""
    weights = np.random.default_rng(0).normal(size=(4, WIDTH, WIDTH))
    params = dict(zip("abcd", weights.astype(np.float32), strict=True))

    def layer(names):
        def apply(params, given, batch):
            given = batch if given is None else given
            hidden = jax.nn.gelu(given @ params[names[0]])
            return (hidden @ params[names[1]]) * 0.5 + given

        return Layer(tuple(names), apply)

    def last(params, given, batch):
        return (given**2).mean()

    return params, [layer("ab"), layer("cd"), Layer((), last)]


def pieces():
    params, layers = network()
    part = StagePart(0, 0, 0, [[layer] for layer in layers], packing(params))
    batch = jnp.linspace(-1, 1, 5 * WIDTH).reshape(5, WIDTH)
    return params, batch, trace_pieces([part], batch, remat=False, split=True)[0]


def products(function, *arguments):
    return str(jax.make_jaxpr(function)(*arguments)).count(" dot_general[")


def test_the_two_programs_are_the_backward():
    params, batch, found = pieces()
    total, given = {}, None
    saved = []
    for piece in found:
        own = {name: params[name] for name in piece.names}
        given, leaves = piece.forward(own, given, batch)
        saved.append((own, leaves))
    grad = jnp.float32(1)
    for piece, (own, leaves) in reversed([*zip(found, saved, strict=True)]):
        whole, before = piece.backward(own, leaves, grad)
        after, left = piece.input_grad(own, leaves, grad)
        weights = piece.weight_grad(own, leaves, left)
        assert jax.tree.map(jnp.shape, left) == [one.shape for one in piece.deferred]
        jax.tree.map(np.testing.assert_array_equal, (weights, after), (whole, before))
        total, grad = total | weights, before

    def loss(params):
        given = None
        for layer in network()[1]:
            given = layer.apply(params, given, batch)
        return given

    near = partial(np.testing.assert_allclose, rtol=1e-6)  # roundings of float32
    jax.tree.map(near, total, jax.grad(loss)(params))


def test_each_program_has_its_own_products_and_defers_their_gradients():
    params, _, (first, second, _) = pieces()
    for piece, inputs in ((first, 0), (second, 2)):
        own = {name: params[name] for name in piece.names}
        arguments = own, piece.saved, piece.output
        _, left = jax.eval_shape(piece.input_grad, *arguments)
        assert products(piece.input_grad, *arguments) == inputs
        assert products(piece.backward, *arguments) == 3 + inputs // 2
        weights = products(piece.weight_grad, own, piece.saved, left)
        assert weights == 3 - inputs // 2
    # of the second: the gradients of both products; of the first, which has no input
    # gradient, only the incoming one
    assert [one.shape for one in first.deferred] == [(5, WIDTH)]
    assert [one.shape for one in second.deferred] == [(5, WIDTH)] * 2
