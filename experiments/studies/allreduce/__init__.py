"""Modules of the allreduce command."""
