"""Tiny declared models of features with emissions of their own, of every kind that is served.

And, beside each, what the declaration means in plain NumPy: `Plain` reads nothing but the natural
values of the declared variables, and knows nothing of how the steps read a model.
"""

import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import ImputationWarning
from scipy import stats
from scipy.special import betaln, gammaln

import pm_match as pmm
from pm_match.reading.probe import natural_function
from tests.declared.plain import plain_log_prior

ONE, HALF = np.float64(1.0), np.float64(0.5)
CONCENTRATION = np.float64(1.4)
CONSTANT = np.array([0.7, -0.4, 1.1])
SIZES = ((3, 2), (2, 3), (2, 2))


@dataclass(frozen=True)
class Kind:
    """What is declared.

    Attributes
    ----------
    projection : {"scaled", "ard", "transposed", "rigid", "twice", "exp", "flat"}
        Normal with a scale, normal with one precision a column (shared by the domains), declared
        as (K, M) with a scale for each feature, or a scale times a semi-orthogonal matrix; twice
        a normal matrix, or its exponential, entry by entry; or flat.
    noise : {"one", "vector", "wishart", "covariance", "lkj", "shared"}
        Shared is of tied models alone: the precision itself.
    intercept : {True, False, "constant"}
    deviations : {"", "one", "vector"}
    relevance : {"", "first", "all"}
        The domains whose objects may be irrelevant. The first has an own mean for those, others the
        intercept.
    tied : bool
        Whether one Gamma precision is shared by all noise and the latent vectors.
    latent_scale : bool
        Whether the scale of latent vectors is a free variable.
    missing : bool
        Whether some values are missing: one of the first domain, two of an object of the second.
    powers : tuple of float
        To which densities of the domains count; those of others as they are.
    """

    domains: int = 2
    projection: str = "scaled"
    noise: str = "one"
    intercept: bool | str = True
    deviations: str = ""
    relevance: str = ""
    linked: bool = False
    tied: bool = False
    latent_scale: bool = False
    missing: bool = False
    powers: tuple = ()
    truncation: int = 3
    factors: int = 2
    sizes: tuple = SIZES

    @property
    def names(self):
        return "abc"[: self.domains]

    def power(self, name):
        return dict(zip(self.names, self.powers, strict=False)).get(name, 1.0)

    def flagged(self, name):
        return self.relevance == "all" or (self.relevance == "first" and name == "a")


def feature_data(kind, seed=1):
    rng = np.random.default_rng(seed)
    data = {
        name: rng.normal(size=size) * 1.5
        for name, size in zip(kind.names, kind.sizes, strict=False)
    }
    if kind.missing:
        data["a"][0, 1] = np.nan
        data["b"][1, [0, 2]] = np.nan
    return data


def feature_model(kind=None, data=None, share=(2.0, 1.5), intercept_mean=0.3) -> pm.Model:
    """Declare a tiny model in plain PyMC."""
    kind = Kind() if kind is None else kind
    data = feature_data(kind) if data is None else data
    t, k = kind.truncation, kind.factors
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", CONCENTRATION, t - 1)
        if kind.tied:
            alpha = pm.Gamma("alpha", np.float64(4.0), np.float64(3.0))
            latent = pm.Normal("latent", 0.0, tau=np.float64(0.6) * alpha, shape=(t, k))
        else:
            width = pm.LogNormal("width", -0.1, 0.4) if kind.latent_scale else np.float64(1.2)
            latent = pm.Normal("latent", 0.0, width, shape=(t, k))
        ard = pm.Gamma("ard", 4.0, 3.0, shape=k) if kind.projection == "ard" else None
        if kind.relevance:
            ratio = pm.Beta("share", *map(np.float64, share))
        clusters = {}
        for name, x in data.items():
            n, m = x.shape
            cluster = clusters[name] = pm.Categorical(f"cluster_{name}", p=weights, shape=n)
            w = _projection(kind, name, m, ard)
            mu = latent @ w.T
            a = pt.zeros(m)
            if kind.intercept == "constant":
                a = CONSTANT[:m]
                mu = mu + a
            elif kind.intercept:
                a = pm.Normal(f"intercept_{name}", np.float64(intercept_mean), 0.8, shape=m)
                mu = mu + a
            if kind.deviations:
                shape = m if kind.deviations == "vector" else ()
                spread = pm.LogNormal(f"spread_{name}", -0.4, 0.4, shape=shape)
                mu = mu + pm.Normal(f"deviation_{name}", 0.0, spread, shape=(t, m))
            mu = mu[cluster]
            flag = None
            if kind.flagged(name):
                flag = pm.Bernoulli(f"relevance_{name}", ratio, shape=n)[:, None] > 0
                other = a if name != "a" else pm.Normal("other_a", -0.2, 0.9, shape=m)
                mu = pt.where(flag, mu, other)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ImputationWarning)
                _observe(kind, name, mu, x, flag, alpha if kind.tied else None)
            if kind.power(name) < 1.0:
                pmm.coarsen(f"coarsened_{name}", f"x_{name}", kind.power(name))
        if kind.linked:
            pmm.must_link("links", {clusters["a"]: [0, 0], clusters["b"]: [1, 0]})
    return model


