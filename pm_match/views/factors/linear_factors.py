r"""Linear Gaussian factor models: conditionals of latents, loadings and precisions, from arrays.

Object :math:`n` is seen in view :math:`i` as :math:`x_{in} \sim N(a_i + L_i z_{in}, T_i^{-1})`,
with :math:`T_i = \mathrm{diag}(\tau_i)`, where :math:`z_{in}` puts the latents side by side that
enter the view: those it shares with other views, and private ones (A. Klami & S. Kaski, 2006,
"Generative models that discover dependencies between data sets"). What a view says of them is

.. math:: \log p(x_{in} \mid z) = -\tfrac12 z^\top A_p z + z^\top b_n + c_n, \qquad
          A_p = L_p^\top T_p L_p, \quad b_n = L_p^\top T_p (x_{np} - a_p),

where :math:`p` is the pattern of what is observed of the object: missing entries integrate to
one. Nothing here needs :math:`c_n`, in which there are no latents. All else is algebra on such
forms: products add them, conditioning substitutes, and integrating out latents :math:`u` is a Schur
complement,

.. math:: A_{hh} - A_{hu} A_{uu}^{-1} A_{uh}, \qquad b_h - A_{hu} A_{uu}^{-1} b_u,

which is :math:`W^\top \Psi^{-1} W` with :math:`\Psi = V V^\top + T^{-1}` by Woodbury's identity:
no matrix of features by features is ever made. There is one :math:`A` for each pattern, so that the
cost is linear in objects. Given latents, rows of :math:`L_i` have forms of the same kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.log_gamma import draw_log_gamma
from pm_match.numerics.masked import MaskedTable, pattern_grams
from pm_match.views.factors.row_solves import cholesky, row_products, solve_lower, solve_upper

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CanonicalForm:
    """Log densities -z' A_p z / 2 + z' b_n of each row's vector z, up to constants."""

    matrix: Array  # (P, k, k): A of every pattern
    linear: Array  # (N, k): b of every row
    index: NDArray[np.int64]  # (N,): the pattern of every row

    @property
    def size(self) -> int:
        """k, the length of the vectors."""
        return self.matrix.shape[1]

    def _others(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        others = np.ones(self.size, bool)
        others[places] = False
        return np.flatnonzero(others)

    def given(self, known: NDArray[np.int64], values: Array) -> "CanonicalForm":
        """Fix the entries `known` at `values` (N, q); a form of the others."""
        kept = self._others(known)
        cross = np.ascontiguousarray(self.matrix[:, known[:, None], kept])
        return CanonicalForm(
            np.ascontiguousarray(self.matrix[:, kept[:, None], kept]),
            self.linear[:, kept] - row_products(values, cross, self.index),
            self.index,
        )

    def with_prior(
        self, mean: Array, precision: Array, places: NDArray[np.int64] | None = None
    ) -> "CanonicalForm":
        """Multiply by independent normal densities.

        `mean`, `precision` (N, q) or what broadcasts to it. `places` (q,): the entries that they
        are of. Default: all. Return a form with as many patterns, or if precisions differ between
        rows with one for each row.
        """
        places = np.arange(self.size) if places is None else places
        shape = (len(self.linear), len(places))
        mean, precision = np.broadcast_to(mean, shape), np.broadcast_to(precision, shape)
        form = self if _equal_rows(precision) else self.spread
        added = precision[:1] if form is self else precision
        matrix = form.matrix.copy()
        matrix[:, places, places] += added
        linear = self.linear.copy()
        linear[:, places] += precision * mean
        return CanonicalForm(matrix, linear, form.index)

    def times(self, factor: Array) -> "CanonicalForm":
        """Raise densities to powers (N,), one for each row."""
        linear = self.linear * factor[:, None]
        if _equal_rows(factor):
            return CanonicalForm(self.matrix * factor[0], linear, self.index)
        spread = self.spread
        return CanonicalForm(spread.matrix * factor[:, None, None], linear, spread.index)

    @property
    def spread(self) -> "CanonicalForm":
        """The same with one pattern for each row."""
        own = np.arange(len(self.index))
        return CanonicalForm(self.matrix[self.index], self.linear, own)

    def without(self, gone: NDArray[np.int64]) -> "CanonicalForm":
        """Integrate out the entries `gone`, under whose form they must have a density."""
        kept = self._others(gone)
        lower = cholesky(self.matrix[:, gone[:, None], gone])
        # With L the factor of A_uu: what is subtracted are squares of L⁻¹ A_uh and L⁻¹ b_u.
        half = np.linalg.solve(lower, self.matrix[:, gone[:, None], kept])
        whitened = solve_lower(lower, self.index, self.linear[:, gone])
        matrix = self.matrix[:, kept[:, None], kept] - half.transpose(0, 2, 1) @ half
        linear = self.linear[:, kept] - row_products(whitened, half, self.index)
        return CanonicalForm(matrix, linear, self.index)

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw the vectors (N, k) from the normal densities that the form is proportional to."""
        lower = cholesky(self.matrix)
        whitened = solve_lower(lower, self.index, self.linear)
        whitened += rng.standard_normal(whitened.shape)
        return solve_upper(lower, self.index, whitened)

    @property
    def mean(self) -> Array:
        """Means (N, k) of the normal densities that the form is proportional to."""
        lower = cholesky(self.matrix)
        return solve_upper(lower, self.index, solve_lower(lower, self.index, self.linear))


def product(forms: Sequence[CanonicalForm], places: Sequence[NDArray], size: int) -> CanonicalForm:
    """Multiply forms of different entries of the same rows' vectors.

    `forms`: at least one; `places`: where the entries of each are in the vectors of the product;
    `size`: of these vectors.
    """
    if len(forms) == 1 and np.array_equal(places[0], np.arange(size)):
        return forms[0]
    linear = np.zeros((len(forms[0].index), size))
    if all(len(form.matrix) == 1 for form in forms):
        index, chosen = forms[0].index, np.zeros((len(forms), 1), np.int64)
    else:
        both, index = np.unique(
            np.stack([form.index for form in forms]), axis=1, return_inverse=True
        )
        index, chosen = index.reshape(-1), both
    matrix = np.zeros((chosen.shape[1], size, size))
    for form, place, own in zip(forms, places, chosen, strict=True):
        matrix[:, place[:, None], place] += form.matrix[own]
        linear[:, place] += form.linear
    return CanonicalForm(matrix, linear, index)


def likelihood(
    table: MaskedTable,
    loadings: Array,
    noise: Array,
    intercept: Array | None = None,
) -> CanonicalForm:
    """Find what a view says of its objects' latents, missing values integrated out.

    `table`: (N, D); `loadings` (D, k); `noise` (D,): precisions; `intercept` (D,). Return a form
    of N rows.
    """
    weighted = loadings * noise[:, None]
    linear = table.values @ weighted
    if intercept is not None:
        linear -= (table.patterns @ (weighted * intercept[:, None]))[table.index]
    return CanonicalForm(pattern_grams(table.patterns, loadings, noise), linear, table.index)


def loading_form(
    table: MaskedTable, design: Array, noise: Array, mean: Array, precision: Array
) -> CanonicalForm:
    r"""Conditional of the rows of loadings given the latents.

    Row :math:`d` has precision :math:`\mathrm{diag}(\rho_d) + \tau_d Z_d^\top Z_d`, with the
    objects in :math:`Z_d` in which the feature is observed.

    The design (N, K) holds the latents side by side, and a column of ones if there is an intercept;
    mean and precision (D, K) are those of the independent normal priors. The rest is as in
    `likelihood`.
    """
    form = likelihood(table.turned, design, np.ones(len(design)))
    return form.times(noise).with_prior(mean, precision)


def draw_shift(
    rng: np.random.Generator,
    latents: Array,
    prior: tuple[Array, Array],
    views: Sequence[tuple[Array, Array, tuple[Array, Array]]],
) -> Array:
    r"""Draw how far latents move if intercepts take it back: :math:`(z_n + c, a_i - L_i c)`.

    The likelihood does not see :math:`c`, and given latents and intercepts in turn they creep along
    it. Along the orbits of these translations the posterior is normal: a generalised Gibbs draw (J.
    S. Liu & C. Sabatti, 2000, Biometrika 87(2), theorem 1), whose Jacobian is one.

    `latents` (N, k); `prior`, pair of (N, k): mean and precision of the latents; `views`, sequence
    of (loadings, intercept, prior): of every view that the latents enter: (D, k), (D,), and mean
    and precision (D,) of the intercept. Return (k,): c.
    """
    mean, precision = prior
    matrix = np.diag(precision.sum(axis=0))
    linear = (precision * (mean - latents)).sum(axis=0)
    for loadings, intercept, (centre, inverse) in views:
        weighted = loadings * inverse[:, None]
        matrix += loadings.T @ weighted
        linear += weighted.T @ (intercept - centre)
    one = np.zeros(1, np.int64)
    return CanonicalForm(matrix[None], linear[None], one).draw(rng)[0]


def draw_log_precision(
    rng: np.random.Generator, shape: Array, rate: Array, n: Array, squares: Array
) -> Array:
    r"""Draw logs of precisions with a Gamma prior, given `n` values whose squares are summed.

    From :math:`\mathrm{Gamma}(a + n / 2, b + S / 2)`, all arguments arrays of one shape.
    """
    return draw_log_gamma(rng, shape + 0.5 * n) - np.log(rate + 0.5 * squares)


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum an array over all axes along which an array of `shape` would be repeated to its own."""
    extra = array.ndim - len(shape)
    array = array.sum(axis=tuple(range(extra)))
    repeated = tuple(axis for axis, n in enumerate(shape) if n == 1 and array.shape[axis] != 1)
    return array.sum(axis=repeated, keepdims=True) if repeated else array


def _equal_rows(array: Array) -> bool:
    return bool((array == array[:1]).all())
