"""Tables of features and targets: real sets and seeded generators."""
