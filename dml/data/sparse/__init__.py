"""Sparse rows: graphs, hypergraphs, ratings and feature vectors."""