def _projection(kind, name, m, ard):
    k = kind.factors
    if kind.projection == "ard":
        return pm.Normal(f"projection_{name}", 0.1, tau=ard, shape=(m, k))
    if kind.projection == "flat":
        return pm.Flat(f"projection_{name}", shape=(m, k))
    if kind.projection == "twice":
        return 2.0 * pm.Normal(f"projection_{name}", 0.1, 0.7, shape=(m, k))
    if kind.projection == "exp":
        return pt.exp(pm.Normal(f"projection_{name}", -0.2, 0.5, shape=(m, k)))
    if kind.projection == "transposed":
        # A mean and a scale for each feature: along the second axis, as it is declared.
        width = np.linspace(0.7, 1.3, m)
        return pm.Normal(f"projection_{name}", width - 1.0, width, shape=(k, m)).T
    scale = pm.LogNormal(f"scale_{name}", 0.0, 0.4)
    if kind.projection == "rigid":
        raw = pm.Normal(f"raw_{name}", shape=(m, k))
        u, _, v = pt.linalg.svd(raw, full_matrices=False)
        return scale * (u @ v)
    return pm.Normal(f"projection_{name}", 0.0, scale, shape=(m, k))


def _observe(kind, name, mu, x, flag, alpha):
    m = x.shape[1]
    if kind.tied:
        # Scales of their own, which the shared precision multiplies.
        own = {"vector": np.linspace(0.8, 1.4, m), "shared": ONE}.get(kind.noise, np.float64(0.7))
        pm.Normal(f"x_{name}", mu, tau=own * alpha, observed=x)
        return
    if kind.noise == "wishart":
        precision = pm.Wishart(f"precision_{name}", nu=m + 6, V=_scale_matrix(m) / (m + 6))
        pm.MvNormal(f"x_{name}", mu, tau=precision, observed=x)
        return
    if kind.noise == "lkj":
        lower, _, _ = pm.LKJCholeskyCov(
            f"chol_{name}", n=m, eta=ONE * 2, sd_dist=pm.LogNormal.dist(-0.2, 0.3, shape=m)
        )
        pm.MvNormal(f"x_{name}", mu, chol=lower, observed=x)
        return
    if kind.noise == "covariance":
        width = pm.LogNormal(f"noise_{name}", -0.2, 0.4)
        pm.MvNormal(f"x_{name}", mu, cov=width**2 * _scale_matrix(m), observed=x)
        return
    sigma = pm.LogNormal(f"noise_{name}", -0.2, 0.4, shape=m if kind.noise == "vector" else ())
    if flag is not None:
        sigma = pt.where(flag, sigma, pm.LogNormal(f"background_{name}", 0.2, 0.4))
    pm.Normal(f"x_{name}", mu, sigma, observed=x)


def _scale_matrix(m):
    return np.eye(m) + 0.3 * (np.ones((m, m)) - np.eye(m))


