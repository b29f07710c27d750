"""The clusters and the matches of new objects."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.special import logsumexp, softmax

from pm_match.checks import check_count, check_seed, warn
from pm_match.matching import partition_estimate
from pm_match.matching.draws import (
    FLAGS,
    IRRELEVANT,
    PREFIX,
    RELEVANCE,
    SAMPLE_DIMS,
    SET,
    coords_along,
)
from pm_match.matching.given_labels import given_labels
from pm_match.matching.memory import check_size, gibibytes, limit
from pm_match.matching.set_draws import SetDraws, read_sets
from pm_match.prediction.averages import WeightedMean
from pm_match.prediction.mixture import draw_categories
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive, check_possible
from pm_match.prediction.predictor import NewObjects
from pm_match.prediction.summaries import object_axis
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading.probe import without_c

# Fewer effective draws than this are too few to trust, if there are many.
_FEW, _MANY = 10.0, 50
# Standard deviations from which values are suspected to be in other units.
_FAR = 5.0
# Pairs of a new object and a known one that are held at a time where only some are asked for.
_PAIRS = 2**24


@without_c()
def assign(
    idata: xr.DataTree | xr.Dataset,
    model: Model,
    new_data: Mapping[str, Any],
    *,
    labels: xr.Dataset | Mapping[str, Any] | None = None,
    top: int | None = None,
    reweight: bool = True,
    num_draws: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.DataTree:
    r"""Find the clusters and the matches of new objects of any domain, without sampling again.

    Every draw t gives the joint probability of the cluster of a new object and what is seen of
    it, all else that the steps integrate out (weights, latent vectors, densities) integrated out,

    .. math:: q_t(j) = p(s^* = j \mid s^{(t)}) \;
              p(x^* \mid s^* = j, X, s^{(t)}, \theta^{(t)})

    (`features.projected_normal`, eq. 13 of Iwata, Hirao & Ueda 2016; `networks.families`, eq. 6 of
    Iwata & Ishiguro 2017). By Bayes' theorem the posterior with the new object added weights
    draws by how well they predict it,

    .. math:: p(s^* = s_m \mid X, x^*) = \frac{\sum_t q_t(s_m^{(t)})}{\sum_t \sum_j q_t(j)} .

    Each new object is added by itself, without the others.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior. Only assignments,
        relevance, noise, projections and hyperparameters are read; and means and precisions of
        normal clusters with factors of their precisions (`normal_clusters` with tails), whose
        prediction after `find_matching` therefore rests on one draw of these.
    model : pymc.Model
        The model that was sampled.
    new_data : mapping
        From domains to what is seen of their new objects. For feature vectors a table with a row
        for each object, as the models take it; NaN or masked entries are missing, and labelled
        columns are matched by label. For networks, where the domain is ``<network>_<type>``, a
        matrix (array, DataFrame or sparse) with a row for each new object, and the known objects
        of the other axes in order; in directed one-mode networks a pair of matrices, the cells
        from the new objects and those towards them, with a row for each new object in both, and
        None for unknown. Where several variables are observed of a domain's objects, a mapping
        from some of them to such data. Tables of `table_clusters` and `normal_clusters` are to be
        standardised first: ``standardise(new, like=tables)``; those of `aligned_clusters` are
        ``principal_components(new, like=tables)``.
    labels : Dataset or mapping, optional
        A partition whose clusters are reported, as `partition_estimate` returns it (the default).
        Known classes will do.
    top : int, optional
        Give only the `top` most likely partners of each new object.
    reweight : bool, default True
        Whether draws are weighted by how well they predict an object, which is exact. Without,
        all draws count alike: for features so many that few draws would have all the weight.
    num_draws : int, optional
        How many draws of each chain to use, evenly spaced. Default: all.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        Of the draws of new objects' clusters.
    progressbar : bool, default True
        Whether to show one if it takes more than two seconds.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.

    Returns
    -------
    DataTree
        For every domain a group ``prediction/<domain>``, over the dim ``<objects>_new``:

        - ``probability`` (objects, cluster): that to be in each cluster of `labels`. A
          draw's cluster counts for those that its members are in, in proportion.
        - ``unseen``: the probability to be in a cluster without any object that `labels` has in
          one; and, where objects may be irrelevant, ``irrelevant``. With these, the clusters' sum
          to 1.
        - ``match_<other>`` (objects, objects of other): the match probability with every object
          of each domain of the same set of clusters. With `top` its dims are (objects, rank), and
          ``partner_<other>`` holds the partners' labels.
        - ``log_predictive``: log p(x* | X), which is low for objects like none that were seen.
        - ``weight`` (draws, objects): how much each draw counts for an object; they sum to 1.
        - ``effective_draws``: Kish's effective number of draws behind the weights.

        Group ``posterior`` has the draws of the assignments, and with them the new objects' own,
        ``<assignment>_new`` and ``relevance_<domain>_new`` (``_new_object`` where another domain
        is called so): all that summarises matchings takes it. They are drawn given each draw as it
        is: to count draws as the probabilities above do, weight those of an object by its
        ``weight``.

    Raises
    ------
    UnservedModelError
        If the model is not one that the steps serve.
    KeyError
        If there is no such domain, or the draws lack a variable.
    TypeError, ValueError
        If new data do not fit the model's, or another argument is not as described.
    MemoryError
        If the match probabilities of all pairs of a new and a known object would take more than
        4 GiB (or what the environment variable ``PM_MATCH_MEMORY`` says), before they are made.
        With `top` they are never held together.

    Warns
    -----
    UserWarning
        If fewer than ten draws of many have the weight of an object; or if new features seem to be
        in other units than the known ones, which is then the reason.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> new = pmm.datasets.synthetic(5, 20, 3, 3, random_seed=3)["a"]
    >>> found = pmm.assign(idata, model, {"a": new}, random_seed=1, progressbar=False)
    >>> found["prediction/a/match_b"].shape
    (5, 60)
    """
    if not isinstance(new_data, Mapping) or not new_data:
        raise TypeError(
            "new_data: expected a mapping from domains' names to what is seen of new objects; "
            f"found {new_data if isinstance(new_data, Mapping) else type(new_data).__name__!r}"
        )
    check_seed(random_seed)
    if top is not None:
        check_count("top", top)
    points = RecordedPoints(idata, model, group, sample_dims, num_draws)
    places = {domain: find_place(points.structure, domain) for domain in new_data}
    components = {id(place.component): place.component for place in places.values()}
    parts = {key: Predictive(model, component) for key, component in components.items()}
    new = [
        read_new_objects(model, parts[id(places[domain].component)], places[domain], given)
        for domain, given in new_data.items()
    ]
    _check_names(points, new)
    if labels is None:
        names = [
            a.name for part in components.values() for c in part.clusterings for a in c.assignments
        ]
        labels = partition_estimate(
            points.posterior,
            progressbar=progressbar,
            sample_dims=sample_dims,
            var_names=names,
        )
    rng = np.random.default_rng(random_seed)
    # With `top`, no more pairs are held than those of some new objects at a time.
    blocks = [[own] if top is None else _blocks(own) for own in new]
    passes = list(zip_longest(*blocks))
    found: dict[str, list[tuple[xr.Dataset, xr.Dataset]]] = {own.place.domain: [] for own in new}
    total = len(passes) * points.n_draws
    with SearchProgress(total, progressbar, PATIENCE, "Predicting") as progress:
        for some in passes:
            tallies = [
                _Tally(points, own, labels, top, reweight) for own in some if own is not None
            ]
            for number, point in enumerate(points):
                for part in parts.values():
                    part.load(point)
                for tally in tallies:
                    tally.add(rng, number, parts[id(tally.new.place.component)])
                progress.advance()
            for tally in tallies:
                found[tally.new.place.domain].append((tally.summary(), tally.draws()))
    groups, drawn = {}, _assignments(points)
    for own in new:
        summaries, draws = zip(*found[own.place.domain], strict=True)
        dim, _ = object_axis(points, own)
        groups[f"prediction/{own.place.domain}"] = _joined(summaries, dim)
        drawn = drawn.assign(_joined(draws, dim))
    _warn_if_few(groups, points.n_draws, new, parts)
    return xr.DataTree.from_dict({"posterior": drawn, **groups})


class _Tally:
    """Adds up what draws say of the new objects of one domain."""

    def __init__(self, points: RecordedPoints, new: NewObjects, labels, top, reweight: bool):
        self.points, self.new, self.top, self.reweight = points, new, top, reweight
        place = new.place
        self.clustering = place.component.clusterings[place.clustering]
        self.names = [a.name for a in self.clustering.assignments]
        own = read_sets(points.posterior, self.names, "", points.sample_dims)
        self.known, self.numbers = _known_labels(labels, own[0])
        n, n_all = len(new), self.clustering.n_objects
        check_size(
            f"assign: match probabilities of new objects of {place.domain!r} and all known ones,",
            (n, n_all),
            "Ask for the likeliest partners alone (top=5)",
        )
        self.flagged = place.assignment.relevance is not None
        self.mean = WeightedMean(
            n, {"cluster": len(self.numbers), "unseen": 1, "irrelevant": 1, "match": n_all}
        )
        shape = (points.n_draws, n)
        self.label = np.zeros(shape, np.int64)
        self.relevant = np.ones(shape, np.int64)
        self.log_weight = np.zeros(shape)

    def add(self, rng: np.random.Generator, number: int, predictive: Predictive) -> None:
        """Add a draw."""
        log_joint = predictive.log_joint(self.new)
        log_predictive = logsumexp(log_joint, axis=1)
        impossible = np.isneginf(log_predictive)
        if self.reweight:
            self.log_weight[number] = log_predictive
        else:
            check_possible(self.new, log_predictive, "every draw, as all count alike")
        if impossible.any():  # without weight, so that its clusters may be any
            prior = predictive.log_joint(replace(self.new, seen={}))
            log_joint = np.where(impossible[:, None], prior, log_joint)
        p = softmax(log_joint, axis=1)
        labels = predictive.labels[self.new.place.clustering]
        drawn = draw_categories(rng, p)
        n_clusters = p.shape[1] - 1
        self.relevant[number] = drawn < n_clusters
        # The label of an irrelevant object means nothing.
        self.label[number] = np.where(drawn < n_clusters, drawn, 0)

        relevant = labels >= 0
        share = np.zeros((n_clusters, len(self.numbers)))
        counted = relevant & (self.known >= 0)
        np.add.at(share, (labels[counted], self.known[counted]), 1.0)
        members = share.sum(axis=1, keepdims=True)
        share = np.divide(share, members, out=np.zeros_like(share), where=members > 0)
        # Nothing matches an irrelevant object, whose label is -1: the last column.
        match = np.append(p[:, :-1], np.zeros((len(p), 1)), axis=1)
        self.mean.add(
            log_predictive,
            {
                "cluster": p[:, :-1] @ share,
                "unseen": p[:, :-1] @ (members == 0.0),
                "irrelevant": p[:, -1:],
                "match": (match, labels),
            },
            weighted=self.reweight,
        )

    def summary(self) -> xr.Dataset:
        """Give the averages over draws."""
        dim, coords = object_axis(self.points, self.new)
        log_predictive = self.mean.log_mean_weight()
        check_possible(self.new, log_predictive, "some draw")
        # Rounding may exceed what probabilities do not.
        mean = {name: np.clip(value, 0.0, 1.0) for name, value in self.mean.values().items()}
        found: dict[str, Any] = {
            "probability": ((dim, "cluster"), mean["cluster"]),
            "unseen": (dim, mean["unseen"][:, 0]),
        }
        if self.flagged:
            found["irrelevant"] = (dim, mean["irrelevant"][:, 0])
        found["log_predictive"] = (dim, log_predictive)
        weight = softmax(self.log_weight, axis=0)
        found["weight"] = ((*self.points.sample_dims, dim), weight.reshape(*self._sizes(), -1))
        found["effective_draws"] = (dim, 1.0 / np.square(weight).sum(axis=0))
        coords |= {"cluster": self.numbers}
        parts = np.split(mean["match"], self.clustering.ends, axis=1)
        for name, match in zip(self.names, parts, strict=True):
            other = self.points.posterior[name]
            partners = self.points.object_dim(name)
            domain = name.removeprefix(PREFIX)
            if self.top is None:
                found[f"match_{domain}"] = ((dim, partners), match)
                coords |= coords_along(other, partners)
                continue
            best = np.argsort(-match, axis=1, kind="stable")[:, : self.top]
            rank = f"{domain}_rank"
            found[f"match_{domain}"] = ((dim, rank), np.take_along_axis(match, best, axis=1))
            found[f"partner_{domain}"] = ((dim, rank), other[partners].to_numpy()[best])
        return xr.Dataset(found, coords)

    def _sizes(self) -> list[int]:
        return [self.points.posterior.sizes[d] for d in self.points.sample_dims]

    def draws(self) -> xr.Dataset:
        """Give the draws of the new objects' clusters."""
        dim, coords = object_axis(self.points, self.new)
        sizes = self._sizes()
        dims = (*self.points.sample_dims, dim)
        name = self.new.place.assignment.name
        recorded = self.points.posterior[name].attrs  # plain pm.sample names no set
        attrs = {SET: recorded[SET]} if SET in recorded else {}
        suffix = _suffix(self.points, self.new)
        flags_name = f"{RELEVANCE}{self.new.place.domain}{suffix}"
        if self.flagged:
            attrs[FLAGS] = flags_name
        found = {
            f"{name}{suffix}": xr.DataArray(
                self.label.reshape(*sizes, -1), coords, dims, attrs=attrs
            )
        }
        if self.flagged:
            flags = xr.DataArray(self.relevant.reshape(*sizes, -1), coords, dims)
            found[flags_name] = flags
        return xr.Dataset(found)


