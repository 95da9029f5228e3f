"""Reducers: how the gradients of all ranks become their mean."""
