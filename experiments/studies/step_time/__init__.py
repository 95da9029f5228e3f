"""Modules of the step time command."""