def _known_labels(labels: Mapping[Any, Any], draws: SetDraws) -> tuple[NDArray[np.int64], NDArray]:
    """Give the place of every object's label (N,) among those of a partition, -1 for none."""
    whole = given_labels(labels, draws)
    numbers = np.unique(whole[whole != IRRELEVANT])
    return np.where(whole == IRRELEVANT, -1, np.searchsorted(numbers, whole)), numbers


def _assignments(points: RecordedPoints) -> xr.Dataset:
    """Take the draws of all assignments, and of their relevance, from the posterior."""
    names = [
        name
        for clustering in points.structure.clusterings
        for a in clustering.assignments
        for name in (a.name, a.relevance)
        if name
    ]
    return points.posterior[names]


def _suffix(points: RecordedPoints, new: NewObjects) -> str:
    """Return what is put after a domain's names for its new objects: it may be another domain's."""
    declared = {own.name for c in points.structure.clusterings for own in c.assignments}
    suffix = "_new"
    while f"{new.place.assignment.name}{suffix}" in declared:
        suffix += "_object"
    return suffix


def _check_names(points: RecordedPoints, new: Sequence[NewObjects]) -> None:
    """Refuse what the result could not hold."""
    domains = [own.place.domain for own in new]
    twice = {d for d in domains if domains.count(d) > 1}
    taken = [
        own.place.domain
        for own in new
        if f"{own.place.assignment.name}{_suffix(points, own)}" in points.posterior
    ]
    if twice or taken:
        raise ValueError(
            "new_data: expected domains once, without new objects in these draws; found "
            f"{(sorted(twice) or taken)[0]!r} "
            + ("twice" if twice else "with new objects in them already")
        )


