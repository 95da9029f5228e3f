"""Parts of networks: attention, experts, norms, and their division."""
