"""BATCH: files or seeds in, minibatches out."""
