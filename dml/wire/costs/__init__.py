"""Predicted seconds from the rates α, β and γ: pure arithmetic."""
