"""Ways of training GloVe, each a generator of Step, an epoch each."""
