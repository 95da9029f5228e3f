"""Params and gradients in, new params out."""
