"""Stage 3: the one place where numbers leave a worker; three media, a folder each."""
