"""Memory that the ranks of a host share: windows, compiled loops, locking policies."""
