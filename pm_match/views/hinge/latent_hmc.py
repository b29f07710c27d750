"""Hamiltonian Monte Carlo for latent vectors that views see linearly, and labels do not."""

from math import exp, log, pi
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import dataclass_state

from pm_match.checks import check_count, check_flag
from pm_match.clusters.points import Writer
from pm_match.clusters.step import PartitionStep, PartitionStepState
from pm_match.numerics.rescale import rescale_axes
from pm_match.reading.parts import Structure
from pm_match.views.factors.linear_factors import draw_shift
from pm_match.views.factors.points import FactorPoints
from pm_match.views.factors.recognise import Factor, GammaPrecision, Intercept
from pm_match.views.hinge import turn_coefficients
from pm_match.views.hinge.frequencies import distinct
from pm_match.views.hinge.hinge_latent import HingeTerm, SummedTerm
from pm_match.views.hinge.labelled_latents import LabelledLatent
from pm_match.views.hinge.recognise import HingeModel
from pm_match.views.hinge.split_hmc import NormalPart, draw_latent, jump_latent

# Steps start, and may become, as large as this: at a quarter turn what is normal is drawn anew.
_LARGEST = 0.5 * pi
_SMALLEST = 1e-3
# Of the Robbins-Monro search for the step size: how fast its corrections shrink.
_DECAY = 0.6


@dataclass_state
class LatentHMCState(PartitionStepState):
    """What a chain changes in the step."""

    tune: bool
    log_step: float
    n_tuned: int


