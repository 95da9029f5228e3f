"""GloVe's Problem, and its strategies for devices and servers."""
