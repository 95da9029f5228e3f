"""Schedules of pipelines, their parts, times and templates."""
