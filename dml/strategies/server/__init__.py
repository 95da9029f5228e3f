"""Training on parameter servers."""
