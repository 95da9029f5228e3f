"""Minibatches in, loss and gradient out; one paper a file."""
