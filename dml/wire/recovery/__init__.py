"""Recovery of the states of ranks that died."""
