r"""Moves of a kernel's width that carry the coefficients along, scales of the labels aside.

Labels that can nearly all be told apart leave v small and scores large; the scales of
`views.hinge.scales` then hold all scores where they are, and with them the width of the kernel.
Here these are no part of the state. At frequencies :math:`\omega` and v, expectation propagation
(Minka 2001; Opper & Winther 2000) finds the normal distribution :math:`N(m, (L L^T)^{-1})` that
coefficients nearly have. Other frequencies and another v come with the coefficients

.. math:: \beta' = m' + L'^{-T} L^T (\beta - m),

accepted by the rule of Metropolis: the declared density there, over the one here, times
:math:`|L| / |L'|`, the Jacobian. What is found depends on frequencies, v and labels alone and not
on the coefficients, so that this is exact however good the approximation is.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk, dtrmm, dtrsv
from scipy.linalg.lapack import dtrtri
from scipy.special import log_ndtr

from pm_match.views.hinge import fourier_values
from pm_match.views.hinge.scales import factorise

# By how much of a variance sites may still change in the end.
_CLOSE, _MOST_ROUNDS = 0.1, 100


class Coefficients(NamedTuple):
    r"""Coefficients of Fourier features, at frequencies, with their normal approximation."""

    frequencies: NDArray[np.float64]  # (M, m)
    precision: float  # v
    values: NDArray[np.float64]  # (P, K)
    whitened: NDArray[np.float64]  # (P, K): L' (beta - m), column by column
    log_density: float  # of labels and coefficients, divided by the determinants of all L


class LabelledVectors(NamedTuple):
    """Vectors with labels."""

    latent: NDArray[np.float64]  # (N, m)
    labels: NDArray[np.float64]  # (N, K): 1, -1, or 0 for none
    C: float

    def at(self, frequencies: NDArray, precision: float, values: NDArray) -> Coefficients:
        """Whiten coefficients (P, K).

        Raise `LostPrecision` if v is lost beside what the labels say.
        """
        return self._of(frequencies, precision, values, None)

    def carried(self, now: Coefficients, frequencies: NDArray, precision: float) -> Coefficients:
        """Carry coefficients to other frequencies and another v; raises as `at` does."""
        return self._of(frequencies, precision, None, now.whitened)

    def _of(self, frequencies, precision, values, whitened) -> Coefficients:
        features = fourier_values(self.latent, frequencies)
        found, total = [], 0.0
        for k, labels in enumerate(self.labels.T):
            seen = np.flatnonzero(labels)
            own = features[seen] * labels[seen, None]
            mean, lower = approximate(own, self.C, precision)
            if whitened is None:
                beta = values[:, k]
                z = lower.T @ (beta - mean)
            else:
                z = whitened[:, k]
                beta = mean + dtrsv(lower, z, lower=1, trans=1)
            total -= 2.0 * self.C * np.maximum(0.0, 1.0 - own @ beta).sum()
            total += 0.5 * (len(beta) * np.log(precision) - precision * float(beta @ beta))
            total -= np.log(lower.diagonal()).sum()
            found.append((beta, z))
        values, whitened = (np.stack(both, axis=1) for both in zip(*found, strict=True))
        return Coefficients(frequencies, precision, values, whitened, float(total))


def approximate(
    features: NDArray[np.float64], C: float, precision: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Approximate coefficients under a hinge by a normal distribution.

    Expectation propagation, all sites at once: of :math:`e^{-2C \max(0, 1 - g)}`, with
    :math:`g \sim N(\mu, s^2)` when its own site is left out, zeroth moment and derivatives are

    .. math:: Z = A + B, \quad A = \Phi\left(\frac{\mu - 1}{s}\right), \quad
              B = e^{2C(\mu - 1) + 2C^2s^2} \, \Phi\left(\frac{1 - \mu}{s} - 2Cs\right), \\
              \alpha = (\log Z)' = 2C B / Z, \quad
              \nu = -(\log Z)'' = \alpha^2 - \frac{2C}{Z} \left(2CB -
              \frac1s \varphi\left(\frac{\mu - 1}{s}\right)\right),

    and the new site has precision :math:`\nu / (1 - \nu s^2)` and, times its mean,
    :math:`(\alpha + \mu\nu) / (1 - \nu s^2)`.

    `features` (n, P): times the labels, 1 or -1, of their objects; `precision`: of the
    coefficients' prior. Return `mean` (P,); `lower` (P, P): Cholesky factor of the precision
    matrix. Raise `LostPrecision` if the prior's precision is lost, to working precision, beside
    what sites say.
    """
    columns = np.asfortranarray(features.T)
    # Where v is small, so are most sites in the end.
    sites = np.full(len(features), precision)
    pulls = 2.0 * sites
    for _ in range(_MOST_ROUNDS):
        lower = factorise(dsyrk(1.0, columns * np.sqrt(sites), lower=1), precision)
        solved = dtrsv(lower, columns @ pulls, lower=1)
        # Half the time of solving for every column.
        roots = dtrmm(1.0, dtrtri(lower, lower=1)[0], columns, lower=1)
        variances = np.maximum(np.einsum("pn,pn->n", roots, roots), np.finfo(np.float64).tiny)
        # Without its own site: kept positive, as rounding might not.
        left = np.maximum(1.0 / variances - sites, 1e-3 / variances)
        middle, s = (solved @ roots / variances - pulls) / left, left**-0.5
        z = (middle - 1.0) / s
        log_b = 2.0 * C * (middle - 1.0 + C * s * s) + log_ndtr(-z - 2.0 * C * s)
        log_z = np.logaddexp(log_ndtr(z), log_b)
        slope = 2.0 * C * np.exp(log_b - log_z)
        density = np.exp(-0.5 * z * z - log_z) / (np.sqrt(2.0 * np.pi) * s)
        bend = slope * (slope - 2.0 * C) + 2.0 * C * density
        rest = np.maximum(1.0 - bend * s * s, 1e-6)
        new = np.maximum(bend / rest, 1e-14)
        change = np.abs((new - sites) * variances).max(initial=0.0)
        sites, pulls = new, (slope + middle * bend) / rest
        if change < _CLOSE:
            break
    return dtrsv(lower, solved, lower=1, trans=1), lower
