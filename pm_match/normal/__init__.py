"""A kind: normal clusters, their means and precisions integrated out."""
