"""Draws of weights that are not integrated out, given the labels of objects."""

from pymc.blocking import PointType, StatsType

from pm_match.clusters.points import ClusteringPoints, Writer
from pm_match.clusters.step import PartitionStep
from pm_match.declared.parts import Likelihoods
from pm_match.numerics.stick_breaking import draw_log_sticks, log_weights
from pm_match.reading import read
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.probe import natural_function

_ADVICE = ": give the prior larger parameters."


class WeightsGibbs(PartitionStep):
    r"""Draw weights that objects, groups of them, or clusters have of their own, given the labels.

    .. math::
        \theta_g \sim \mathrm{Dirichlet}(a_g), \quad
        \theta_g \mid s \sim \mathrm{Dirichlet}(a_g + n_g), \quad
        n_{gt} = \#\{i : g(i) = g,\, s_i = t\}

    as of topics of documents (J. Pritchard, M. Stephens & P. Donnelly 2000, "Inference of
    population structure using multilocus genotype data", Genetics 155, appendix). Likewise
    `StickBreakingWeights`, stick by stick (see `numerics.stick_breaking`), and Beta probabilities
    of two labels. The parameters of their priors may be anything.

    Parameters
    ----------
    vars : sequence of variables
        Free Dirichlet, `StickBreakingWeights` or Beta variables that enter nothing but the
        probabilities of labels, or of what is observed, of which every object's label chooses one
        number.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not such ones.

    Examples
    --------
    >>> words, document = np.array([0, 0, 1, 3, 2, 3]), np.array([0, 0, 0, 1, 1, 1])
    >>> with pm.Model() as model:
    ...     shares = pm.Dirichlet("shares", np.ones(2), shape=(2, 2))
    ...     topic = pm.Categorical("topic", shares[document])
    ...     frequency = pm.Dirichlet("frequency", np.ones(4), shape=(2, 4))
    ...     word = pm.Categorical("word", frequency[topic], observed=words)
    ...
    >>> pmm.steps(model)
    [WeightsGibbs(shares_simplex__), ClusterGibbs(topic, frequency_simplex__)]
    """

    name = "weights_gibbs"
    record = Likelihoods
    order = 40
    one_by_one = True

    @classmethod
    def served(cls, part: Likelihoods) -> list[str]:
        """Names of the weights."""
        return [own.name for own in part.weights]

    def _together(self, wanted: list[str]) -> list[str]:
        """All are independent, given the labels."""
        return [name for name in self.served(self.part) if name in wanted]

    def _prepare(self) -> None:
        super()._prepare()
        names = [self.model.values_to_rvs[value].name for value in self.vars]
        self._weights = [own for own in self.part.weights if own.name in names]
        self._writer = Writer(self.model, [own.name for own in self._weights])
        self._natural = natural_function(self.model, [own.name for own in self._weights])
        clustering = read(self.model).clustering_of(self.part)
        self._clustering = ClusteringPoints(self.model, clustering)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new, labels = dict(point), self._clustering.labels(point)
        for own in self._weights:
            a, b = own.prior(point)
            sticks, rests = draw_log_sticks(self.rng, a, b, own.counts(labels))
            if own.simplex:
                advice = _ADVICE if own.free_prior else ""
                self._writer.write_simplex(new, own.name, log_weights(sticks, rests), advice)
            else:
                self._writer.write_probability(new, own.name, (sticks - rests)[..., 0])
        self._look(new)
        return new, [{}]

    def _density(self) -> DeclaredDensity:
        return DeclaredDensity(self.model, [own.name for own in self._weights])

    def _log_densities(self, point: PointType) -> list[float]:
        labels = self._clustering.labels(point)
        pairs = zip(self._weights, self._natural(point), strict=True)
        return [own.log_density(value, point, labels) for own, value in pairs]