def ratio_model(*data) -> pm.Model:
    """Two domains or more: latent vectors and noise share a precision, up to a free factor."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.4, 2)
        precision, factor = pm.Gamma("precision", 4.0, 1.0), pm.Gamma("factor", 1.5, 1.5)
        latent = pm.Normal("latent", 0.0, tau=factor * precision, shape=(3, 2))
        for name, x in zip("abc", data, strict=False):
            cluster = pm.Categorical(f"cluster_{name}", p=weights, shape=len(x))
            w = pm.Normal(f"projection_{name}", 0.0, 1.0, shape=(x.shape[1], 2))
            pm.Normal(f"x_{name}", latent[cluster] @ w.T, tau=precision, observed=x)
    return model


# -- what it means --------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlainDomain:
    """A domain at a point: everything from the declaration, by hand."""

    x: np.ndarray
    label: np.ndarray
    relevant: np.ndarray
    w: np.ndarray
    a: np.ndarray
    covariance: np.ndarray
    spread: np.ndarray
    deviation: np.ndarray | None
    idle_mean: np.ndarray
    idle_covariance: np.ndarray
    power: float

    @property
    def seen(self):
        return ~np.isnan(self.x)


class Plain:
    """A declared model at a point, in NumPy.

    Of a tied model, everything is given the shared precision.
    """

    def __init__(self, kind, model, point, data=None):
        self.kind = kind
        data = feature_data(kind) if data is None else data
        names = [rv.name for rv in model.free_RVs]
        self.value = dict(zip(names, _natural(model)(point), strict=True))
        v = self.value
        if kind.tied:
            self.latent_precision = 0.6 * float(v["alpha"])
        else:
            self.latent_precision = float(v.get("width", 1.2)) ** -2
        self.domains = [self._domain(name, x) for name, x in data.items()]

    def _domain(self, name, x):
        kind, v = self.kind, self.value
        m, k = x.shape[1], kind.factors
        if kind.projection == "rigid":
            raw = v[f"raw_{name}"]
            # The polar factor, by another way than the declaration's.
            values, vectors = np.linalg.eigh(raw.T @ raw)
            w = v[f"scale_{name}"] * raw @ (vectors * values**-0.5) @ vectors.T
        else:
            w = v[f"projection_{name}"]
            w = w.T if kind.projection == "transposed" else w
            w = {"twice": lambda w: 2.0 * w, "exp": np.exp}.get(kind.projection, np.asarray)(w)
        assert w.shape == (m, k)
        a = v.get(f"intercept_{name}", np.zeros(m))
        if kind.intercept == "constant":
            a = CONSTANT[:m]
        idle_covariance = None
        if kind.tied:
            own = {"vector": np.linspace(0.8, 1.4, m), "shared": 1.0}.get(kind.noise, 0.7)
            covariance = np.eye(m) / (own * v["alpha"])
        elif kind.noise == "wishart":
            covariance = np.linalg.inv(v[f"precision_{name}"])
        elif kind.noise == "lkj":
            lower = np.zeros((m, m))
            lower[np.tril_indices(m)] = v[f"chol_{name}"]
            covariance = lower @ lower.T
        elif kind.noise == "covariance":
            covariance = v[f"noise_{name}"] ** 2 * _scale_matrix(m)
        else:
            covariance = np.diag(np.broadcast_to(v[f"noise_{name}"] ** 2, m))
            if kind.flagged(name):
                idle_covariance = v[f"background_{name}"] ** 2 * np.eye(m)
        spread = np.broadcast_to(v.get(f"spread_{name}", 0.0), m)
        label = v[f"cluster_{name}"].astype(int)
        relevant = v.get(f"relevance_{name}", np.ones(len(label))) > 0
        return PlainDomain(
            x, label, relevant, w, a, covariance, spread, v.get(f"deviation_{name}"),
            v["other_a"] if name == "a" and "other_a" in v else a,
            covariance if idle_covariance is None else idle_covariance,
            kind.power(name),
        )  # fmt: skip

    def labels(self):
        """Labels of all objects, -1 for irrelevant ones."""
        return np.concatenate([np.where(d.relevant, d.label, -1) for d in self.domains])

    def log_likelihood(self, labels=None) -> float:
        """Log p(X | s, all else), with latent vectors and deviations integrated out.

        Of a tied model the shared precision is integrated out too, and must be 1 at the point.
        """
        labels = self.labels() if labels is None else labels
        if not self.kind.tied:
            return self.log_normals(labels)
        # With the precision alpha, log p = c + n / 2 log(alpha) - alpha Q / 2.
        n, a, b = sum(d.seen.sum() for d in self.domains), 4.0, 3.0
        at_one, at_two = self.log_normals(labels), self.log_normals(labels, 2.0)
        half = at_one - at_two + 0.5 * n * np.log(2.0)
        total = at_one + half + a * np.log(b) - (a + 0.5 * n) * np.log(b + half)
        return float(total + gammaln(a + 0.5 * n) - gammaln(a))

    def log_normals(self, labels, alpha=1.0) -> float:
        """Log density of the data: one dense normal a cluster, all its precisions times alpha.

        A normal density to a power is one whose covariance is divided by it, but for a constant.
        """
        by_domain = np.split(labels, np.cumsum([len(d.x) for d in self.domains])[:-1])
        total = 0.0
        for d, label in zip(self.domains, by_domain, strict=True):
            for n in np.flatnonzero(label < 0):
                o = d.seen[n]
                idle = _mvn(d.x[n, o], d.idle_mean[o], d.idle_covariance[np.ix_(o, o)])
                total += d.power * idle
        for j in set(labels.tolist()) - {-1}:
            members = [
                (number, n)
                for number, label in enumerate(by_domain)
                for n in np.flatnonzero(label == j)
            ]
            for d in (self.domains[number] for number, _ in members):
                if d.power < 1.0:
                    zero = np.zeros(d.x.shape[1])
                    total += d.power * _mvn(zero, zero, d.covariance)
                    total -= _mvn(zero, zero, d.covariance / d.power)
            x = np.concatenate([self.domains[d].x[n] - self.domains[d].a for d, n in members])
            covariance = np.block([[self._shared(*i, *k) for k in members] for i in members])
            o = ~np.isnan(x)
            total += _mvn(x[o], np.zeros(o.sum()), covariance[np.ix_(o, o)] / alpha)
        return float(total)

    def _shared(self, d, n, e, i):
        """Covariance of two objects of one cluster."""
        one, two = self.domains[d], self.domains[e]
        found = one.w @ two.w.T / self.latent_precision
        if d == e:
            found = found + np.diag(one.spread**2)
            if n == i:
                found = found + one.covariance / one.power
        return found

    def log_prior(self, labels=None) -> float:
        """Log p(s, relevance), weights and share integrated out."""
        labels = self.labels() if labels is None else labels
        t = self.kind.truncation
        counts = np.bincount(labels[labels >= 0], minlength=t)
        total = plain_log_prior(np.ones(t - 1), np.full(t - 1, CONCENTRATION), counts)
        by_domain = np.split(labels, np.cumsum([len(d.x) for d in self.domains])[:-1])
        own = [
            label >= 0
            for name, label in zip(self.kind.names, by_domain, strict=True)
            if self.kind.flagged(name)
        ]
        if own:
            flags = np.concatenate(own)
            total += betaln(2.0 + flags.sum(), 1.5 + (~flags).sum()) - betaln(2.0, 1.5)
        return total

    def log_latent(self) -> float:
        """Log p(latent vectors, deviations | X, s, all else): dense conditionals, by cluster."""
        v, k, t = self.value, self.kind.factors, self.kind.truncation
        sizes = [0 if d.deviation is None else d.x.shape[1] for d in self.domains]
        total = 0.0
        for j in range(t):
            # Prior covariance of (z_j, e_1j, ..., e_Dj), and what each object sees of it.
            spread = [d.spread**2 for d, n in zip(self.domains, sizes, strict=True) if n]
            prior = np.concatenate([np.full(k, 1.0 / self.latent_precision), *spread])
            precision, linear = np.diag(1.0 / prior), np.zeros(len(prior))
            drawn = [v["latent"][j]]
            for number, d in enumerate(self.domains):
                see = np.zeros((d.x.shape[1], len(prior)))
                see[:, :k] = d.w
                if sizes[number]:
                    start = k + sum(sizes[:number])
                    see[:, start : start + sizes[number]] = np.eye(sizes[number])
                    drawn.append(d.deviation[j])
                for n in np.flatnonzero((d.label == j) & d.relevant):
                    o = d.seen[n]
                    gain = d.power * see[o].T @ np.linalg.inv(d.covariance[np.ix_(o, o)])
                    precision += gain @ see[o]
                    linear += gain @ (d.x[n] - d.a)[o]
            covariance = np.linalg.inv(precision)
            total += stats.multivariate_normal.logpdf(
                np.concatenate(drawn), covariance @ linear, covariance
            )
        return float(total)

    def log_missing(self) -> float:
        """Log p(missing values | latent vectors, deviations, X, s, all else), by object."""
        total = 0.0
        for name, d in zip(self.kind.names, self.domains, strict=True):
            if d.seen.all():
                continue
            whole = d.x.copy()
            whole[~d.seen] = np.ravel(self.value[f"x_{name}_unobserved"])
            for n, o in enumerate(d.seen):
                mean = d.a + d.w @ self.value["latent"][d.label[n]]
                if d.deviation is not None:
                    mean = mean + d.deviation[d.label[n]]
                covariance = d.covariance
                if not d.relevant[n]:
                    mean, covariance = d.idle_mean, d.idle_covariance
                total += _mvn(whole[n], mean, covariance)
                total -= _mvn(whole[n, o], mean[o], covariance[np.ix_(o, o)])
        return float(total)


_NATURAL: dict = {}


def _natural(model):
    """The natural values of all free variables at a point; compiled once a model."""
    if id(model) not in _NATURAL:
        _NATURAL.clear()
        _NATURAL[id(model)] = model, natural_function(model, [rv.name for rv in model.free_RVs])
    return _NATURAL[id(model)][1]


def _mvn(x, mean, covariance):
    if len(x) == 0:
        return 0.0
    return stats.multivariate_normal.logpdf(x, mean, covariance)


def cluster_step(model) -> pmm.ClusterGibbs:
    return pmm.ClusterGibbs([model["cluster_a"]], model=model, rng=0)


def random_point(model, rng, scale=0.6) -> dict:
    """A random point of the value variables, in which linked objects share their label."""
    step = cluster_step(model)
    (clustering,), (own,) = step.part.clusterings, step._collapsed.units
    labels = rng.integers(clustering.truncation, size=len(own.size))[own.of_object]
    labels = dict(
        zip(
            [a.name for a in clustering.assignments],
            np.split(labels, clustering.ends),
            strict=True,
        )
    )
    point = {}
    for name, value in model.initial_point(0).items():
        value = np.asarray(value)
        if name in labels:
            drawn = labels[name]
        elif name.startswith("relevance_"):
            drawn = rng.random(value.shape) < 0.6
        else:
            drawn = rng.normal(0.0, scale, value.shape)
        point[name] = np.asarray(drawn, value.dtype)
    return point


def all_states(step) -> np.ndarray:
    """All labels of units, -1 for irrelevant ones, that the collapsed chain may be in."""
    (partition,), (clustering,) = step._collapsed.partitions, step.part.clusterings
    return np.array(
        list(
            product(
                *(
                    range(-1 if group >= 0 else 0, clustering.truncation)
                    for group in partition.relevance.group
                )
            )
        )
    )


def exact_law(step, plain) -> np.ndarray:
    """Posterior probability of every state, by the plain formulas."""
    (own,) = step._collapsed.units
    logs = np.array(
        [
            plain.log_prior(units[own.of_object]) + plain.log_likelihood(units[own.of_object])
            for units in all_states(step)
        ]
    )
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()
