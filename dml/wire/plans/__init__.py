"""Topologies, schedules, pipelines and partitions, without communication."""
