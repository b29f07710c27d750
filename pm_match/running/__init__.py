"""Running chains: all steps of an iteration as one, Ctrl-C, and what is kept on disk."""
