"""Reducers: reductions of the gradients of all ranks to their mean."""

from importlib import import_module
from typing import Any

from dml.wire.reducers.exact import exact as exact
from dml.wire.reducers.names import REDUCERS
from dml.wire.reducers.names import reducer as reducer


def __getattr__(name: str) -> Any:
    """Import a reducer at its first use: most need a compiler of kernels."""
    if name not in REDUCERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    maker = REDUCERS[name]
    return getattr(import_module(f"{__name__}.{maker.module}"), maker.function)
