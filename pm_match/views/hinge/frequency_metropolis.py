"""Metropolis moves of the frequencies of Fourier features: a kernel that adapts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType

from pm_match.checks import check_count
from pm_match.clusters.points import Writer
from pm_match.clusters.step import statistics
from pm_match.normal.conjugate import posterior, update
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.numerics.ahead import Job
from pm_match.reading import read
from pm_match.reading.ancestry import parameters
from pm_match.reading.parts import Structure
from pm_match.reading.probe import point_function
from pm_match.views.hinge import fourier_values
from pm_match.views.hinge import frequencies as moves
from pm_match.views.hinge.carry import Coefficients, LabelledVectors
from pm_match.views.hinge.frequencies import EvidenceTerm, FrequencyEvidence, FrequencyPrior
from pm_match.views.hinge.hinge_gibbs import HingePoints
from pm_match.views.hinge.recognise import HingeModel
from pm_match.views.hinge.scales import LostPrecision, draw_coefficients, observe
from pm_match.views.hinge.split_hmc import HMCStep, move_together

# Steps of proposals (1 is a draw from the prior), and what statistics call them.
_STEPS = {"prior": 1.0, "wide": 0.5, "narrow": 0.2}
# Standard deviations, on the log scale, of proposed changes of v and of frequencies' scales.
_PRECISION_WIDTHS = (0.2, 1.0)
_SCALE_WIDTHS = (0.02, 0.1, 0.4)
# The same, of moves that carry the coefficients along.
_CARRIED_WIDTHS, _CARRIED_PRECISION_WIDTHS = (0.1, 0.2, 0.4), (0.3, 1.0, 3.0)
# Labels times squared coefficients above which not every step makes them.
_SMALL = 1_500_000


class FrequencyMetropolis(HMCStep):
    r"""Draw the frequencies of Fourier features of a hinge, coefficients integrated out.

    One step, given latent vectors, the frequencies' prior (their clusters' means and covariances,
    where these are a mixture) and C:

    - the scales of all or of one of the frequencies' axes, and v, move, and carry the coefficients
      along (see `hinge.carry`). It is what moves the width of the kernel where labels can nearly
      all be told apart;
    - scales of the labels are drawn given the coefficients (see `HingeGibbs`); given them, the
      coefficients integrate out of all that follows;
    - two scale moves, of all axes of the frequencies and of some. If they are a mixture with
      conjugate priors, its means and precisions are integrated out, and then drawn anew;
    - every frequency moves in turn, by a draw from its prior or by preconditioned Crank-Nicolson,
      :math:`\omega' = \mu + \sqrt{1 - \rho^2} (\omega - \mu) + \rho L \xi` (ρ is 1, .5 or .2, at
      random), accepted by what it and its candidate say of the labels (`evidence.frequencies`).
      If they are a mixture and nothing else has its clusters, a draw from it is from any of its
      components, and writes the frequency's cluster too: given a frequency its cluster is all but
      known, and the one would not move without the other;
    - if `n_leapfrog` says so, all frequencies move at once, within their clusters, by Hamiltonian
      Monte Carlo with the gradient of what they say of the labels (see `hinge.split_hmc`). Where
      there are many labels of several classes, other moves may hardly ever be accepted;
    - the precision of the coefficients' prior moves, by Metropolis on its log, where it is ours;
    - the coefficients are drawn, and leave a complete point.

    Where v is so small that the coefficients cannot be integrated out to working precision, nothing
    moves, until `HingeGibbs` has drawn a larger v; if v is not ours to draw, this is an error.

    Given coefficients, frequencies do not move: these know all about the features that they belong
    to. Classes that have scores of their own add what they say.

    Parameters
    ----------
    vars : sequence of variables
        The frequencies.
    n_sweeps : int, default 1
        Times that every frequency moves in a step.
    n_carried : int, default 4
        Moves that carry the coefficients along, of a step that makes some. Each, and one more at
        the start, takes the time of a dozen evaluations of the evidence. Small problems make
        them in every step; larger ones at random, in as many as the time of a small one allows.
    n_leapfrog : int, default 0
        The most steps of a Hamiltonian move, which turns by a quarter if so many do; with 0 there
        is none. Each, and one more at the start, takes the time of about three evaluations of the
        evidence.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not frequencies that the step can serve.
    FloatingPointError
        In a step, if v is too small, and not drawn by our steps.
    ValueError
        If `n_sweeps`, `n_carried` or `n_leapfrog` is not a whole number, of at least 1, 0 and 0.

    Notes
    -----
    Sampler statistics: `accepted_prior`, `accepted_wide` and `accepted_narrow`, the fractions of
    frequencies that moved of those with ρ = 1, .5 and .2; `accepted_carried`, `accepted_scale` and
    `accepted_precision`; `accepted_joint`, the probability of acceptance of the Hamiltonian move;
    and `spread`, the root mean square of :math:`\omega^T h`: features of angles far below 1 are
    linear, far above it noise. What was not tried is NaN.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.FrequencyMetropolis)]
    [FrequencyMetropolis(frequencies)]
    """

    name = "frequency_metropolis"
    order = 50
    record = HingeModel
    first_step_size = 0.05
    stats_dtypes_shapes = statistics(
        "accepted_prior",
        "accepted_wide",
        "accepted_narrow",
        "accepted_carried",
        "accepted_scale",
        "accepted_precision",
        "accepted_joint",
        "spread",
    )

    def __init__(
        self,
        vars: Any,
        n_sweeps: int = 1,
        n_leapfrog: int = 0,
        n_carried: int = 4,
        **kwargs: Any,
    ):
        check_count("FrequencyMetropolis: n_sweeps", n_sweeps)
        check_count("FrequencyMetropolis: n_carried", n_carried, 0)
        check_count("FrequencyMetropolis: n_leapfrog", n_leapfrog, 0)
        self.n_sweeps = n_sweeps
        self.n_leapfrog = n_leapfrog
        self.n_carried = n_carried
        self.reset_tuning()
        super().__init__(vars, **kwargs)

    @classmethod
    def served(cls, part: Any) -> list[str]:
        """Name of the frequencies, if they may be drawn."""
        return [part.frequencies] if part.adapts else []

    @classmethod
    def writes(cls, structure: Structure, part: HingeModel) -> list[str]:
        """Names of what it integrates out, or moves with the frequencies, and then draws."""
        found = [name for name in part.names if name != part.frequencies]
        mixture = _mixture(structure, str(part.frequencies))
        if mixture:
            found += [*mixture.names, *(str(values.assignment) for values in mixture.values)]
        return found

    def _prepare(self) -> None:
        self._points = HingePoints(self.model, self.part)
        self._writer = Writer(self.model, [self.part.frequencies])
        self._share = _SMALL / (self._points.labels.size * self.part.shape[0] ** 2)
        self._mixture = _mixture(read(self.model), self.part.frequencies)
        if self._mixture:
            self._mixture_points = NormalsPoints(self.model, self._mixture)
            self._assignment = self._find_assignment()

    def kernels(self) -> list[Job]:
        """List what moves call, of frequencies one by one and of all."""
        return moves.kernels()

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = dict(point)
        stats = dict.fromkeys(self.stats_dtypes_shapes, np.nan)
        try:
            if self.n_carried and self.rng.random() < self._share:
                self._carry(new, stats)
            evidence = self._evidence(new)
        except LostPrecision as error:
            part = self.part
            if not part.precision:
                n, p = len(self._points.labels), part.shape[0]
                raise FloatingPointError(
                    f"{part.coefficients!r}: expected a prior precision with which {p} "
                    f"coefficients of {n} labels can be integrated out; found {error}. Declare a "
                    "larger one, or less than half as many frequencies as there are labels."
                ) from error
        else:
            self._move(new, evidence, stats)
        latent, frequencies = self.part.fourier(new)
        angles = latent @ frequencies.T
        stats["spread"] = np.sqrt(np.vdot(angles, angles) / angles.size)
        self._look(new)
        return new, [stats]

    def _log_densities(self, point) -> list[float]:
        prior, (_, frequencies) = self.part.frequency_prior(point), self.part.fourier(point)
        return [self._points.log_labels(point), prior.log_density(frequencies)]

    def _evidence(self, point) -> FrequencyEvidence:
        """Draw scales of the labels, and integrate the coefficients out."""
        part, points = self.part, self._points
        latent, frequencies = part.fourier(point)
        latent = latent[points.rows]
        scores = fourier_values(latent, frequencies) @ points.coefficients(point)
        weights, pulls = observe(self.rng, scores, points.labels, part.C(point))
        precision = part.prior_precision(point)
        return FrequencyEvidence(latent, frequencies, weights, pulls, precision)

    def _move(self, new, evidence: FrequencyEvidence, stats) -> None:
        """Move with the coefficients integrated out, nowhere that they cannot be.

        Given the scales of the labels, whether they can be is a question of v and the frequencies
        alone; each proposal that leads to where they cannot is refused, by itself.
        """
        part, rng, points = self.part, self.rng, self._points
        evidence = self._rescale(new, evidence, stats)
        prior_at = (
            self._draw_mixture(new, evidence.frequencies) if self._mixture else part.frequency_prior
        )
        sizes = np.array([*_STEPS.values()])
        tried, moved = np.zeros(len(sizes)), np.zeros(len(sizes))
        for _ in range(self.n_sweeps):
            kinds = rng.integers(len(sizes), size=len(evidence.frequencies))
            proposed = dict(new)
            if self._mixture and self._assignment:
                self._propose_clusters(proposed, kinds == 0)
            # Of a draw from the prior, the cluster is the one proposed; of others, their own.
            prior = prior_at(proposed)
            candidates = prior.propose(rng, evidence.frequencies, sizes[kinds])
            accepted = evidence.sweep(candidates, -rng.standard_exponential(len(kinds)))
            if self._mixture and self._assignment:
                self._take_clusters(new, proposed, accepted)
            tried += np.bincount(kinds, minlength=len(sizes))
            moved += np.bincount(kinds[accepted], minlength=len(sizes))
        for kind, n_tried, n_moved in zip(_STEPS, tried, moved, strict=True):
            stats[f"accepted_{kind}"] = n_moved / n_tried if n_tried else np.nan
        if self.n_leapfrog:
            term, prior = EvidenceTerm(evidence), prior_at(new)
            if self._leap(prior, term, evidence.frequencies, stats) is not evidence.frequencies:
                # That of the last place it was evaluated at: where the move ended.
                evidence = term.evidence
        self._writer.write(new, {part.frequencies: evidence.frequencies})
        if part.precision:
            self._move_precision(new, evidence, stats)
        drawn = [draw_coefficients(rng, *own) for own in evidence.coefficients()]
        points.write_coefficients(new, np.stack(drawn, axis=1))

    # -- scales ------------------------------------------------------------------------------------

    def _carry(self, new, stats) -> None:
        """Move scales of axes, and v, with the coefficients, and write them.

        A mixture's means and precisions are integrated out, and drawn in the end. Nothing moves to
        or from where coefficients cannot be approximated.
        """
        part, rng, points = self.part, self.rng, self._points
        latent, start = part.fourier(new)
        vectors = LabelledVectors(latent[points.rows], points.labels, float(part.C(new)))
        try:
            now = vectors.at(start, part.prior_precision(new), points.coefficients(new))
        except LostPrecision:
            return
        shape, rate = part.precision_prior(new) if part.precision else (0.0, 0.0)
        log_prior = self._scaled_log_prior(new, start)

        def log_density(own: Coefficients, factors) -> float:
            # Of log v; and the Jacobian of the scales, which are what moves.
            v, n = own.precision, len(start)
            of_scales = log_prior(factors) + n * np.log(factors).sum()
            return own.log_density + of_scales + shape * np.log(v) - rate * v

        m = start.shape[1]
        factors, accepted = np.ones(m), 0
        level = log_density(now, factors)
        for _ in range(self.n_carried):
            axes, shift, change = self._carried_move(m)
            other = factors * np.exp(shift * axes)
            precision = now.precision * np.exp(change) if part.precision else now.precision
            height = level - rng.standard_exponential()
            try:
                candidate = vectors.carried(now, start * other, precision)
            except LostPrecision:
                continue  # there is nothing to go to
            found = log_density(candidate, other)
            if found > height:
                now, factors, level = candidate, other, found
                accepted += 1
        stats["accepted_carried"] = accepted / self.n_carried
        if accepted:
            self._writer.write(new, {part.frequencies: now.frequencies})
            points.write_coefficients(new, now.values)
            if part.precision:
                points.write_positive(new, part.precision, np.log(now.precision))
            if self._mixture:
                self._draw_mixture(new, now.frequencies)

    def _carried_move(self, m: int) -> tuple[NDArray, float, float]:
        """Draw which of m axes are scaled, and changes of the logs of scale and v.

        Narrow kernels want small coefficients. Every move is as probable as the one back.
        """
        rng = self.rng
        shift = rng.choice(_CARRIED_WIDTHS) * rng.standard_normal()
        what = rng.random()
        if self.part.precision and what < 0.25:
            return np.zeros(m), 0.0, rng.choice(_CARRIED_PRECISION_WIDTHS) * rng.standard_normal()
        axes = np.ones(m) if what < 0.5 else np.eye(m)[rng.integers(m)]
        return axes, shift, rng.choice([0.0, 2.0, 4.0]) * shift

    def _rescale(self, new, evidence: FrequencyEvidence, stats) -> FrequencyEvidence:
        """Multiply the frequencies' axes by common factors: all axes, then some of them.

        The Jacobian of the map is the product of the factors, over all numbers that it multiplies.
        """
        rng, start = self.rng, evidence.frequencies
        n, m = start.shape
        log_prior = self._scaled_log_prior(new, start)
        factors = np.ones(m)
        prior = log_prior(factors)
        accepted = 0
        for axes in (factors > 0.0, rng.random(m) < 0.5):
            shift = rng.choice(_SCALE_WIDTHS) * rng.standard_normal()
            height = -rng.standard_exponential()
            other = factors * np.exp(shift * axes)
            try:
                candidate = evidence.at(start * other)
            except LostPrecision:
                continue  # there is nothing to go to
            other_prior = log_prior(other)
            gain = candidate.log_evidence + other_prior - evidence.log_evidence - prior
            if gain + n * axes.sum() * shift > height:
                evidence, factors, prior = candidate, other, other_prior
                accepted += 1
        stats["accepted_scale"] = accepted / 2
        return evidence

    def _scaled_log_prior(self, point, frequencies) -> Callable[[NDArray], float]:
        """Make the log prior of frequencies (M, m) times factors (m,), as a function of these.

        A mixture's means and precisions are integrated out: what is left of them are, cluster by
        cluster, the determinants of the scale matrices of `normal.conjugate.update`, from sums that
        are made once.
        """
        if not self._mixture:
            own = self.part.frequency_prior(point)
            return lambda factors: (
                -0.5 * float(np.square(own.whitened(frequencies * factors)).sum())
            )
        prior = self._mixture.prior(point)
        _, which, counts = np.unique(self._labels(point), return_inverse=True, return_counts=True)
        member = np.equal.outer(np.arange(len(counts)), which).astype(np.float64)
        averages = member @ frequencies / counts[:, None]
        residuals = frequencies - averages[which]
        scatters = np.einsum("tj,ja,jb->tab", member, residuals, residuals)

        def log_marginal(factors) -> float:
            scaled = averages * factors, scatters * np.multiply.outer(factors, factors)
            own = update(counts, *scaled, prior, shared=False)
            return -0.5 * float(own.degrees @ np.linalg.slogdet(own.inverse_scales)[1])

        return log_marginal

    def _draw_mixture(self, new, frequencies) -> Callable[[Any], FrequencyPrior]:
        """Draw the mixture's means and precisions given the frequencies, and write them.

        Returns
        -------
        callable
            From a point with clusters to the frequencies' prior there.
        """
        assert self._mixture
        given = self._labels(new), self._mixture.truncation, self._mixture.prior(new)
        means, precisions = posterior(frequencies, *given, shared=False).draw(self.rng)
        self._mixture_points.write_parameters(new, means, precisions)
        factors = np.linalg.cholesky(np.linalg.inv(precisions))

        def prior(point) -> FrequencyPrior:
            labels = self._labels(point)
            return FrequencyPrior(means[labels], factors[labels])

        return prior

    def _labels(self, point):
        """Read the clusters of the frequencies."""
        assert self._mixture
        (values,) = self._mixture.values
        assignment = self.model.rvs_to_values[self.model[values.assignment]].name
        return np.asarray(point[assignment])[values.objects]

    # -- clusters of frequencies -------------------------------------------------------------------

    def _find_assignment(self) -> "_FreeAssignment | None":
        """Find the clusters of the frequencies, if these are all that they are about."""
        assert self._mixture
        for component in read(self.model).components:
            if not any(self._mixture is own for own in component.evidence):
                continue
            clustering = component.clusterings[0]
            alone = (
                len(component.clusterings) == len(clustering.assignments) == 1
                and len(component.evidence) == 1
                and not len(clustering.links) + len(clustering.apart)
                and clustering.assignments[0].relevance is None
            )
            objects = self._mixture.values[0].objects
            if alone and np.array_equal(np.sort(objects), np.arange(clustering.n_objects)):
                rv = self.model[clustering.assignments[0].name]
                key = self.model.rvs_to_values[rv].name
                return _FreeAssignment(key, objects, point_function(self.model, parameters(rv)))
        return None

    def _propose_clusters(self, point, some) -> None:
        """Draw clusters of some frequencies (M,) from their prior, into a `point` of its own."""
        assert self._assignment
        key, objects, weights = self._assignment
        labels = np.array(point[key])
        # They may be declared as a row for every frequency, all alike.
        p = np.asarray(weights(point)[0])
        p = p.reshape(-1, p.shape[-1])[0]
        drawn = self.rng.choice(len(p), size=int(some.sum()), p=p / p.sum())
        labels[objects[some]] = drawn
        point[key] = labels

    def _take_clusters(self, new, proposed, accepted) -> None:
        """Write the proposed clusters of frequencies (M,) that moved into a new point."""
        assert self._assignment
        key, objects, _ = self._assignment
        labels = np.array(new[key])
        labels[objects[accepted]] = proposed[key][objects[accepted]]
        new[key] = labels

    # -- the coefficients' prior -------------------------------------------------------------------

    def _move_precision(self, new, evidence: FrequencyEvidence, stats) -> None:
        """Move v, by Metropolis on its log."""
        rng = self.rng
        shape, rate = self.part.precision_prior(new)
        accepted = 0
        for width in _PRECISION_WIDTHS:
            old = evidence.precision
            other = old * np.exp(width * rng.standard_normal())
            found, factors = evidence.try_precision(other)
            # The density of log v: v times that of v.
            gain = shape * np.log(other / old) - rate * (other - old)
            if gain + found - evidence.log_evidence > -rng.standard_exponential():
                evidence.set_precision(other, found, factors)
                accepted += 1
        stats["accepted_precision"] = accepted / len(_PRECISION_WIDTHS)
        self._points.write_positive(new, self.part.precision, np.log(evidence.precision))

    # -- all at once -------------------------------------------------------------------------------

    def _leap(
        self, prior: FrequencyPrior, term: Any, frequencies: NDArray, stats: dict[str, float]
    ) -> NDArray[np.float64]:
        """Make a Hamiltonian move; return the frequencies where it ends, these if it is refused."""
        path = self._path(self.n_leapfrog)
        found, probability = move_together(self.rng, prior, term, frequencies, *path)
        self._adapt(probability)
        stats["accepted_joint"] = probability
        return found


class _FreeAssignment(NamedTuple):
    """The clusters of frequencies."""

    key: str  # their value variable
    objects: NDArray[np.int64]  # (M,): where in it the cluster of every frequency is
    weights: Callable[[Any], list[NDArray]]  # from a point to a list with the weights (T,)


def _mixture(structure: Structure, name: str) -> Normals | None:
    """Find the clusters of the frequencies alone, with precisions of their own, without factors."""
    for normals in structure.of(Normals):
        only = [values.name for values in normals.values] == [name]
        if only and not normals.shared and not normals.factors:
            return normals
    return None
