"""Small images with their classes."""
