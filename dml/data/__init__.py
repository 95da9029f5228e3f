"""Data sets: files or seeds in, minibatches out."""
