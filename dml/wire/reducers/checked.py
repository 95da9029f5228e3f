"""Reducers whose ranks compare their arguments before every reduction.

    rank 0    1231 x float32, plain, for state 5f0c21aa of top_k:0.01     the same
    rank 1    1231 x float32, plain, for state 5f0c21aa of top_k:0.01     on all ranks
    rank 2     900 x float32, plain, for state 90b1d3e7 of top_k:0.01     refused

Compressed reducers send codes and not buffers, so an all-reduce with a check sees only
their scalars. Without a check, a code of another length is decoded with the length of
this rank's code.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import Comm, Memory, Reducer
from dml.wire.collectives.check import check_arguments


def checked(reducer: Reducer, name: str) -> Reducer:
    """Return the reducer, with a check that raises BadInput on all ranks.

    It compares length, dtype and registration of the buffers, the name of the reducer,
    and the common part of its state, such as the number of steps. Cost: an
    all-gather of 128 bytes per rank before every reduction.

    Args:
      reducer: The reducer.
      name: Its name in --reduce.
    """

    def check(comm: Comm, buffer: np.ndarray, state: Any) -> None:
        check_arguments(comm, buffer, f"state {common_hash(state)} of {name}")

    def reduce(comm: Comm, buffer: np.ndarray, state: Any) -> Any:
        check(comm, buffer, state)
        return reducer.reduce(comm, buffer, state)

    def reduce_terms(comm: Comm, terms: Sequence[np.ndarray], state: Any) -> Any:
        assert reducer.reduce_terms
        check(comm, terms[0], state)
        return reducer.reduce_terms(comm, terms, state)

    def reduce_parts(
        comm: Comm, terms: Sequence[np.ndarray], parts: Sequence[slice], state: Any
    ) -> Any:
        assert reducer.reduce_parts
        check(comm, terms[0], state)
        return reducer.reduce_parts(comm, terms, parts, state)

    several = reduce_terms if reducer.reduce_terms else None
    by_parts = reduce_parts if reducer.reduce_parts else None
    return reducer._replace(reduce=reduce, reduce_terms=several, reduce_parts=by_parts)


def common_hash(state: Any) -> str:
    """Return a hash of the parts of a state that are equal on all ranks."""
    digest = hashlib.sha256()
    add_common(state, False, digest)
    return digest.hexdigest()[:8]


def add_common(state: Any, is_common: bool, digest: Any) -> None:
    """Add keys, and the arrays in the common part of a Memory, to a hash.

    Args:
      state: Part of a state.
      is_common: Whether it is in the common part of a Memory.
      digest: The hash.
    """
    if isinstance(state, Memory):
        add_common(state.common, True, digest)
    elif isinstance(state, dict):
        for key, value in state.items():
            digest.update(repr(key).encode())
            add_common(value, is_common, digest)
    elif isinstance(state, tuple | list):
        for value in state:
            add_common(value, is_common, digest)
    elif is_common and state is not None:
        digest.update(np.asarray(state).tobytes())
