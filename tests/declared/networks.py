"""Tiny declared network models, small enough to enumerate, of every kind that the steps serve."""

from itertools import product

import numpy as np
import pymc as pm
from scipy.special import betaln

import pm_match as pmm
from pm_match.networks.state import RelationState
from tests.declared.plain import plain_log_prior

# Two networks over shared clusters: objects on each axis.
SHAPES = {
    "bipartite": {"a": (3, 2), "b": (2, 2)},
    "three-way": {"a": (2, 2, 2), "b": (2, 1, 1)},
    "directed": {"a": (4, 4), "b": (3, 3)},
    "undirected": {"a": (4, 4), "b": (3, 3)},
    "shared clusters": {"a": (3, 2), "b": (2, 2)},
}
ONE_MODE = ("directed", "undirected")


def network_data(kind="bipartite", family="bernoulli", unknown=False, loops=False, seed=0):
    """Dense arrays of data, NaN where unknown."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in SHAPES[kind].items():
        x = {
            "bernoulli": lambda shape=shape: (rng.random(shape) < 0.45).astype(float),
            "poisson": lambda shape=shape: rng.poisson(0.8, shape).astype(float),
            "negative-binomial": lambda shape=shape: rng.negative_binomial(1.0, 0.5, shape) * 1.0,
            "normal": lambda shape=shape: rng.normal(0.3, 1.2, shape),
        }[family]()
        if unknown:
            x[rng.random(shape) < 0.25] = np.nan
        if kind == "undirected":
            x = np.triu(x) + np.triu(x, 1).T
        if kind in ONE_MODE and not loops:
            np.fill_diagonal(x, 0.0)
        found[name] = x
    return found


def network_model(
    kind="bipartite",
    *,
    family="bernoulli",
    relevance=True,
    unknown=False,
    loops=False,
    linked=False,
    exposure=False,
    weights="stick-breaking",
    truncation=2,
    hyperpriors=False,
    data=None,
    features=None,
    relations=1,
) -> pm.Model:
    """Declare a tiny model in plain PyMC."""
    data = network_data(kind, family, unknown, loops) if data is None else data
    one_mode = kind in ONE_MODE
    n_types = 1 if one_mode or kind == "shared clusters" else len(next(iter(data.values())).shape)
    n_axes = len(next(iter(data.values())).shape)
    type_of = [0] * n_axes if n_types == 1 else list(range(n_axes))
    with pm.Model() as model:
        own = [_weights(t, weights, truncation + t % 2, hyperpriors) for t in range(n_types)]
        size = tuple(truncation + t % 2 for t in type_of)
        n_flagged = 1 if relevance == "rows" else n_types if relevance else 0
        two, more = np.float64(2.0), np.float64(1.5)
        shares = [pm.Beta(f"share_{t}", two, more) for t in range(n_flagged)]
        first = (
            pm.Gamma("density_prior", np.float64(5.0), np.float64(5.0))
            if hyperpriors
            else np.float64(0.8)
        )
        parameters = [
            _parameters(f"density{r or ''}", family, first, size) for r in range(relations)
        ]
        noise = [
            _parameters(f"noise{r or ''}", family, np.float64(0.7), ()) if relevance else None
            for r in range(relations)
        ]
        clusters = {}
        for name, x in data.items():
            axes, flags = [], []
            for axis, t in enumerate(type_of):
                if one_mode and axis:
                    axes.append(axes[0])
                    flags.append(flags[0])
                    continue
                label = f"{name}_{axis}"
                axes.append(pm.Categorical(f"cluster_{label}", p=own[t], shape=x.shape[axis]))
                flags.append(
                    pm.Bernoulli(f"relevance_{label}", shares[t], shape=x.shape[axis])
                    if relevance and not (relevance == "rows" and axis)
                    else None
                )
            clusters[name] = axes
            for r in range(relations):
                pmm.BlockNetwork(
                    name + (str(r) if r else ""),
                    axes=axes,
                    density=parameters[r],
                    noise=noise[r],
                    relevance=flags if relevance else None,
                    family=family,
                    symmetric=kind == "undirected",
                    self_loops=loops,
                    exposure=exposures_of(x.shape, kind) if exposure else None,
                    observed=x if not r else np.roll(x, 1, axis=0),
                )
        if features is not None:
            precision = pm.Gamma("precision", 2.0, 1.5)
            latent = pm.Normal("latent", 0.0, tau=0.6 * precision, shape=(truncation, 2))
            for name, y in features.items():
                w = pm.Normal(f"projection_{name}", shape=(y.shape[1], 2))
                mu = latent[clusters[name][0]] @ w.T
                pm.Normal(f"{name}_features", mu, tau=precision, observed=y)
        if linked:
            pmm.must_link("links", {clusters["a"][0]: [0, 0], clusters["b"][0]: [1, 0]})
    return model


def _weights(number, kind, truncation, hyperpriors):
    alpha = (
        pm.Gamma(f"concentration_{number}", np.float64(5.0), np.float64(5.0))
        if hyperpriors
        else np.float64(1.4)
    )
    if kind == "known":
        return np.full(truncation, 1.0 / truncation)
    if kind == "dirichlet":
        return pm.Dirichlet(f"weights_{number}", np.full(truncation, 0.8))
    return pm.StickBreakingWeights(f"weights_{number}", alpha, truncation - 1)


def _parameters(name, family, first, size):
    if family in ("bernoulli", "negative-binomial"):
        return pm.Beta(name, first, np.float64(1.2), shape=size)
    if family == "poisson":
        return pm.Gamma(name, first, np.float64(1.2), shape=size)
    precision = pm.Gamma(f"{name}_precision", first + 1.0, np.float64(1.2), shape=size)
    return pm.Normal(name, np.float64(0.2), tau=np.float64(0.7) * precision, shape=size), precision


def exposures_of(shape, kind):
    rng = np.random.default_rng(3)
    found = [rng.uniform(0.5, 2.0, n) for n in shape]
    return (found[0], found[0]) if kind == "undirected" else tuple(found)


# -- plain formulas ------------------------------------------------------------------------------


def cluster_step(model) -> pmm.ClusterGibbs:
    name = next(rv.name for rv in model.free_RVs if rv.name.startswith("cluster_"))
    return pmm.ClusterGibbs([model[name]], model=model, rng=0)


def plain_log_joint(step, point, labels) -> float:
    """Log p(X, Z, R), eq. (1), by the slow formulas, from each clustering's labels of objects."""
    evidence = sum(state.log_marginal(point, labels) for state in step._collapsed.evidence)
    return plain_prior(step, point, labels) + evidence