class LatentHMC(PartitionStep):
    r"""Draw the latent vectors that views share and hinges score by their Fourier features.

    Private latent vectors, missing values and the hinges' scales are integrated out, so that object
    n has a density of its own,

    .. math:: \log p(h_n \mid \ldots) = -\tfrac12 (h - \mu_n)^\top P_n (h - \mu_n)
              - 2C \sum_s \max\{0, 1 - y_{ns} f_s(h)\} + \mathrm{const}.

    All objects move together by Hamiltonian Monte Carlo, in coordinates in which the normal part is
    standard and is moved exactly (`evidence.split_hmc`), and each accepts or rejects on its own;
    then each is offered a draw from its normal part. Objects without a label are drawn from
    theirs, exactly. Private latent vectors and missing values follow from their conditionals.

    Last, what neither views nor labels see, and along which draws of one given the others creep.
    Every factor exchanges its scale with its column of projections, the precision of that, and the
    frequencies (see `evidence.rescale`), if our steps may draw these, and columns are around 0 with
    a Gamma precision each. And all latent vectors move by some c if every view that they enter has
    an intercept: :math:`(h_n + c, a_i - W_i c)`, and a turn of each frequency's two coefficients by
    the angle :math:`\omega_j^\top c`, which changes no score, and not their prior.

    Parameters
    ----------
    vars : sequence of variables
        The latent vectors.
    exchange : bool, default True
        Whether they do so. To be False where a step of your own keeps any of these variables where
        it is: projections, their precisions, intercepts, frequencies, coefficients.
    target_accept : float, default 0.8
        The mean probability of accepting, over labelled objects, that the size of steps is adapted
        to while tuning.
    max_steps : int, default 12
        The most steps of a trajectory, which turns by a quarter if so many do.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the step can serve.
    ValueError
        If `target_accept` or `max_steps` is not as described.
    TypeError
        If `exchange` is not.

    Notes
    -----
    Statistics of the sampler: ``latent_acceptance`` and ``latent_jumps``, the mean probabilities
    over labelled objects of accepting a trajectory and a draw from the normal part;
    ``latent_step_size``, the angle between kicks; and ``latent_n_steps``.
    """

    name = "latent_hmc"
    order = 20
    _state_class = LatentHMCState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "latent_acceptance": (np.float64, []),
        "latent_jumps": (np.float64, []),
        "latent_step_size": (np.float64, []),
        "latent_n_steps": (np.int64, []),
    }

    def __init__(
        self,
        vars: Any,
        target_accept: float = 0.8,
        max_steps: int = 12,
        exchange: bool = True,
        **kwargs: Any,
    ):
        if not 0.0 < target_accept < 1.0:
            raise ValueError(
                f"LatentHMC: target_accept: expected a number between 0 and 1; found "
                f"{target_accept!r}"
            )
        check_count("LatentHMC: max_steps", max_steps)
        check_flag("LatentHMC: exchange", exchange)
        self.target_accept, self.max_steps = float(target_accept), int(max_steps)
        self.exchange = bool(exchange)
        self.reset_tuning()
        super().__init__(vars, **kwargs)

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "target_accept": self.target_accept,
            "max_steps": self.max_steps,
            "exchange": self.exchange,
        }

    @classmethod
    def parts(cls, structure: Structure) -> list[LabelledLatent]:
        """Return the latent vectors of a model that both views and hinges have."""
        return [part for part in structure.parts if isinstance(part, LabelledLatent)]

    @classmethod
    def served(cls, part: LabelledLatent) -> list[str]:
        """Names of the variables that the step serves."""
        return part.names

    def _prepare(self) -> None:
        part = self.part
        self._latent = Writer(self.model, part.names)
        self._factors = FactorPoints(self.model, part.factors)
        self._coefficients = Writer(self.model, [hinge.coefficients for hinge in part.hinges])
        numbers = {latent.name: number for number, latent in enumerate(part.factors.latents)}
        self._number = numbers[part.name]
        self._scaled = self._find_scaled() if self.exchange else None
        if self._scaled:
            self._frequencies = Writer(self.model, list(self._scaled.hinges))
        self._shifted = self._find_shifted() if self.exchange else []

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain, with a search of its own for the step size if it is tuned at all."""
        super().setup_chain(rng, tune, draws)
        if tune:
            self.reset_tuning()
        else:
            self.stop_tuning()

    def stop_tuning(self) -> None:
        """Keep the step size from now on."""
        self.tune = False

    def reset_tuning(self, tune: bool = True) -> None:
        """Search for the step size anew."""
        self.tune, self.log_step, self.n_tuned = tune, log(0.5 * _LARGEST), 0

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new, rng, part = dict(point), self.rng, self.part
        form, forms, _ = self._factors.shared_form(point, part.names)
        form = form.with_prior(*part.prior(point))
        normal = NormalPart.of(form.matrix, form.linear, form.index)
        term = self._term(point)
        latent = self._latent.read(point, part.name)
        # A path of a quarter turn or so, of unequal lengths, so that none comes back every time.
        step_size = min(exp(self.log_step), _LARGEST) * rng.uniform(0.8, 1.2)
        n_steps = min(max(1, round(_LARGEST / step_size)), self.max_steps)
        latent, accepted = draw_latent(rng, normal, term, term.labelled, latent, step_size, n_steps)
        latent, jumped = jump_latent(rng, normal, term, term.labelled, latent)
        if not np.isfinite(latent).all():
            raise FloatingPointError(
                f"{part.name!r} is not finite any more: the data or the loadings are on too "
                "extreme a scale."
            )
        self._latent.write(new, {part.name: latent})
        self._factors.draw_private(rng, new, forms)
        if self._scaled:
            self._exchange(new, self._scaled)
        if self._shifted:
            self._shift(new)
        self._factors.draw_missing(rng, new)
        acceptance = float(accepted.mean()) if len(accepted) else 1.0
        if self.tune:
            self._adapt(acceptance)
        stats = {
            "latent_acceptance": acceptance,
            "latent_jumps": float(jumped.mean()) if len(jumped) else 1.0,
            "latent_step_size": step_size,
            "latent_n_steps": n_steps,
        }
        return new, [stats]

    def _term(self, point) -> HingeTerm | SummedTerm:
        """Make the term of the labels at a point."""
        terms = []
        for hinge in self.part.hinges:
            _, frequencies = hinge.fourier(point)
            coefficients = self._coefficients.read(point, hinge.coefficients)
            coefficients = coefficients.reshape(hinge.shape)
            terms.append(HingeTerm(frequencies, coefficients, hinge.labels, hinge.C(point)))
        return terms[0] if len(terms) == 1 else SummedTerm(terms)

    def _find_scaled(self) -> "_Scaled | None":
        """Find what the scale of the latent vectors can be exchanged with, if all of it is ours."""
        part = self.part
        loadings, precisions = part.factors.scaled_with(self._number)
        n_factors = loadings[0].shape[1]
        if not precisions or any(np.prod(p.shape) != n_factors for p in precisions):
            return None
        if not all(hinge.adapts for hinge in part.hinges):
            return None
        hinges = {str(hinge.frequencies): hinge for hinge in part.hinges}
        return _Scaled(loadings, precisions, hinges)

    def _exchange(self, point, scaled: "_Scaled") -> None:
        """Exchange the scale of every factor of the latent vectors, at a new `point`."""
        points, part = self._factors, self.part
        mean, precision = part.prior(point)
        if mean.any() or any(own.prior(point)[0].any() for own in scaled.loadings):
            return
        latent = self._latent.read(point, part.name)
        quadratic = (precision * latent**2).sum(axis=0)
        exponent = np.full(latent.shape[1], float(len(latent)))
        logs = [points.log_positive(point, own.name) for own in scaled.precisions]
        for own, log_r in zip(scaled.precisions, logs, strict=True):
            shape, rate = own.prior(point)
            quadratic += 2.0 * (rate * np.exp(log_r)).reshape(-1)
            exponent += 2.0 * shape.reshape(-1)
        frequencies = [self._frequencies.read(point, name) for name in scaled.hinges]
        priors = [hinge.frequency_prior(point) for hinge in scaled.hinges.values()]
        rows = np.concatenate(frequencies)
        inverses = np.concatenate([_precisions(factors) for _, factors in priors])
        away = rows - np.concatenate([means for means, _ in priors])
        pulls = np.einsum("jab,jb->ja", inverses, away)
        t = np.empty(latent.shape[1])
        rescale_axes(self.rng, quadratic, exponent - len(rows), rows, pulls, inverses, t)
        self._latent.write(point, {part.name: latent * np.exp(t)})
        for loading in scaled.loadings:
            w = points.loading(point, loading)
            points.write_loading(point, loading, w * np.exp(-t))
        for own, log_r in zip(scaled.precisions, logs, strict=True):
            points.write_positive(point, own.name, log_r + 2.0 * t.reshape(own.shape))
        ends = np.cumsum([len(own) for own in frequencies])[:-1]
        moved = np.split(rows, ends)
        self._frequencies.write(point, dict(zip(scaled.hinges, moved, strict=True)))

    def _find_shifted(self) -> list[tuple[Intercept, Factor]]:
        """Find the intercepts that the latent vectors can be moved against, with their loadings."""
        entered = [
            (view.intercept, loading)
            for view in self.part.factors.views
            for number, loading in zip(view.latents, view.loadings, strict=True)
            if number == self._number
        ]
        found = [(a, loading) for a, loading in entered if a is not None]
        return found if len(found) == len(entered) else []

    def _shift(self, point) -> None:
        """Move all latent vectors, at a new `point`, and turn the coefficients with them."""
        points, part = self._factors, self.part
        latent = self._latent.read(point, part.name)
        views = [
            (points.loading(point, loading), points.intercept(point, a), a.prior(point))
            for a, loading in self._shifted
        ]
        c = draw_shift(self.rng, latent, part.prior(point), views)
        self._latent.write(point, {part.name: latent + c})
        for (a, _), (w, old, _) in zip(self._shifted, views, strict=True):
            points.write_intercept(point, a, old - w @ c)
        for hinge in part.hinges:
            _, frequencies = hinge.fourier(point)
            declared = self._coefficients.read(point, hinge.coefficients)
            turned = turn_coefficients(declared.reshape(hinge.shape), frequencies @ c)
            self._coefficients.write(point, {hinge.coefficients: turned.reshape(declared.shape)})

    def _adapt(self, acceptance: float) -> None:
        """Make steps larger if more than wanted was accepted, smaller if less."""
        self.n_tuned += 1
        self.log_step += (acceptance - self.target_accept) * self.n_tuned**-_DECAY
        self.log_step = min(max(self.log_step, log(_SMALLEST)), log(_LARGEST))


class _Scaled(NamedTuple):
    """What the scale of latent vectors is exchanged with.

    Attributes
    ----------
    loadings : list of Factor
    precisions : list of GammaPrecision
        One number a factor each.
    hinges : dict of str to HingeModel
        By the name of its frequencies, one that has them.
    """

    loadings: list[Factor]
    precisions: list[GammaPrecision]
    hinges: dict[str, HingeModel]


def _precisions(factors: NDArray) -> NDArray[np.float64]:
    """Invert covariances (M, K, K), of which many are the same, given their Cholesky factors."""
    first, which = distinct(factors)
    roots = np.linalg.inv(factors[first])
    return (roots.transpose(0, 2, 1) @ roots)[which]
