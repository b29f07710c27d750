"""One huge data set: the sampler over shards."""