def plain_prior(step, point, labels) -> float:
    """Log p(Z, R): the assignments and flags."""
    total = 0.0
    for number, clustering in enumerate(step.part.clusterings):
        label = labels[number]
        relevant = label[label >= 0]
        counts = np.bincount(relevant, minlength=clustering.truncation)
        if clustering.weights:
            total += plain_log_prior(*clustering.prior(point), counts)
        else:
            total -= len(relevant) * np.log(clustering.truncation)
        for group, (e, f, _) in enumerate(clustering.relevance_prior(point)):
            own = np.concatenate(
                [
                    part >= 0
                    for a, part in zip(
                        clustering.assignments, np.split(label, clustering.ends), strict=True
                    )
                    if a.group == group
                ]
            )
            total += betaln(e + own.sum(), f + (~own).sum()) - betaln(e, f)
    return total


def relation_evidence(step) -> list:
    """Block evidence of every relation behind a step."""
    return [state.evidence for state in step._collapsed.of_kind(RelationState)]


def all_states(step) -> list[np.ndarray]:
    """Labels of units, all clusterings side by side, that the collapsed chain may be in."""
    choices = []
    for partition, clustering in zip(
        step._collapsed.partitions, step.part.clusterings, strict=True
    ):
        for group in partition.relevance.group:
            choices.append(range(-1 if group >= 0 else 0, clustering.truncation))
    return [np.array(state) for state in product(*choices)]


def of_objects(step, state) -> list[np.ndarray]:
    """Labels of every clustering's objects from those of all units."""
    ends = np.cumsum([len(own.size) for own in step._collapsed.units])[:-1]
    return [
        part[own.of_object]
        for part, own in zip(np.split(state, ends), step._collapsed.units, strict=True)
    ]


def random_point(model, rng) -> dict:
    """A random point of the value variables, in which linked objects share their label."""
    step = cluster_step(model)
    point = {}
    labels = [
        rng.integers(c.truncation, size=len(own.size))[own.of_object]
        for c, own in zip(step.part.clusterings, step._collapsed.units, strict=True)
    ]
    by_name = {
        a.name: part
        for c, label in zip(step.part.clusterings, labels, strict=True)
        for a, part in zip(c.assignments, np.split(label, c.ends), strict=True)
    }
    for name, value in model.initial_point(0).items():
        value = np.asarray(value)
        if name in by_name:
            drawn = by_name[name]
        elif name.startswith("relevance_"):
            drawn = rng.random(value.shape) < 0.7
        else:
            drawn = rng.normal(0.0, 0.8, value.shape)
        point[name] = np.asarray(drawn, value.dtype)
    return point
