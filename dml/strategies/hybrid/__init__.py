"""Model parallel: layers over stages, matrices over tensor, examples over data."""