def _blocks(new: NewObjects) -> list[NewObjects]:
    """Split new objects so that their pairs with all known ones take little memory."""
    n_all = new.place.component.clusterings[new.place.clustering].n_objects
    n = max(1, int(min(_PAIRS, limit() / gibibytes((1,))) // n_all))
    return [new.rows(slice(first, first + n)) for first in range(0, max(len(new), 1), n)]


def _joined(parts: Sequence[xr.Dataset], dim: Hashable) -> xr.Dataset:
    if len(parts) == 1:
        return parts[0]
    return xr.concat(
        parts, dim, data_vars="minimal", coords="minimal", compat="override", join="override"
    )


def _warn_if_few(
    groups: Mapping[str, xr.Dataset],
    n_draws: int,
    new: Sequence[NewObjects],
    parts: Mapping[int, Predictive],
) -> None:
    for (name, found), own in zip(groups.items(), new, strict=True):
        few = found["effective_draws"].to_numpy() < _FEW
        if n_draws < _MANY or not few.any():
            continue
        far = few & _far(own, parts[id(own.place.component)])
        if far.sum() > few.sum() / 2:
            said = (
                f"{far.sum()} of {len(own)} new objects are more than {_FAR:g} standard deviations "
                "from the known ones' mean in some column: are they in the same units, and brought "
                "to the scale of the model's (pmm.standardise or pmm.principal_components, "
                "like=tables)?"
            )
        else:
            said = (
                f"fewer than {_FEW:.0f} of {n_draws} draws have the weight of {few.sum()} new "
                "objects, whose probabilities are therefore rough: take more draws, or "
                "reweight=False."
            )
        warn(f"{name}: {said}")


def _far(new: NewObjects, predictive: Predictive) -> NDArray[np.bool_]:
    """Whether objects (N,) are far from all that is known, where that can be said."""
    far = np.zeros(len(new), dtype=bool)
    for number, seen in new.seen.items():
        predictor = predictive.predictors[number]
        assert predictor is not None
        deviations = predictor.deviations(new.place, seen)
        if deviations is not None:
            far |= (deviations > _FAR).any(axis=1)
    return far
