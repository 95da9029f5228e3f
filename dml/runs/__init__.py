"""Run folders: writers, checkpoints, records, energy."""
