"""What the declared models have in common: priors on the weights of clusters, and links."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.exceptions import ImputationWarning

from pm_match.checks import check_positive, did_you_mean, label_text, plain, type_name, warn
from pm_match.reading.links import cannot_link, must_link
from pm_match.reading.probe import n_entries
from pm_match.tables.order import in_order

# PyTensor keeps a Python float that fits in single precision, and computes with it there.
real = np.float64

# Objects known to share a cluster, as `link_sets` understands them.
Links = (
    Mapping[str, Any] | pd.DataFrame | Sequence[Mapping[str, Any] | pd.DataFrame] | NDArray | None
)

WEIGHTS = ("stick-breaking", "dirichlet", "uniform")


def cluster_weights(
    kind: str, size: int, concentration: Any, name: str = "weights", dim: str = "cluster"
) -> Any:
    """Declare the probabilities of clusters.

    `kind`, {"stick-breaking", "dirichlet", "uniform"}: truncated stick-breaking; a symmetric
    Dirichlet(concentration / size); or known, and equal; `size`: how many clusters there are at
    most; `concentration`: uniform weights have none. Return a variable, or (size,).
    """
    each = np.full(size, 1.0 / size)
    if kind == "uniform":
        return each
    alpha = real(concentration) if isinstance(concentration, float | int) else concentration
    if kind == "dirichlet":
        return pm.Dirichlet(name, alpha * each, dims=dim)
    return pm.StickBreakingWeights(name, alpha=alpha, K=size - 1, dims=dim)


def check_known(known: Any, names: Collection[str]) -> None:
    """Refuse known clusters that are not by the `names` of what has clusters."""
    if known is not None and not isinstance(known, Mapping):
        raise TypeError(
            "known: expected a mapping from names to the clusters of objects, such as "
            f"{{'a': clusters_of_a}}; found {type_name(known)}"
        )
    for name in known or {}:
        if name not in names:
            near = did_you_mean(name, names)
            raise ValueError(f"known: expected names among {list(names)}; found {name!r}{near}")


def assignment(name: str, weights: Any, dim: str, known: Mapping[str, Any] | None) -> Any:
    """Declare the clusters of a domain's objects, observed where they are known.

    `name`: the variable is `cluster_<name>`; `dim`: of the objects, which has their labels as
    coords; `known`: from domains to the labels of their objects (whole numbers), -1 where they are
    not known: in their order, or by their index.
    """
    labels = None if known is None else known.get(name)
    if labels is not None:
        objects = pm.modelcontext(None).coords[dim]
        labels = np.asarray(in_order(f"known[{name!r}]", labels, objects))
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise ValueError(
                f"known[{name!r}]: expected whole numbers, one for each object, -1 where the "
                f"cluster is not known; found dtype {labels.dtype}, shape {labels.shape}"
            )
        labels = np.ma.masked_less(labels, 0) if (labels < 0).any() else labels
    with imputing():
        return pm.Categorical(f"cluster_{name}", p=weights, dims=dim, observed=labels)


def normal_view(
    name: str,
    values: NDArray[np.float64],
    cluster: Any,
    cluster_dim: str,
    object_dim: str,
    prior: tuple[int, NDArray[np.float64]],
    mean_strength: float,
    own: bool = False,
    tails: float | None = None,
) -> None:
    """Declare a view whose clusters are normal, with one precision or each its `own`.

    `name`: of what is observed; means and precisions are called `mean_<name>` and
    `precision_<name>`. `values` (N, D): masked where values are missing; `cluster` (N,);
    `cluster_dim`, `object_dim`: dims beside `<name>_feature` and `<name>_other_feature`; `prior`
    (int, (D,)): degrees of freedom of the precisions' Wishart prior, and the diagonal of its
    scale; `mean_strength`: how many objects the prior of a mean is worth; it is around the mean of
    all; `tails`: degrees of freedom of Student's t, by factors `precision_factor_<name>` of the
    precisions.
    """
    feature, other = f"{name}_feature", f"{name}_other_feature"
    dims = (*((cluster_dim,) if own else ()), feature, other)
    precision: Any = pm.Wishart(f"precision_{name}", nu=prior[0], V=np.diag(prior[1]), dims=dims)
    # Of an array of matrices, PyMC misreads the inverse itself given as a covariance.
    spread: Any = pt.linalg.inv(precision)
    middle, strength = np.asarray(values.mean(axis=0)), real(mean_strength)
    mean = pm.MvNormal(f"mean_{name}", middle, cov=spread / strength, dims=(cluster_dim, feature))
    spread = spread[cluster] if own else spread
    if tails is not None:
        half = real(0.5 * tails)
        factor = pm.Gamma(f"precision_factor_{name}", half, half, dims=object_dim)
        spread = spread / factor[:, None, None]
    with imputing():
        pm.MvNormal(name, mean[cluster], cov=spread, observed=values, dims=(object_dim, feature))


@contextmanager
def imputing() -> Iterator[None]:
    """Observe what has missing values, without PyMC's announcement that it imputes them."""
    with warnings.catch_warnings():
        # That is what was asked for.
        warnings.simplefilter("ignore", ImputationWarning)
        yield


