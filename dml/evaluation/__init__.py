"""Scores of trained models."""
