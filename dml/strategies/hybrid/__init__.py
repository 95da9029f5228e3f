"""Model parallelism: layers over stages, matrices over tensor, examples over data."""