def check_all_positive(**values: Any) -> None:
    """Refuse what is no positive, finite number, of several arguments."""
    for name, value in values.items():
        check_positive(name, value)


def link_sets(
    links: Any, what: str = "links", objects: Mapping[str, Iterable[Any]] | None = None
) -> list[Mapping[str, Any]]:
    """Give links as a list of mappings: there may be none, one or several.

    Each is from names to positions (whole numbers) or labels (text) of objects, the k-th of which
    are linked, or from one name to groups of these. In a DataFrame a column is a name, and a row
    holds the labels of linked objects, NaN where it links none of that name. Where `objects`, the
    labels by name, are given, tuples and lists are labels that one object each has. So it is with
    what cannot be linked; messages call it `what`.
    """
    if links is None:
        return []
    alone = not isinstance(links, Sequence | np.ndarray)
    sets: list[Mapping[str, Any]] = []
    groups: list[Any] = []
    for one in [links] if alone else links:
        if isinstance(one, pd.DataFrame):
            sets += _by_names(one, what)
        elif isinstance(one, Mapping):
            sets.append(one)
        elif isinstance(one, tuple | list | np.ndarray) and objects is not None:
            groups.append(one)
        else:
            raise TypeError(
                f"{what}: expected a mapping from names to positions or labels, such as "
                "{'a': [3, 7], 'b': [5, 0]}, a DataFrame with a column of labels for each name, or "
                f"a sequence of such{', or of tuples of labels' * (objects is not None)}; found "
                f"{type_name(one)}"
            )
    return sets + _by_labels(groups, what, objects or {})


def _by_labels(
    groups: Sequence[Sequence[Any]], what: str, objects: Mapping[str, Iterable[Any]]
) -> list[dict[str, Any]]:
    """Give groups of labels as mappings, one for each pair of names that has any."""
    having: dict[str, list[str]] = {}
    for name, labels in objects.items():
        for label in labels:
            having.setdefault(label_text(label), []).append(name)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for group in groups:
        if len(group) < 2:
            raise ValueError(f"{what}: expected labels of at least two objects; found {group!r}")
        for label in map(label_text, group):
            there = having.get(label, [])
            if not there:
                raise ValueError(
                    f"{what}: no domain has an object {label!r}{did_you_mean(label, having)}"
                )
            if len(there) > 1:
                form = f"{{{', '.join(f'{name!r}: […]' for name in there[:2])}}}"
                raise ValueError(
                    f"{what}: expected a label of one domain alone; found {label!r} in "
                    f"{' and '.join(map(repr, there))}: say which by {form}"
                )
        for pair in combinations(map(label_text, group), 2):
            names = having[pair[0]][0], having[pair[1]][0]
            found.setdefault(names, []).append(pair)
    return [
        {names[0]: pairs}
        if names[0] == names[1]
        else {name: list(own) for name, own in zip(names, zip(*pairs, strict=True), strict=True)}
        for names, pairs in found.items()
    ]


