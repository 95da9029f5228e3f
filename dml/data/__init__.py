"""Data sets, read from files or generated from seeds, and their minibatches."""
