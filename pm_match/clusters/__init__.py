"""The core: partitions, the one Gibbs kernel, and its steps, for evidence of any kind."""
