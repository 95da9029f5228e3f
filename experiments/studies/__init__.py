"""What one command, or one family of commands, needs."""
