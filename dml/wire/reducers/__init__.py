"""Reducers: reductions of the gradients of all ranks to their mean."""

from dml.wire.reducers.exact import exact as exact
