"""The primitives and programs of JAX, for code that reads traced programs.

    equation                        read as
    jit, checkpoint, custom_jvp     a call of a program with the operands
    dot_general, psum, reshape ...  a product, a collective, a view
    any other                       executed as a whole by `bind`

Their names and classes depend on the version of JAX and stand in this module only.
Experimental forms of checkpoint, custom derivatives and scan (jax_remat3 and others)
are equations of the last kind.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax.extend import core

# primitives that call a program, by the name of the parameter with the program
CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call"), "jaxpr"),
    **dict.fromkeys(("checkpoint", "remat2"), "jaxpr"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
CHECKPOINTS = frozenset(("checkpoint", "remat2"))
DOT, CONVOLUTION = "dot_general", "conv_general_dilated"
PRODUCTS = frozenset((DOT, CONVOLUTION))
COLLECTIVES = frozenset(
    ("psum", "pmax", "all_gather", "reduce_scatter", "all_to_all", "ppermute")
)
TRANSPOSE, RESHAPE, CAST = "transpose", "reshape", "convert_element_type"
# the same elements in another shape, or repeated
VIEWS = frozenset((RESHAPE, TRANSPOSE, "squeeze", "expand_dims", "broadcast_in_dim"))
# what makes whole params from the slices of all devices
GATHERED = VIEWS | {"all_gather", "slice"}


def name(equation: Any) -> str:
    """Return the name of an equation's primitive."""
    return equation.primitive.name


def saves_all_but(names: Collection[str]) -> Callable[..., bool]:
    """Return a policy of `jax.checkpoint` that does not save what primitives return.

    A policy by `checkpoint_name` saves the operand of the name instead.
    """
    return lambda primitive, *_, **__: primitive.name not in names


def called_program(equation: Any) -> Any | None:
    """Return the program that an equation calls with its operands; None if none."""
    parameter = CALLS.get(name(equation))
    return equation.params[parameter] if parameter else None


def opened(program: Any) -> tuple[Any, Sequence[Any]]:
    """Return the equations of a program, open or closed, and its constants."""
    return getattr(program, "jaxpr", program), getattr(program, "consts", ())


def bind(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """Return the values that an equation computes from its operands."""
    outputs = equation.primitive.bind(*operands, **equation.params)
    return outputs if equation.primitive.multiple_results else [outputs]


def is_literal(atom: Any) -> bool:
    """Return whether an operand is a constant, `atom.val`, instead of a variable."""
    return isinstance(atom, core.Literal)
