"""Training without a centre: every rank has a replica, and replicas differ."""
