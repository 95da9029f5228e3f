"""Training on parameter servers: what their workers do, and what they learn."""
