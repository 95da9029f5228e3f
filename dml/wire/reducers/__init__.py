"""Reducers: reductions of all ranks' gradients to their mean."""

from dml.wire.reducers.exact import exact as exact
