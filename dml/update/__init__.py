"""Optimizers: params and gradients in, new params out."""
