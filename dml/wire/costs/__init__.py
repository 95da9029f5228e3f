"""Seconds and words by alpha, beta and gamma: pure arithmetic."""
