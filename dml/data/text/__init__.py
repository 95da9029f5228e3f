"""Corpora, tokens, vocabularies and co-occurrence counts."""
