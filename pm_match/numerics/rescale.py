r"""Exchange of scale between projections and latent vectors: what alternate Gibbs draws cannot do.

Projections :math:`W` and latent vectors :math:`z_j` enter the likelihood through :math:`W z_j`
only, so :math:`(W A^{-1}, A z_j)` explains the data as well for every invertible :math:`A`. With as
many factors as clusters the posterior is thin across these orbits and wide along them, and draws of
one given the other creep. Here :math:`A` itself is drawn: along a random unit vector :math:`u`,

.. math:: A_t = I + (e^t - 1) u u^\top, \qquad
          \log p(t) = \log p(W A_t^{-1}) + \sum_j \log p(A_t z_j) + (J - M) t + \mathrm{const},

where the last term is the Jacobian for J latent vectors and M rows of W. The scalings along all
directions generate the stretches and shears of the factors; rotations change no density that is
spherical. Drawing from a conditional along the orbits of a group leaves the posterior invariant: J.
S. Liu & C. Sabatti (2000), "Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian
computation", Biometrika 87(2), theorem 1.
"""

from math import exp, sqrt

from pm_match.numerics.cholesky import dot
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.slices import slice_of

# Of the slice sampler, in log scale: a first guess at the width of the conditional.
_WIDTH = 0.2
_MOST_STEPS = 50


@part
def _log_density(t, quadratic, linear, square, exponent):
    shrunk = exp(-t) - 1.0
    grown = exp(2.0 * t) - 1.0
    return exponent * t - 0.5 * quadratic * grown - linear * shrunk - 0.5 * square * shrunk * shrunk


@part
def _slice(rng, quadratic, linear, square, exponent):
    """Draw t by one update of a slice sampler that starts at 0."""
    given = quadratic, linear, square, exponent
    return slice_of(rng, _log_density, given, 0.0, _WIDTH, _MOST_STEPS)


@entry
def rescale(rng, w, mean, precision, z, tau, n_directions, u, along):
    """Draw the scale along `n_directions` random directions, updating `w` and `z` in place.

    `w` (M, K): projections of all domains; `mean`, `precision` (M, K): of their independent normal
    priors; `z` (J, K): latent vectors of the occupied clusters; the others are to be drawn anew
    afterwards. `tau`: prior precision of the latent vectors; `u` (K,), `along` (M + J,): scratch.
    """
    n_features, n_factors = w.shape
    n_clusters = z.shape[0]
    for _ in range(n_directions):
        _draw_direction(rng, u)
        quadratic = 0.0
        for j in range(n_clusters):
            own = dot(z[j], u)
            along[n_features + j] = own
            quadratic += own * own
        linear = 0.0
        square = 0.0
        for m in range(n_features):
            own = dot(w[m], u)
            along[m] = own
            # Sums of each row's own: one row need not wait for the other.
            pull = 0.0
            width = 0.0
            for k in range(n_factors):
                weight = precision[m, k] * u[k]
                pull += weight * (w[m, k] - mean[m, k])
                width += weight * u[k]
            linear += own * pull
            square += own * own * width
        t = _slice(rng, tau * quadratic, linear, square, n_clusters - n_features)
        _stretch_rows(z, exp(t) - 1.0, along[n_features:], u)
        _stretch_rows(w, exp(-t) - 1.0, along, u)


@entry
def rescale_axes(rng, quadratic, exponent, rows, pulls, precisions, t):
    r"""Draw the scales of single factors where other vectors shrink as projections do.

    Frequencies :math:`\omega_j \sim N(\mu_j, P_j^{-1})` score latent vectors by
    :math:`\omega_j^\top z`: if factor k of :math:`z` is multiplied by :math:`e^t` and that of
    every :math:`\omega_j` by :math:`e^{-t}`, scores stay what they are. With precisions of
    projections that grow by :math:`e^{2t}` (see `FactorGibbs`), what is left of the densities is

    .. math:: -\tfrac12 q_k (e^{2t} - 1)
              - \sum_j \bigl[\tfrac12 (e^{-t} - 1)^2 P_{jkk} \omega_{jk}^2
              + (e^{-t} - 1) \omega_{jk} (P_j (\omega_j - \mu_j))_k\bigr] + \mathrm{exponent}_k\, t.

    `quadratic` (K,): q: of latent vectors, the sum of their squares times their precision; of every
    Gamma precision, twice its rate times its value. `exponent` (K,): latent vectors less
    frequencies, and twice the shapes of the Gamma precisions; `rows` (M, K): frequencies; updated.
    `pulls` (M, K): :math:`P_j (\omega_j - \mu_j)`; updated. `precisions` (M, K, K); `t` (K,):
    overwritten by what was drawn.
    """
    n_rows, n_factors = rows.shape
    for k in range(n_factors):
        linear = 0.0
        square = 0.0
        for j in range(n_rows):
            linear += pulls[j, k] * rows[j, k]
            square += precisions[j, k, k] * rows[j, k] * rows[j, k]
        t[k] = _slice(rng, quadratic[k], linear, square, exponent[k])
        shrunk = exp(-t[k]) - 1.0
        for j in range(n_rows):
            step = shrunk * rows[j, k]
            rows[j, k] += step
            for i in range(n_factors):
                pulls[j, i] += precisions[j, i, k] * step


@part
def _draw_direction(rng, u):
    """Fill `u` with a random direction."""
    for k in range(u.shape[0]):
        u[k] = rng.standard_normal()
    norm = sqrt(dot(u, u))
    for k in range(u.shape[0]):
        u[k] /= norm


@part
def _stretch_rows(matrix, s, along, u):
    """Multiply a matrix by I + s u u' from the right; `along`: its product with u."""
    for i in range(matrix.shape[0]):
        for j in range(u.shape[0]):
            matrix[i, j] += s * along[i] * u[j]
