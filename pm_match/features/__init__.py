"""A kind: feature vectors around the latent vectors of their clusters."""
