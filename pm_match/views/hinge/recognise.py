"""Reads hinges: labels whose scores are affine in normal coefficients.

That a score is affine in a variable, and that it is random Fourier features of two others, is
checked numerically on the declared expression.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, MvNormalRV, NormalRV

from pm_match.reading.ancestry import RV, Refusal, kind, mean, names, parameters, read_each
from pm_match.reading.context import Context, Prior
from pm_match.reading.densities import (
    common,
    log_normal,
    must_be_analytic,
    same,
    still_common,
)
from pm_match.reading.operations import not_analytic
from pm_match.reading.parts import Part, Point, UnservedModelError
from pm_match.reading.probe import at_each, held_matrices, log_densities
from pm_match.views.hinge import HingeParts, fourier_values, read_hinge
from pm_match.views.hinge.frequencies import FrequencyPrior

_TESTS = 3
# Values of discrete variables that scores are looked at.
_DISCRETE_TESTS = 20
# Sizes of coefficients that scores are looked at, and factors that precisions are multiplied by.
_SIZES = (1.0, 1e-4, 1e4, 1e8)


@dataclass(frozen=True, eq=False)
class HingeModel(Part):
    r"""Labels under a hinge whose scores are affine in normal coefficients.

    .. math:: f = F \beta + o, \quad \beta_{pk} \sim N(0, 1/v)

    for N objects, P coefficients, and K columns of scores: one, or one for every class.
    """

    name: str  # the observed labels
    coefficients: str  # the variable beta, of shape (P,) or (P, K)
    shape: tuple[int, int]  # (P, K)
    # (N, K): +1 and -1; 0 for objects without a label
    labels: NDArray[np.float64] = field(repr=False)
    # the variable v if it has a Gamma prior and nothing else depends on it, so that its
    # conditional is a Gamma too
    precision: str | None
    # latent, frequencies: If the score is `fourier_features(latent, frequencies) @ coefficients`:
    # the variables, None for the one that is constant, if one is. Else None.
    latent: str | None
    frequencies: str | None
    # whether the frequencies have a normal prior and nothing else depends on them, so that our
    # steps may draw them
    adapts: bool
    _C: Callable[[Point], Any] = field(repr=False)
    _prior: Prior = field(repr=False)
    _gamma: Prior | None = field(repr=False)
    _scores: Callable[[Point], Any] | None = field(repr=False)
    # from a point to latent vectors (N, m) and frequencies (M, m), where there are any
    fourier: Any = field(repr=False)
    frequency_prior: Any = field(repr=False)  # from a point to the frequencies' `FrequencyPrior`
    components: tuple[str, ...]  # the assignments of the frequencies
    # Whether the coefficients are declared as a matrix.
    _columns: bool = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The free variables that our steps draw for it."""
        precision = [self.precision] if self.precision else []
        frequencies = [self.frequencies] if self.adapts and self.frequencies else []
        return [self.coefficients, *precision, *frequencies]

    @property
    def relabelled(self) -> list[str]:
        """Variables of which waves in another order, or the other way round, say the same."""
        return [self.coefficients, self.frequencies] if self.frequencies else []

    @property
    def unordered(self) -> Collection[str]:
        """The assignments of the frequencies."""
        return self.components

    def C(self, point: Point) -> float:
        """Evaluate C at a `point` of value variables."""
        return float(self._C(point)[0])

    def prior_precision(self, point: Point) -> float:
        """Evaluate v, the precision of the coefficients' prior."""
        of, advice = f"the prior of {self.coefficients!r}", "Sample them by pm.NUTS"
        return float(still_common(self._prior(point)[1], 0, of, advice))

    def precision_prior(self, point: Point) -> tuple[float, float]:
        """Evaluate shape and rate of the Gamma prior of v, where `precision` is one."""
        assert self._gamma is not None
        shape, rate = self._gamma(point)
        return float(shape), float(rate)

    def design(self, point: Point) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Evaluate the features F (N, P), and the offset (N, K) or None for none."""
        if self.fourier is not None:
            return fourier_values(*self.fourier(point)), None
        assert self._scores is not None
        features, offset, score, coefficients = self._scores(point)
        beta = coefficients.reshape(self.shape)
        size = np.abs(features) @ np.abs(beta) + np.abs(offset) * (1.0 + np.abs(beta).sum())
        away = score.reshape(offset.shape) - features @ beta - offset
        if not (np.abs(away) <= 1e-4 * size.max(initial=0.0)).all():
            raise UnservedModelError(
                f"the score of {self.name!r}: expected one that is affine in "
                f"{self.coefficients!r}, as it was wherever the model was read; found a draw at "
                "which it is not. Sample them by pm.NUTS"
            )
        return features, offset

    def start(self, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
        """Start from no coefficients, and frequencies that turn vectors by about one radian."""
        values: dict[str, NDArray] = {}
        p, k = self.shape
        values[self.coefficients] = np.zeros((p, k) if self._columns else p)
        if self.precision:
            values[self.precision] = np.asarray(np.exp(0.5 * rng.standard_normal()))
        if self.adapts and self.frequencies:
            latent, frequencies = self.fourier(point)
            # Free vectors are standard normal, by the scale of their prior.
            square = frequencies.shape[1] if self.latent else np.square(latent).sum(1).mean()
            drawn = rng.standard_normal(frequencies.shape)
            values[self.frequencies] = drawn / np.sqrt(square or 1.0)
        return values


def hinge_models(context: Context) -> tuple[list[Part], dict[str, str]]:
    """Read the hinges of a model.

    Return `parts`: one for every variable in which the score of a hinge is affine, as `HingeModel`
    has it; `refused`: by variable, why it is left to PyMC.
    """
    hinges = [(rv, read_hinge(rv)) for rv in context.model.observed_RVs]
    found, refused = read_each(
        [(rv, declared) for rv, declared in hinges if declared is not None],
        lambda own: _read(context, *own),
        lambda own: [own[0].name],
    )
    for _, why in found:
        refused |= why
    return [part for parts, _ in found for part in parts], refused


def _read(context: Context, rv: RV, declared: HingeParts):
    parents = sorted(context.ancestry.of([declared.score]), key=lambda parent: parent.name)
    for parent in parents:
        context.must_be_free(parent)
    score = _Score(context, declared.score, parents)
    labels = _labels(context, rv, declared, score.shape[1])
    if len(labels) != score.shape[0]:
        raise Refusal(f"it has {len(labels)} labels and {score.shape[0]} scores")
    parts: list[HingeModel] = []
    reasons: list[str] = []
    refused: dict[str, str] = {}
    for candidate in parents:
        if not _same_columns(candidate, declared.score):
            continue
        try:
            _check_coefficients(context, rv, declared, candidate, score)
        except Refusal as refusal:
            reasons.append(str(refusal))
            continue
        part, why = _hinge_model(context, rv, declared, labels, candidate, score)
        parts.append(part)
        refused |= why
    if not parts:
        what = "; ".join(reasons) or "no free pm.Normal of as many columns enters it"
        raise Refusal(f"expected a score that is affine in normal coefficients with mean 0: {what}")
    return parts, refused


def _same_columns(candidate: RV, score: RV) -> bool:
    return isinstance(candidate.owner.op, NormalRV) and candidate.ndim == score.ndim


def _labels(context: Context, rv: RV, declared: HingeParts, n_columns: int) -> NDArray[np.float64]:
    """Read the labels (N, K)."""
    # A `pm.Data`, which PyMC holds in 32 bits, is cast.
    codes = context.observed([rv])
    if not declared.classes:
        return codes[:, None]
    labels = np.where(codes[:, None] == np.arange(n_columns), 1.0, -1.0)
    labels[codes < 0] = 0.0
    return labels


class _Score:
    """The declared score as a function of the random variables that enter it."""

    def __init__(self, context: Context, score: RV, parents: list[RV]):
        self.parents = parents
        self._function = context.function([score], parents)
        self._context, self._natural = context, context.at(parents)
        self._codes = _codes(context, [p for p in parents if not p.dtype.startswith("float")])
        start = self(dict(zip(parents, self._natural(context.start), strict=True)))
        self.shape = start.shape

    def draws(self, rng: np.random.Generator, spreads: Sequence[float]):
        """Draw values of the variables, with nothing special about them, as far from the start."""
        for number in range(max(len(spreads), *(len(own) for own in self._codes.values()), 0)):
            point = self._context.near(rng, spreads[number % len(spreads)])
            values = dict(zip(self.parents, self._natural(point), strict=True))
            yield values | {rv: own[number % len(own)] for rv, own in self._codes.items()}

    def __call__(self, values: dict[RV, NDArray]) -> NDArray[np.float64]:
        """Evaluate the scores (N, K)."""
        (found,) = self._function(values)
        return found[:, None] if found.ndim == 1 else found


def _codes(context: Context, variables: list[RV]) -> dict[RV, NDArray]:
    """Make values of discrete variables: all that labels and flags have, draws of others."""
    rng = np.random.default_rng(20171130)
    found, others = {}, []
    for rv in variables:
        n = _n_values(context, rv)
        if n is None:
            others.append(rv)
            continue
        # Every entry takes every value, however rare, in an order of its own.
        rounds = np.arange(n).reshape(n, *(1 for _ in context.shapes[rv.name]))
        rounds = np.broadcast_to(rounds, (n, *context.shapes[rv.name]))
        orders = [rng.permuted(rounds, axis=0) for _ in range(-(-_DISCRETE_TESTS // n))]
        found[rv] = np.concatenate(orders).astype(rv.dtype)
    if not others:
        return found
    try:
        drawn = pm.draw(others, _DISCRETE_TESTS, random_seed=20171130)
    except NotImplementedError as error:
        raise Refusal(
            f"the score depends on {names(others)}, which cannot be drawn: {error}"
        ) from error
    return found | dict(zip(others, drawn, strict=True))


def _n_values(context: Context, rv: RV) -> int | None:
    """Return how many values a label or a flag has, from zero; None for other variables."""
    if isinstance(rv.owner.op, BernoulliRV):
        return 2
    if not isinstance(rv.owner.op, CategoricalRV):
        return None
    (probabilities,) = context.at(parameters(rv))(context.start)
    return probabilities.shape[-1]


def _check_coefficients(context, rv, declared, candidate, score) -> None:
    """Refuse what is not N(0, 1/v), or what the score is not affine in."""
    name = candidate.name
    context.must_be_plain(candidate, ())
    must_be_analytic(context, candidate, lambda own: [mean(own)])
    context.ancestry.only_children(candidate, [rv], drawn=True)
    if candidate in context.ancestry.of([declared.C]):
        raise Refusal(f"C depends on {name!r}")
    prior = context.normal_prior(candidate)
    for centre, precision in map(prior, (*_points(context), context.start)):
        if np.any(centre != 0.0):
            raise Refusal(f"{name!r} has another prior mean than 0")
        if common(precision) is None:
            raise Refusal(f"{name!r} has more than one prior precision")
    rng = np.random.default_rng(20181007)
    shape = context.shapes[name]
    for number, values in enumerate(score.draws(rng, (0.7,) * len(_SIZES))):

        def at(beta, values=values):
            return score(values | {candidate: beta})

        base = at(np.zeros(shape))
        # What is clipped, or a threshold, is affine at some sizes only.
        one, other = _SIZES[number % len(_SIZES)] * rng.normal(size=(2, *shape))
        first, second = at(one) - base, at(other) - base
        together = at(2.0 * one - 3.0 * other) - base
        if not _close(together, 2.0 * first - 3.0 * second, base):
            raise Refusal(f"the score is not affine in {name!r}")
        if len(shape) == 2:
            # Every column of scores has its own column of coefficients, and all the same features:
            # of multiples of one column they are the same multiples. No mix of columns is that.
            multiples = rng.normal(size=shape[1])
            alike = at(np.repeat(one[:, :1], shape[1], axis=1)) - base
            multiplied = at(one[:, :1] * multiples) - base
            if not (
                np.shape(alike)[1] == shape[1]
                and _close(multiplied, alike[:, :1] * multiples, base)
            ):
                raise Refusal(f"columns of {name!r} enter more than their own column of the score")


def _close(found, expected, base=0.0) -> bool:
    """Whether scores agree, but for rounding and for that of the `base` subtracted from them."""
    tolerance = 1e-7 * np.abs(expected).max(initial=0.0) + 1e-12 * np.max(np.abs(base), initial=0.0)
    return bool((np.abs(found - expected) <= tolerance).all())


def _points(context: Context):
    """Make random points of the value variables."""
    rng = np.random.default_rng(20110301)
    return [context.near(rng, 0.5) for _ in range(_TESTS)]


def _hinge_model(context, rv, declared, labels, candidate, score):
    shape, prior = context.shapes[candidate.name], context.normal_prior(candidate)
    precision = _gamma_precision(context, candidate, prior)
    latent, frequencies, fourier = _fourier(context, declared, candidate, score)
    frequency_prior, refused = None, {}
    if frequencies is not None:
        try:
            frequency_prior = _frequency_prior(context, rv, declared, frequencies)
        except Refusal as refusal:
            refused[frequencies.name] = str(refusal)
    scores = None
    if fourier is None:
        scores = context.at([*_at_units(declared, candidate, shape), declared.score, candidate])
    part = HingeModel(
        name=rv.name,
        coefficients=candidate.name,
        shape=(shape[0], shape[1] if len(shape) == 2 else 1),
        labels=labels,
        precision=precision.name if precision is not None else None,
        latent=latent.name if latent is not None else None,
        frequencies=frequencies.name if frequencies is not None else None,
        adapts=frequency_prior is not None,
        _C=context.at([declared.C]),
        _prior=prior,
        _gamma=context.gamma_prior(precision) if precision is not None else None,
        _scores=scores,
        fourier=fourier,
        frequency_prior=frequency_prior,
        components=_assignments_of(context, frequencies),
        _columns=len(shape) == 2,
    )
    return part, refused


def _at_units(declared: HingeParts, candidate: RV, shape):
    """Express features F (N, P) and offset (N, K): scores at unit coefficients and at none."""
    units = np.vstack([np.zeros(shape[0]), np.eye(shape[0])])
    if len(shape) == 2:
        units = np.repeat(units[:, :, None], shape[1], axis=2)
    scores = at_each(declared.score, candidate, units)
    if len(shape) == 1:
        scores = scores[:, :, None]
    return [(scores[1:, :, 0] - scores[0, :, 0]).T, scores[0]]


def _gamma_precision(context: Context, candidate: RV, prior: Prior) -> RV | None:
    """Return the Gamma variable that is the precision of the coefficients."""
    parents = context.ancestry.parents[candidate]
    if len(parents) != 1:
        return None
    (parent,) = parents
    alone = context.ancestry.children(parent) == [candidate]
    if not (context.is_gamma(parent) and parent.ndim == 0 and alone):
        return None
    natural = context.at([parent])
    for point, size in product(_points(context), _SIZES):
        # What is cut off is the variable itself in places only.
        moved = context.multiplied(point, parent, size)
        if not np.allclose(prior(moved)[1], natural(moved), rtol=1e-9, atol=0.0):
            return None
    return parent


def _fourier(context: Context, declared: HingeParts, candidate: RV, score: _Score):
    """Find the vectors and frequencies of which a score is random Fourier features.

    Return `latent`, `frequencies`: one of them may be constant; `read`: from a point to their
    values.
    """
    others: list[Any] = [parent for parent in score.parents if parent is not candidate]
    shapes = [context.shapes[rv.name] for rv in others]
    if (
        len(others) in (1, 2)
        # What is cut off has these features in places only.
        and not not_analytic(context.model, [declared.score])
        and all(map(len, shapes))
        and not any(map(context.transformed, others))
    ):
        n_features = context.shapes[candidate.name][0]
        second = others[1:] or held_matrices(declared.score, shapes[0][-1])
        for one, other in product(others[:1], second):
            for pair in ((one, other), (other, one)):
                held = [isinstance(own, np.ndarray) for own in pair]
                read = _reader(
                    own if known else context.key(own)
                    for own, known in zip(pair, held, strict=True)
                )
                (n, *m), (n_waves, *k) = map(np.shape, read(context.start))
                fits = (n, m, 2 * n_waves + 1) == (score.shape[0], k, n_features)
                if fits and len(m) == 1 and _is_fourier(score, candidate, _reader(pair)):
                    free = [None if known else own for own, known in zip(pair, held, strict=True)]
                    return *free, read
    return None, None, None


def _reader(pair: Iterable[Any]) -> Callable[[Mapping[Any, NDArray]], tuple[NDArray, ...]]:
    """Make a reader of two arrays, each constant or the key that a mapping has it by."""
    both = tuple(pair)
    return lambda values: tuple(own if isinstance(own, np.ndarray) else values[own] for own in both)


def _is_fourier(score: _Score, candidate: RV, read: Callable) -> bool:
    rng = np.random.default_rng(20070312)
    for values in score.draws(rng, (0.7, 0.07, 7.0)):
        found, beta = score(values), values[candidate]
        features = fourier_values(*map(np.asarray, read(values)))
        if not _close(found, features @ (beta if beta.ndim == 2 else beta[:, None])):
            return False
    return True


def _assignments_of(context: Context, frequencies: RV | None) -> tuple[str, ...]:
    above = context.ancestry.parents[frequencies] if frequencies is not None else ()
    return tuple(sorted(rv.name for rv in above if isinstance(rv.owner.op, CategoricalRV)))


def _frequency_prior(context: Context, rv: RV, declared: HingeParts, frequencies: RV):
    """Make a function of a point: means and Cholesky factors of the frequencies' normal prior."""
    op = frequencies.owner.op
    if not isinstance(op, NormalRV | MvNormalRV):
        raise Refusal(
            f"the frequencies {frequencies.name!r} are a {kind(frequencies)}; expected a Normal or "
            "an MvNormal"
        )
    if frequencies.dtype != "float64":
        raise Refusal(f"{frequencies.name!r} is {frequencies.dtype}; expected float64")
    if frequencies in context.ancestry.of([declared.C]):
        raise Refusal(f"C depends on the frequencies {frequencies.name!r}")
    others = context.ancestry.strangers(frequencies, [rv])
    if others:
        raise Refusal(f"{names(others, 'depends')} on the frequencies {frequencies.name!r} too")
    read = context.at(parameters(frequencies))
    n, m = context.shapes[frequencies.name]
    normal = isinstance(op, NormalRV)

    def prior(point):
        centre, spread = read(point)
        if normal:
            factors = np.zeros((n, m, m))
            factors[:, range(m), range(m)] = spread
        else:
            factors = np.linalg.cholesky(spread)
        return FrequencyPrior(np.broadcast_to(centre, (n, m)), np.broadcast_to(factors, (n, m, m)))

    _check_declared(context, frequencies, prior)
    return prior


