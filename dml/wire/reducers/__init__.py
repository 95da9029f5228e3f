"""Reducers: reductions of all ranks' gradients to their mean."""
