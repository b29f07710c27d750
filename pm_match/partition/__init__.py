"""Who is with whom: the prior on partitions, linked objects, the Gibbs sweep and its moves.

Arrays in, arrays out: nothing here knows of PyMC.
"""
