"""Networks: params and a minibatch in, loss and metrics out."""
