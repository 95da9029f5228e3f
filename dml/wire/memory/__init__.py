"""The medium of one host: memory that all its ranks read and write."""