def _by_names(rows: pd.DataFrame, what: str) -> list[dict[Any, list[str]]]:
    """Give rows of labels as mappings, one for each set of names that rows link."""
    if not rows.columns.is_unique:
        twice = rows.columns[rows.columns.duplicated()][0]
        raise ValueError(f"{what}: expected one column for {twice!r}; found several")
    found: dict[tuple, list[pd.Series]] = {}
    for place, row in rows.iterrows():
        linked = row.dropna()
        if len(linked) < 2:
            raise ValueError(
                f"{what}: row {place!r}: expected labels of at least two objects; "
                f"found {len(linked)}"
            )
        found.setdefault(tuple(linked.index), []).append(linked)
    return [
        {name: [label_text(row[name]) for row in linked] for name in names}
        for names, linked in found.items()
    ]


def warn_of_levels(what: str, levels: Mapping[str, Collection[Any]]) -> None:
    """Warn of levels, by table, that never meet.

    They are equal as text alone, or but for case and spaces, or they are all of one table's.
    """
    seen: dict[str, tuple[Any, str]] = {}
    spelled: dict[str, tuple[Any, str]] = {}
    for name, own in levels.items():
        for level in own:
            other, where = seen.setdefault(label_text(level), (level, name))
            if other != level:
                warn(
                    f"{what}: expected values of one type; found {plain(other)!r} in {where!r} and "
                    f"{plain(level)!r} in {name!r}, which count as different: convert one of them"
                )
                return
            word = " ".join(label_text(level).split()).casefold()
            other, where = spelled.setdefault(word, (level, name))
            if level not in levels[where] and other not in own:
                warn(
                    f"{what}: expected one spelling in all tables; found {plain(other)!r} in "
                    f"{where!r} and {plain(level)!r} in {name!r}, which count as different: rename "
                    "one of them"
                )
                return
    for name, own in levels.items():
        others = set().union(*(levels[other] for other in levels if other != name))
        if others and others.isdisjoint(own):
            warn(
                f"{what}: expected values in {name!r} that others have too; found none "
                f"({plain(next(iter(own)))!r}, say)"
            )
            return


def declare_links(links: Links, names: Sequence[str], what: str = "links") -> None:
    """Declare every set of links, between `cluster_<name>` of the names that it has positions of.

    `links`: see `link_sets`; `names`: those that there are; `what`, {"links", "cannot_link"}:
    whether objects are linked, or cannot be.
    """
    declare = must_link if what == "links" else cannot_link
    for number, own in enumerate(link_sets(links, what)):
        for name in own:
            if name not in names:
                raise ValueError(
                    f"{what}: expected names among {list(names)}; found {name!r}"
                    f"{did_you_mean(name, names)}"
                )
        declare(
            what if number == 0 else f"{what}_{number}",
            {f"cluster_{name}": _positions(name, given, what) for name, given in own.items()},
        )


def _positions(name: str, given: Any, what: str) -> Any:
    """Give positions for labels, which are text; leave what are none. One object may be alone."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    if any(
        isinstance(entry, Sequence | np.ndarray) and not isinstance(entry, str) for entry in given
    ):
        return [_positions(name, group, what) for group in given]
    if np.asarray(given).dtype.kind not in "USO":
        return given
    model = pm.modelcontext(None)
    variable = f"cluster_{name}"
    (dim,) = model.named_vars_to_dims[variable]
    n_objects = n_entries(model[variable])
    labels = model.coords.get(dim) or range(n_objects)
    place = {label_text(label): number for number, label in enumerate(labels)}
    strange = [label for label in given if label_text(label) not in place]
    if strange:
        raise ValueError(
            f"{what}: {name!r} has no object {strange[0]!r}{did_you_mean(strange[0], place)}"
        )
    return [place[label_text(label)] for label in given]