def _label_counts(context: Context, frequencies: RV) -> dict[str, int]:
    """Return how many values the labels and flags have that the frequencies depend on."""
    counts = {
        context.key(parent): _n_values(context, parent)
        for parent in context.ancestry.parents[frequencies]
        if parent in context.model.free_RVs
    }
    return {name: n for name, n in counts.items() if n is not None}


def _check_declared(context: Context, frequencies: RV, prior) -> None:
    """Hold the normal prior that was read against the declared density."""
    declared = log_densities(context.model, [frequencies])
    rng = np.random.default_rng(20130601)
    key, labels = context.key(frequencies), _label_counts(context, frequencies)
    for point in _points(context):
        point |= {name: rng.integers(n, size=point[name].shape) for name, n in labels.items()}
        try:
            own = prior(point)
        except np.linalg.LinAlgError:
            # Without its transform, a covariance need not be one there.
            point = context.start | {key: point[key]}
            own = prior(point)
        expected = log_normal(own.whitened(point[key]), 0.0, 1.0).sum(axis=1)
        expected -= np.log(np.diagonal(own.factors, axis1=1, axis2=2)).sum(axis=1)
        found = declared(point)[frequencies]
        if not same(found.sum(axis=1) if found.ndim == 2 else found, expected):
            raise Refusal(
                f"the declared density of the frequencies {frequencies.name!r} is not the normal "
                "one that its parameters say (PyMC mistakes batches of covariances: declare "
                "chol=, not cov=)"
            )
