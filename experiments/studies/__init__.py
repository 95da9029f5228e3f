"""Code of one command or of one family of commands."""
