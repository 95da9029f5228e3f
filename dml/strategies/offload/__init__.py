"""Training with buffers that move between device and host memory by a plan."""
