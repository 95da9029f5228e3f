"""Networks and sparse problems: loss and gradient of a minibatch."""
