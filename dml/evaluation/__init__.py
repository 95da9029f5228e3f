"""Scores, demonstrations and files of trained models."""
