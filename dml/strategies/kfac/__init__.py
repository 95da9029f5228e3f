"""K-FAC: gradients times the inverse curvature of dense layers."""
