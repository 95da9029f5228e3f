"""Virtual networks, one a file: pure arithmetic, vectorised over messages."""
