"""The training and the figure of boosting.py."""
