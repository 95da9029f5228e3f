"""Modules of the pipeline command."""
