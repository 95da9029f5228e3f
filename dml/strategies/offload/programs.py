"""The compiled functions of one layer, and of the update of its parameters.

A forward pass returns the output of the layer and those saved arrays that are not yet
in a buffer: parameters, input, output and batch are not saved a second time.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax

from dml.models.backward import pull_back, run_forward
from dml.types import Params


class Compiled(NamedTuple):
    """A compiled function.

    Attributes:
      call: The function.
      workspace: Bytes of temporary arrays.
      results: Bytes of results that do not reuse the memory of arguments.
      flops: Number of floating-point operations.
      traffic: Bytes that the function reads and writes in device memory.
    """

    call: Callable[..., Any]
    workspace: int
    results: int
    flops: float
    traffic: float


class Forward(NamedTuple):
    """The forward pass of a layer.

    Attributes:
      compiled: (params, activations, batch) -> output, list of saved arrays.
      output: Shapes of the output.
      saved: Shapes of the saved arrays.
      structure: Structure of the pullback, the argument of `models.backward.pull_back`.
      sources: For each leaf of the pullback, its position among the leaves of params,
        activations, batch, output and saved.
    """

    compiled: Compiled
    output: Any
    saved: list[Any]
    structure: Any
    sources: tuple[int, ...]


def forward(apply: Callable[..., Any], *arguments: Any) -> Forward:
    """Compile the forward pass of a layer.

    Args:
      apply: Function of the layer.
      *arguments: Shapes of params, activations and batch.
    """
    leaves, structure = jax.tree.flatten(arguments)
    return _forward(apply, structure, tuple(leaves))


@lru_cache(maxsize=1024)  # virtual ranks and later runs share the programs
def _forward(apply: Callable[..., Any], structure: Any, leaves: Any) -> Forward:
    arguments = jax.tree.unflatten(structure, leaves)
    traced, (output, pullback) = jax.make_jaxpr(
        partial(run_forward, apply), return_shape=True
    )(*arguments)
    pullback_leaves, pullback_structure = jax.tree.flatten(pullback)
    variables = [*traced.jaxpr.invars, *traced.jaxpr.outvars]
    first_saved = len(variables) - len(pullback_leaves)
    positions: dict[int, int] = {}  # of variables, by id
    for number, variable in enumerate(variables[:first_saved]):
        positions.setdefault(id(variable), number)
    kept: list[int] = []
    sources: list[int] = []
    for number, variable in enumerate(variables[first_saved:]):
        if id(variable) not in positions:
            positions[id(variable)] = first_saved + len(kept)
            kept.append(number)
        sources.append(positions[id(variable)])
    saved = [pullback_leaves[number] for number in kept]
    compiled = compile_function(run_saving, (apply, tuple(kept)), *arguments)
    return Forward(compiled, output, saved, pullback_structure, tuple(sources))


@partial(jax.jit, static_argnums=(0, 1))
def run_saving(
    apply: Callable[..., Any],
    kept: tuple[int, ...],
    params: Params,
    activations: Any,
    batch: Any,
) -> tuple[Any, list[Any]]:
    """Return the output of a layer, and some of the leaves of its pullback."""
    output, pullback = run_forward(apply, params, activations, batch)
    leaves = jax.tree.leaves(pullback)
    return output, [leaves[number] for number in kept]


def backward(forward: Forward, layer: Any, incoming: Any) -> Compiled:
    """Compile the backward pass of a layer.

    Args:
      forward: Its forward pass.
      layer: Shapes of params, activations, batch, output and saved arrays.
      incoming: Shapes of the gradient of the output.
    """
    leaves = jax.tree.leaves(layer)
    pullback = forward.structure.unflatten([leaves[n] for n in forward.sources])
    return compile_function(pull_back, (), pullback, incoming)


def compile_function(function: Any, static: tuple[Any, ...], *arguments: Any) -> Any:
    """Compile a function for arguments of these shapes.

    Args:
      function: A jitted function.
      static: Static arguments, which precede the others.
      *arguments: Trees of shapes.
    """
    leaves, structure = jax.tree.flatten(arguments)
    return _compile(function, static, structure, tuple(leaves))


@lru_cache(maxsize=1024)
def _compile(function: Any, static: Any, structure: Any, leaves: Any) -> Compiled:
    compiled = function.lower(*static, *jax.tree.unflatten(structure, leaves)).compile()
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return Compiled(
        compiled,
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        max(0.0, costs.get("flops", 0.0)),
        max(0.0, costs.get("bytes accessed", 0.0)),
    )
