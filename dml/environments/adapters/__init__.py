"""Environments of other packages, with next-step reset and in float32."""
