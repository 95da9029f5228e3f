"""Parameters, sums of gradients and rounds that several strategies share."""
