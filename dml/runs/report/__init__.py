"""The HTML page of run folders."""
