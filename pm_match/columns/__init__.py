"""Independent columns of conjugate exponential families, parameters integrated out."""
