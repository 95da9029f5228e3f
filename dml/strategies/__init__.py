"""Ways of training, each a generator of Step that composes the stages; and counting."""
