"""Ways of training sparse models, each a generator of Step, an epoch each."""
