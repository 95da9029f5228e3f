"""A multilayer perceptron with a policy and a value.

    observation → dense → tanh → ... → dense ─► logits of the actions
                                     └ dense ─► value

`apply` is for the gradient, in JAX. `act` is for actors: it computes the logits in
compiled loops and draws actions. A row of its result does not depend on the other rows,
so that equal observations have equal logits in batches of every size.
"""

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numba import njit

from dml.models.initial import initial
from dml.types import BadInput, Params, Policy

LOGITS_SCALE = 0.01  # of initial logits: all actions are almost equally likely

# Rational approximation of tanh in Eigen and XLA: x · p(x²) / q(x²), clamped
CLAMP = np.float32(7.90531110763549805)
P0, P1, P2, P3, P4, P5, P6 = map(
    np.float32,
    (
        *(4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05),
        *(5.12229709037114e-08, -8.60467152213735e-11, 2.00018790482477e-13),
        -2.76076847742355e-16,
    ),
)
Q0, Q1, Q2, Q3 = map(
    np.float32,
    (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839e-06),
)


@cache  # equal policies are the same object, whose gradient is compiled once
def mlp_policy(
    shape: tuple[int, ...], actions: int, widths: tuple[int, ...] = (64, 64)
) -> Policy:
    """Return the policy and value of a multilayer perceptron.

    Args:
      shape: Shape of an observation.
      actions: Number of actions.
      widths: Numbers of units in the hidden layers.
    """
    if min(math.prod(shape), actions, *widths) < 1:
        raise BadInput(
            f"expected observations, actions and layers of at least one unit, got "
            f"{shape=}, {actions=} and {widths=}; pass positive sizes"
        )
    inputs = math.prod(shape)
    sizes = {}
    for index, width in enumerate(widths):
        sizes[hidden_name(index)] = dense_shapes(inputs, width)
        inputs = width
    sizes |= {"logits": dense_shapes(inputs, actions), "value": dense_shapes(inputs, 1)}

    def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
        small = names == ("logits", "kernel")
        return LOGITS_SCALE / math.sqrt(inputs) if small else None

    def init(key: Any) -> Params:
        return initial(sizes, key, spread)

    def apply(params: Params, observations: Any) -> tuple[Any, Any]:
        features = observations.reshape(len(observations), -1)
        for index in range(len(widths)):
            features = jnp.tanh(dense(params[hidden_name(index)], features))
        values_Bx1 = dense(params["value"], features)
        return dense(params["logits"], features), values_Bx1[:, 0]

    return Policy(init, apply)


def hidden_name(index: int) -> str:
    return f"hidden_{index:02d}"


def dense_shapes(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {"kernel": (inputs, outputs), "bias": (outputs,)}


def dense(layer: Params, features: Any) -> Any:
    return features @ layer["kernel"] + layer["bias"]


def to_numpy(params: Params) -> Params:
    """Return params whose leaves are arrays of NumPy, as `act` reads them."""
    return jax.tree.map(writable, params)


def writable(leaf: Any) -> np.ndarray:
    """Return a writable array: Numba compiles loops once more for read-only arrays."""
    known = isinstance(leaf, np.ndarray) and leaf.flags.writeable
    return leaf if known else np.array(leaf)


def act(
    params: Params, observations: np.ndarray, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the action of each observation, N, and the logits of its policy, NxA.

    Args:
      params: Params of `mlp_policy`; arrays of NumPy are faster than those of JAX.
      observations: Observations, NxO in float32.
      draws: Uniform numbers in [0, 1), N. An action is the inverse of the cumulative
        distribution at its number.
    """
    features = np.ascontiguousarray(observations).reshape(len(observations), -1)
    for index in range(len(params) - 2):
        features = layer_outputs(params[hidden_name(index)], features, True)
    logits = layer_outputs(params["logits"], features, False)
    return sample(logits, draws), logits


def layer_outputs(layer: Params, features: np.ndarray, hidden: bool) -> np.ndarray:
    kernel, bias = writable(layer["kernel"]), writable(layer["bias"])
    return compiled_dense(features, kernel, bias, hidden)


@njit(nogil=True, cache=True, error_model="numpy")
def compiled_dense(features, kernel, bias, is_hidden):
    """Return a dense layer, with tanh if it is hidden.

    Each output is a sum in the order of the inputs.
    """
    out = np.empty((len(features), len(bias)), np.float32)
    unrolled = features.shape[1] & -4
    for n in range(len(out)):
        # slices: the compiler then knows that no index is negative
        row, inputs = out[n], features[n]
        for j in range(len(row)):
            row[j] = bias[j]
        for i in range(0, unrolled, 4):
            a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
            first, second = kernel[i], kernel[i + 1]
            third, fourth = kernel[i + 2], kernel[i + 3]
            for j in range(len(row)):
                sums = row[j] + a * first[j] + b * second[j]
                row[j] = sums + c * third[j] + d * fourth[j]
        for i in range(unrolled, len(inputs)):
            x, weights = inputs[i], kernel[i]
            for j in range(len(row)):
                row[j] += x * weights[j]
        if is_hidden:
            for j in range(len(row)):
                row[j] = tanh(row[j])
    return out


@njit(inline="always", error_model="numpy")
def tanh(x):
    """Return the hyperbolic tangent, by the approximation above."""
    x = min(max(x, -CLAMP), CLAMP)
    y = x * x
    p = P0 + y * (P1 + y * (P2 + y * (P3 + y * (P4 + y * (P5 + y * P6)))))
    return x * p / (Q0 + y * (Q1 + y * (Q2 + y * Q3)))


@njit(nogil=True, cache=True)
def sample(logits, draws):
    """Return an action for each row of logits, by the inverse of the distribution."""
    actions = np.empty(len(logits), np.int32)
    for n in range(len(logits)):
        largest = logits[n].max()
        total = 0.0
        for logit in logits[n]:
            total += math.exp(logit - largest)
        left = draws[n] * total
        action = 0
        for a in range(logits.shape[1] - 1):
            left -= math.exp(logits[n, a] - largest)
            if left < 0:
                break
            action += 1
        actions[n] = action
    return actions
