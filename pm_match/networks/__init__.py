"""Block networks: a distribution over sparse networks whose objects are in clusters.

Nothing here is ever as large as the matrix: log probability, gradients and random draws take time
and memory in proportion to the stored cells, the objects and the blocks (pairs of clusters).
"""

from pm_match.networks import log_density  # noqa: F401  registers the log probability
from pm_match.networks.declare import BlockNetwork
from pm_match.networks.op import BlockNetworkParts, BlockNetworkRV, read_block_network

__all__ = ["BlockNetwork", "BlockNetworkParts", "BlockNetworkRV", "read_block_network"]
