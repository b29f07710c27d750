"""Search for a good mode of what the steps sample: greedy, and no part of a Markov chain."""
