"""Updates: params and gradients in, new params out."""
