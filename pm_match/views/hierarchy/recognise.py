"""Reads hierarchies: clusters of objects, and below them clusters of every view of the objects."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.transforms import SimplexTransform
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV

from pm_match.normal.parts import Normals
from pm_match.normal.recognise import mean_and_precision, normals_candidates
from pm_match.reading.ancestry import RV, Refusal, names, parameters, read_each
from pm_match.reading.clusterings import (
    ClusteringCandidate,
    clustering_candidate,
    verified_clustering,
)
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.parts import Clustering, Part, Point
from pm_match.reading.probe import chosen_objects


@dataclass(frozen=True, eq=False)
class HierarchyView:
    """One view: its clusters given those of the objects, and what is normal around them."""

    link: str  # probabilities (T, T_v) of the view's clusters given the objects'
    assignment: str  # the view's clusters, of the objects that it has seen
    objects: NDArray[np.int64]  # (N_v,): which objects these are
    normals: Normals
    values: NDArray[np.float64]  # (N_v, D): in the order of `objects`
    # from a point to the parameters (T, T_v) of the link's Dirichlet prior
    concentration: Callable[[Point], NDArray[np.float64]] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Hierarchy(Part):
    """Clusters of objects above clusters of every view (Klami & Kaski, eq. 3)."""

    clustering: Clustering  # of the objects: one assignment, and its weights
    views: tuple[HierarchyView, ...]

    @property
    def names(self) -> list[str]:
        """The free variables that our steps draw."""
        found = list(self.clustering.names)
        for view in self.views:
            found += [view.link, view.assignment, *view.normals.names]
        return found

    @property
    def relabelled(self) -> list[str]:
        """The variables that renaming clusters changes."""
        precisions = [view.normals.precision for view in self.views]
        return [name for name in self.names if name not in precisions]

    @property
    def tables(self) -> list[NDArray[np.float64]]:
        """The values (N, D) of every view, NaN for objects that it has not seen."""
        n = self.clustering.n_objects
        return [placed(n, view.objects, view.values) for view in self.views]

    def start(self, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
        """Make assignments to start from, by EM from one start of its own.

        All else is drawn given these; until then, precisions are those of EM.
        """
        # EM is of no use to a model that is only read.
        from pm_match.views.em.dependency import start_labels

        n_marginal = [view.normals.truncation for view in self.views]
        try:
            z, w, precisions = start_labels(
                rng, self.tables, self.clustering.truncation, n_marginal
            )
        except ValueError:
            # Too few objects, or collinear features: nothing better than a random start is at hand.
            return self._random_start(rng)
        found: dict[str, NDArray] = {self.clustering.assignments[0].name: z}
        for view, label, precision in zip(self.views, w, precisions, strict=True):
            found |= {view.assignment: label, view.normals.precision: precision}
        return found

    def _random_start(self, rng: np.random.Generator) -> dict[str, NDArray]:
        (assignment,) = self.clustering.assignments
        labels = rng.integers(self.clustering.truncation, size=assignment.n_objects)
        return {assignment.name: labels} | {
            view.assignment: rng.integers(view.normals.truncation, size=len(view.objects))
            for view in self.views
        }


def placed(n: int, rows: NDArray[np.int64], values: Any) -> NDArray[np.float64]:
    """Put rows of values into a table of `n` objects, NaN elsewhere."""
    found = np.full((n, values.shape[1]), np.nan)
    found[rows] = values
    return found


def hierarchies(context: Context) -> tuple[list[Part], dict[str, str]]:
    """Find the hierarchies of a model, and by variable what is refused."""
    below: dict[RV, list[RV]] = {}
    for rv in context.model.free_RVs:
        if not isinstance(rv.owner.op, CategoricalRV) or context.is_missing(rv):
            continue
        for parent in context.ancestry.parents[rv]:
            if parent in context.model.free_RVs and isinstance(parent.owner.op, CategoricalRV):
                below.setdefault(parent, []).append(rv)
    return read_each(
        below.items(),
        lambda own: _hierarchy(context, *own),
        lambda own: [rv.name for rv in (own[0], *own[1])],
    )


def _hierarchy(context: Context, top: RV, marginals: list[RV]) -> Hierarchy:
    candidate = clustering_candidate(
        context, frozenset(context.ancestry.parents[top]), [top], {}, {}
    )
    if candidate.constraints:
        raise Refusal(
            f"{names(candidate.constraints, 'is')} about links of {top.name!r}, whose views have "
            "clusters of their own; links are served for clusters without such views only"
        )
    context.ancestry.only_children(top, marginals)
    links = [_link(context, top, rv) for rv in marginals]
    below = [_marginal(context, rv, link) for rv, link in zip(marginals, links, strict=True)]
    normals = []
    for one in below:
        (rv,) = one.assignments
        values = [v for v in context.ancestry.children(rv) if mean_and_precision(context, v)]
        own = normals_candidates(context, 0, one, values)
        if len(own) != 1 or len(own[0].values) != 1:
            raise Refusal(
                f"{rv.name!r} has {len(own)} sets of normal clusters; expected one observed "
                "variable that is normal around one mean for each cluster, with one precision"
            )
        if own[0].missing:
            raise Refusal(
                f"{names(own[0].missing.values(), 'holds')} missing values; expected none in views "
                "with clusters of their own"
            )
        context.ancestry.only_children(rv, own[0].values)
        normals.append(own[0])
    labels = candidate.labels | {rv: n for one in below for rv, n in one.labels.items()}
    check = DensityCheck(context, [rv for own in normals for rv in own.checked], labels)
    clustering = verified_clustering(context, candidate, check)
    views = [
        _view(context, candidate, one, link, own, check)
        for one, link, own in zip(below, links, normals, strict=True)
    ]
    return Hierarchy(clustering, tuple(views))


def _link(context: Context, top: RV, rv: RV) -> RV:
    """Find the probabilities of a view's clusters given the objects'."""
    n, n_top = context.shapes[rv.name], context.shapes[top.name]
    if n > n_top:
        raise Refusal(
            f"the weights of {rv.name!r}, of shape {n}, depend on the labels {top.name!r}, of "
            f"shape {n_top}; expected labels of the same objects, or of some of them"
        )
    others = context.ancestry.parents[rv] - {top}
    if len(others) != 1 or not isinstance(next(iter(others)).owner.op, DirichletRV):
        raise Refusal(
            f"{rv.name!r} depends on {names(others) or 'nothing'} besides {top.name!r}; expected "
            "one Dirichlet variable with a row for each cluster"
        )
    (link,) = others
    context.must_be_free(link)
    context.must_be_plain(link, (SimplexTransform,))
    context.ancestry.only_children(link, [rv])
    if context.ancestry.parents[link]:
        raise Refusal(
            f"the prior of {link.name!r} depends on {names(context.ancestry.parents[link])}; "
            "expected constants"
        )
    shape = context.shapes[link.name]
    if len(shape) != 2:
        raise Refusal(f"{link.name!r} has shape {shape}; expected a row for each cluster")
    if min(shape) < 2:
        raise Refusal(
            f"{link.name!r} has shape {shape}; expected several clusters of objects and of the view"
        )
    return link


def _marginal(context: Context, rv: RV, link: RV) -> ClusteringCandidate:
    """Describe a view's clusters as a clustering, whose weights are those of the objects' own."""
    shape = context.shapes[rv.name]
    if len(shape) != 1:
        raise Refusal(f"{rv.name!r} has shape {shape}; expected one vector of labels")
    truncation = context.shapes[link.name][1]
    free, none = np.full(shape[0], -1), np.empty((0, 2), np.int64)
    return ClusteringCandidate(link, None, truncation, [rv], {}, [], none, none, [], {}, free)


def _view(
    context: Context,
    top: ClusteringCandidate,
    below: ClusteringCandidate,
    link: RV,
    normals: Any,
    check: DensityCheck,
) -> HierarchyView:
    (z,), (w,) = top.assignments, below.assignments
    shape = (top.truncation, below.truncation)
    if context.shapes[link.name] != shape:
        raise Refusal(
            f"{link.name!r} has shape {context.shapes[link.name]}; expected {shape}: a row for "
            f"each cluster of {z.name!r}"
        )
    objects = _objects(context, z, w, link)
    _check_probabilities(z, w, link, objects, check)
    own = normals.verified(context, [below], check)
    (one,) = own.values
    if one.data is None or not own.shared:
        raise Refusal(
            f"{one.name!r} is {'free' if one.data is None else 'of clusters with a precision each'}"
            "; expected an observed variable, and one precision shared by all clusters"
        )
    if one.factor:
        raise Refusal(f"{one.factor.name!r} multiplies precisions of {one.name!r}; expected none")
    if not np.array_equal(np.sort(one.objects), np.arange(len(objects))):
        raise Refusal(
            f"{one.name!r} has no row, or several, for some labels of {w.name!r}; expected one each"
        )
    values = np.empty_like(one.data)
    values[one.objects] = one.data
    read = context.at(parameters(link)[:1])

    def concentration(point) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.broadcast_to(read(point)[0], shape), float)

    return HierarchyView(link.name, w.name, objects, own, values, concentration)


def _objects(context: Context, z: RV, w: RV, link: RV) -> NDArray[np.int64]:
    """Find which object each label of a view is of, by the row of the link that it chooses."""
    n_objects, n_labels = context.shapes[z.name][0], context.shapes[w.name][0]
    n_clusters, n_marginal = context.shapes[link.name]
    numbered = np.repeat(np.arange(float(n_clusters))[:, None], n_marginal, axis=1)
    found = chosen_objects(context.model, parameters(w)[0], z, {link: numbered}, n_objects, 1.0)
    if found is None or len(found) != n_labels:
        raise Refusal(
            f"the probabilities of {w.name!r} are not rows of {link.name!r}, chosen by the "
            f"labels {z.name!r} of some of its objects"
        )
    if found.max(initial=0) >= n_objects or len(np.unique(found)) < len(found):
        raise Refusal(
            f"several labels of {w.name!r} are of one object of {z.name!r}; expected at most one"
        )
    return found


def _check_probabilities(z, w, link, objects, check: DensityCheck) -> None:
    """Refuse if a view's clusters are not Categorical over the rows of the link."""
    for labels, rows, found in check.at([z, link, parameters(w)[0]]):
        expected = rows[labels[objects]]
        if found.shape != expected.shape or not np.allclose(found, expected, 1e-6, 1e-12):
            raise Refusal(
                f"{w.name!r}: its declared probabilities are not the rows of {link.name!r} that "
                f"{z.name!r} chooses"
            )
