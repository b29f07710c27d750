"""Where chains on feature vectors start."""
