"""Hamiltonian Monte Carlo for latent vectors that views see linearly, and labels do not."""

from functools import partial
from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.checks import check_count, check_flag
from pm_match.clusters.points import Writer
from pm_match.clusters.step import statistics
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.rescale import rescale_axes
from pm_match.numerics.sines import sines
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.densities import log_normal
from pm_match.reading.parts import Structure
from pm_match.views.factors.linear_factors import Array
from pm_match.views.factors.points import FactorPoints
from pm_match.views.hinge import turn_coefficients
from pm_match.views.hinge.hinge_gibbs import HingePoints
from pm_match.views.hinge.hinge_latent import HingeTerm, SummedTerm
from pm_match.views.hinge.labelled_latents import LabelledLatent
from pm_match.views.hinge.recognise import HingeModel
from pm_match.views.hinge.split_hmc import HMCStep, NormalPart, draw_latent, jump_latent


class LatentHMC(HMCStep):
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
        Whether they do so. `steps` sets it to False where a step of your own holds any of these
        variables: projections, their precisions, intercepts, frequencies, coefficients.
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

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.LatentHMC)]
    [LatentHMC(latent)]
    """

    name = "latent_hmc"
    order = 20
    record = LabelledLatent
    stats_dtypes_shapes = statistics(
        "latent_acceptance", "latent_jumps", "latent_step_size", latent_n_steps=np.int64
    )

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

    @classmethod
    def writes(cls, structure: Structure, part: LabelledLatent) -> list[str]:
        """Names of private latent vectors and missing values, which it integrates out."""
        factors = part.factors
        private = [factors.latents[n].name for n in factors.own if factors.private(n)]
        return private + [view.missing for view in factors.views if view.missing]

    @classmethod
    def keeping(cls, structure: Structure, part: LabelledLatent, kept: set[str]) -> dict[str, Any]:
        """Exchange nothing if some of what is exchanged is to be kept."""
        settings = super().keeping(structure, part, kept)
        exchanged = {name for own in part.hinges for name in (own.coefficients, own.frequencies)}
        exchanged |= {p.name for p in part.factors.precisions}
        exchanged |= {f.name for view in part.factors.views for f in view.factors}
        return settings if kept.isdisjoint(exchanged) else settings | {"exchange": False}

    def _prepare(self) -> None:
        part = self.part
        self._factors = FactorPoints(self.model, part.factors)
        self._hinges = [HingePoints(self.model, hinge) for hinge in part.hinges]
        numbers = {latent.name: number for number, latent in enumerate(part.factors.latents)}
        self._number = numbers[part.name]
        self._scaled = self._find_scaled() if self.exchange else {}
        self._frequencies = Writer(self.model, list(self._scaled))

    def kernels(self) -> list[Job]:
        """List what features call, and exchanges of scale."""
        row, square, cube = np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1, 1))
        found = [job(sines, square, square, square)]
        if self._scaled:
            found.append(job(rescale_axes, self.rng, row, row, square, square, cube, row))
        return found

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new, rng, part = dict(point), self.rng, self.part
        latents, forms = self._factors.shared_form(point, part.names)
        form = latents.with_prior(self._number, part.prior(point)).form
        normal = NormalPart.of(form.matrix, form.linear, form.index)
        term = self._term(point)
        latent = self._factors.read(point, part.name)
        step_size, n_steps = self._path(self.max_steps)
        latent, accepted = draw_latent(rng, normal, term, term.labelled, latent, step_size, n_steps)
        latent, jumped = jump_latent(rng, normal, term, term.labelled, latent)
        if not np.isfinite(latent).all():
            raise FloatingPointError(
                f"{part.name!r} is not finite any more: the data or the loadings are on too "
                "extreme a scale."
            )
        self._factors.write(new, {part.name: latent})
        self._factors.draw_private(rng, new, forms)
        if self._scaled:
            self._exchange_scale(new)
        if self.exchange:
            self._shift(new)
        self._factors.draw_missing(rng, new)
        self._look(new)
        acceptance = float(accepted.mean()) if len(accepted) else 1.0
        self._adapt(acceptance)
        stats = {
            "latent_acceptance": acceptance,
            "latent_jumps": float(jumped.mean()) if len(jumped) else 1.0,
            "latent_step_size": step_size,
            "latent_n_steps": n_steps,
        }
        return new, [stats]

    def _density(self) -> DeclaredDensity:
        return DeclaredDensity(self.model, [self.part.name, *self.part.factors.names])

    def _log_densities(self, point) -> list[float]:
        own = log_normal(self._factors.read(point, self.part.name), *self.part.prior(point)).sum()
        labels = [points.log_labels(point) for points in self._hinges]
        return [*self._factors.log_densities(point), own, *labels]

    def _term(self, point) -> HingeTerm | SummedTerm:
        """Make the term of the labels at a point."""
        terms = []
        for hinge, points in zip(self.part.hinges, self._hinges, strict=True):
            _, frequencies = hinge.fourier(point)
            coefficients = points.coefficients(point)
            terms.append(HingeTerm(frequencies, coefficients, hinge.labels, hinge.C(point)))
        return terms[0] if len(terms) == 1 else SummedTerm(terms)

    def _find_scaled(self) -> dict[str, HingeModel]:
        """Find frequencies to exchange the scale of the latent vectors with, if all of it is ours.

        By their name, a hinge that has them.
        """
        part = self.part
        loadings, precisions = part.factors.scaled_with(self._number)
        n_factors = loadings[0].shape[1]
        if not precisions or any(np.prod(p.shape) != n_factors for p in precisions):
            return {}
        if not all(hinge.adapts for hinge in part.hinges):
            return {}
        return {str(hinge.frequencies): hinge for hinge in part.hinges}

    def _exchange_scale(self, point) -> None:
        """Exchange the scale of every factor of the latent vectors, at a new `point`."""
        draw = partial(self._log_scales, point)
        self._factors.exchange_scale(point, self._number, self.part.prior(point), draw)

    def _log_scales(self, point, quadratic: Array, exponent: Array) -> Array:
        """Draw how much every factor grows, and shrink the frequencies of a new `point` with it."""
        frequencies = [self._frequencies.read(point, name) for name in self._scaled]
        priors = [hinge.frequency_prior(point) for hinge in self._scaled.values()]
        rows = np.concatenate(frequencies)
        roots = np.linalg.inv(np.concatenate([own.factors for own in priors]))
        inverses = roots.transpose(0, 2, 1) @ roots
        pulls = np.einsum("jab,jb->ja", inverses, rows - np.concatenate([p.means for p in priors]))
        t = np.empty(len(quadratic))
        rescale_axes(self.rng, quadratic, exponent - len(rows), rows, pulls, inverses, t)
        moved = np.split(rows, np.cumsum([len(own) for own in frequencies])[:-1])
        self._frequencies.write(point, dict(zip(self._scaled, moved, strict=True)))
        return t

    def _shift(self, point) -> None:
        """Move all latent vectors, at a new `point`, and turn the coefficients with them."""
        part, factors = self.part, self._factors
        latent = factors.read(point, part.name)
        c = factors.exchange_centre(self.rng, point, self._number, latent, part.prior(point))
        if c is None:
            return
        factors.write(point, {part.name: latent + c})
        for hinge, points in zip(part.hinges, self._hinges, strict=True):
            _, frequencies = hinge.fourier(point)
            turned = turn_coefficients(points.coefficients(point), frequencies @ c)
            points.write_coefficients(point, turned)
