"""Counting on ranks: from pieces of text to one file of co-occurrence records."""
