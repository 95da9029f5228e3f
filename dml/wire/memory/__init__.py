"""Memory shared by the ranks of a host: windows, compiled loops, locking policies."""
