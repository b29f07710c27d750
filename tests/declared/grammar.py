"""Declarations made up from forms that are served and small edits, one for every number."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pm_match as pmm

# Objects of each table: three labels in all, so that every assignment can be listed.
SIZES = {"a": 2, "b": 1}
# Where random points of order one hardly come, and chains do.
BOUNDS = {
    "features": (-2.5, 2.5),
    "counts": (0.1, 8.0),
    "flags": (0.08, 0.92),
    "normal column": (-2.5, 2.5),
    "network": (0.08, 0.92),
    "normal": (-2.5, 2.5),
}
# What may be known of the labels of each table.
KNOWN = {
    "known label": {"a": [1, None], "b": [None]},
    "known labels": {"a": [None, 0], "b": [1]},
    "known table": {"a": [None, None], "b": [0]},
    "all known": {"a": [0, 1], "b": [1]},
    "impossible label": {"a": [9, None], "b": [None]},
}


@dataclass
class Choices:
    """What a declaration is made of.

    Attributes
    ----------
    form : str
    edits : set of str
    rng : numpy.random.Generator
    truncation : int
    """

    form: str
    edits: set[str]
    rng: np.random.Generator
    truncation: int = 3

    def has(self, edit: str) -> bool:
        return edit in self.edits

    @property
    def scaled(self) -> bool:
        """Whether priors have a parameter of their own, which may then be set or observed."""
        return bool(self.edits & {"hyperprior", "do", "observe"})

    @property
    def known(self) -> dict[str, list[int | None]]:
        """The labels of every table that are observed, None where they are not."""
        found = [labels for edit, labels in KNOWN.items() if self.has(edit)]
        return found[0] if found else {d: [None] * n for d, n in SIZES.items()}


# What may be done to each form; "potential" and below to all.
EDITS = {
    "features": (
        "scale", "clip mean", "clip latent", "shift", "known shift", "special label", "other noise",
        "swapped labels", "exponential projection", "shared projection", "transposed",
        "one feature", "sigma of exp", "abs", "square", "tanh", "sum of rows", "softplus",
        "hyperprior", "permuted objects", "permuted features", "next label", "no projection",
    ),
    "counts": (
        "scale", "special label", "clip mean", "own", "hyperprior", "permuted objects",
        "swapped labels", "offset", "next label", "exponential", "square", "transposed",
    ),
    "flags": (
        "special label", "clip mean", "own", "hyperprior", "permuted objects", "swapped labels",
        "complement", "next label", "logit", "square", "transposed",
    ),
    "normal column": (
        "scale", "shift", "special label", "clip mean", "own", "hyperprior", "square",
        "swapped labels", "permuted objects", "other noise", "next label", "transposed", "abs",
    ),
    "network": (
        "scale", "special label", "clip mean", "hyperprior", "permuted objects", "swapped labels",
        "next label", "square", "transposed", "swapped axes", "one mode", "symmetric", "poisson",
        "known density", "prior of each block", "offset",
    ),
    "normal": (
        "scale", "shift", "special label", "clip mean", "hyperprior", "square", "abs", "tanh",
        "swapped labels", "permuted objects", "next label", "own precisions", "known shift",
        "strength of each label", "other noise", "no parent", "rows",
    ),
}  # fmt: skip
COMMON = (
    "potential", "potential on labels", "data", "do", "observe", "dims", "two clusters",
    "random weights", "deterministic", "missing", "other child", "one weight more", *KNOWN,
)  # fmt: skip


def choices(number: int) -> Choices:
    """Choose what the declaration of a number is made of."""
    rng = np.random.default_rng([20160401, number])
    form = list(EDITS)[number % len(EDITS)]
    possible = [*EDITS[form], *COMMON]
    if form in ("network", "normal"):
        # Of one more axis, a grid would be too coarse.
        possible.remove("random weights")
    n = rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1]) if number >= len(EDITS) else 0
    edits = set(rng.choice(possible, n, replace=False).tolist())
    # What is integrated out has to fit on a grid.
    few = edits & {"two clusters", "random weights", "own", "missing"}
    truncation = 2 if few or form in ("network", "normal") else 3
    return Choices(form, edits, rng, truncation)


def declared(own: Choices) -> pm.Model:
    """Declare the model of some choices."""
    t = own.truncation + own.has("one weight more")
    coords = {f"object_{d}": range(n) for d, n in SIZES.items()}
    with pm.Model(coords=coords) as model:
        if own.has("random weights"):
            weights = pm.StickBreakingWeights("weights", 1.3, K=t - 1)
        else:
            weights = np.arange(1.0, t + 1.0) / (t * (t + 1.0) / 2.0)
        labels = [_labels(own, d, n, weights) for d, n in SIZES.items()]
        {
            "features": _features,
            "counts": _counts,
            "flags": _flags,
            "normal column": _normal,
            "network": _network,
            "normal": _vectors,
        }[own.form](own, model, labels)
        if own.has("potential on labels"):
            pm.Potential("extra", 0.3 * pt.eq(labels[0][0], 1).astype("float64"))
    if own.has("do"):
        model = pm.do(model, {"scale": 1.3})
    elif own.has("observe"):
        model = pm.observe(model, {"scale": 1.3})
    return model


def _labels(own: Choices, name, n, weights):
    """Declare an assignment, some or all of whose labels may be observed."""
    known = own.known[name]
    shape = {"dims": f"object_{name}"} if own.has("dims") else {"shape": n}
    if known.count(None) == n:
        return pm.Categorical(f"cluster_{name}", p=weights, **shape)
    values = np.array([0 if label is None else label for label in known])
    if None in known:
        values = np.ma.masked_array(values, [label is None for label in known])
    return pm.Categorical(f"cluster_{name}", p=weights, observed=values)


def _chosen(own: Choices, labels):
    """Edit labels on their way to what they choose."""
    t = own.truncation
    if own.has("next label"):
        labels = (labels + 1) % t
    if own.has("swapped labels"):
        labels = pt.switch(pt.eq(labels, 0), 1, pt.switch(pt.eq(labels, 1), 0, labels))
    if own.has("permuted objects"):
        labels = labels[::-1]
    return labels


def _values(own: Choices, x, name):
    x = np.asarray(x, np.float64)
    if own.has("missing") and name == "a":
        x = np.ma.masked_array(x, np.arange(x.size).reshape(x.shape) == 0)
    elif own.has("data"):
        return pm.Data(f"data_{name}", x)
    return x


def _edited(own: Choices, mean):
    """Edit what is a mean or a rate."""
    if own.has("scale"):
        mean = mean * 1.7
    if own.has("clip mean"):
        mean = pt.clip(mean, *BOUNDS[own.form])
    if own.has("square"):
        mean = mean**2
    if own.has("abs"):
        mean = pt.abs(mean)
    if own.has("tanh"):
        mean = pt.tanh(mean)
    if own.has("softplus"):
        mean = pt.softplus(mean)
    if own.has("exponential"):
        mean = pt.exp(mean)
    return (
        pm.Deterministic(f"mean_{mean.type.ndim}_{own.rng.integers(10**9)}", mean)
        if own.has("deterministic")
        else mean
    )


def _special(own: Choices, rows, name):
    """Let one row be another, for the table of one object alone."""
    if not own.has("special label") or name == "a":
        return rows
    factor = np.where(np.arange(own.truncation) == own.truncation - 1, 0.5, 1.0)
    return rows * (factor[:, None] if rows.type.ndim == 2 else factor)


def _features(own, model, labels):
    t = own.truncation
    scale = pm.HalfNormal("scale", 1.0) if own.scaled else 2.0
    shape = (1, t) if own.has("transposed") else (t, 1)
    z = pm.Normal("z", 0.0, scale, shape=shape)
    rows = z.T if own.has("transposed") else z
    if own.has("clip latent"):
        rows = pt.clip(rows, -2.5, 2.5)
    m = 1 if own.has("one feature") else 2
    shared = pm.Normal("w", 0.0, 1.0, shape=(m, 1))
    for d, label in zip("ab", labels, strict=True):
        w = shared if own.has("shared projection") else pm.Normal(f"w_{d}", 0.0, 1.0, shape=(m, 1))
        if own.has("exponential projection"):
            w = pt.exp(w)
        if own.has("permuted features"):
            w = w[::-1]
        if own.has("no projection"):
            w = np.ones((m, 1))
        mean = _edited(own, _special(own, rows, d)[_chosen(own, label)] @ w.T)
        if own.has("sum of rows"):
            mean = mean + 0.1 * rows.sum()
        if own.has("shift"):
            mean = mean + pm.Normal(f"intercept_{d}", 0.0, 1.0, shape=m)
        if own.has("known shift"):
            mean = mean + np.arange(m)
        sigma = 0.8
        if own.has("sigma of exp"):
            sigma = pt.exp(pm.Normal(f"log_sigma_{d}", 0.0, 1.0))
        if own.has("other noise"):
            sigma = (0.5 + 0.2 * label)[:, None]
        x = own.rng.normal(size=(SIZES[d], m))
        pm.Normal(d, mean, sigma, observed=_values(own, x, d))
    if own.has("potential"):
        pm.Potential("extra_z", -0.2 * (z**2).sum())
    if own.has("other child"):
        pm.Normal("child", z.sum(), 1.0, observed=0.4)


def _columns(own, labels, prior, observe, draw):
    """Declare one column of each table, over parameters that clusters share, or own ones."""
    t = own.truncation
    shape = (1, t) if own.has("transposed") else (t, 1)
    shared = None
    for d, label in zip("ab", labels, strict=True):
        if shared is None or own.has("own"):
            shared = prior(f"theta_{d}", shape)
            if own.has("potential"):
                pm.Potential(f"extra_{d}", -0.2 * (shared**2).sum())
            if own.has("other child"):
                pm.Normal(f"child_{d}", shared.sum(), 1.0, observed=0.4)
        rows = _special(own, shared.T if own.has("transposed") else shared, d)
        value = _edited(own, rows[_chosen(own, label)])
        x = draw(SIZES[d])
        observe(d, value, _values(own, x, d), label)


def _counts(own, model, labels):
    scale = pm.HalfNormal("scale", 1.0) if own.scaled else 0.5

    def observe(name, rate, x, label):
        if own.has("offset"):
            rate = rate * (1.0 + np.arange(SIZES[name]))[:, None]
        pm.Poisson(name, rate, observed=x)

    _columns(
        own,
        labels,
        lambda name, shape: pm.Gamma(name, 2.0, scale, shape=shape),
        observe,
        lambda n: own.rng.poisson(2.0, (n, 1)),
    )


def _flags(own, model, labels):
    # Not so small that there is probability beyond the grid.
    scale = 1.0 + pm.HalfNormal("scale", 1.0) if own.scaled else 1.5

    def observe(name, p, x, label):
        if own.has("logit"):
            pm.Bernoulli(name, logit_p=p, observed=x)
        else:
            pm.Bernoulli(name, 1.0 - p if own.has("complement") else p, observed=x)

    _columns(
        own,
        labels,
        lambda name, shape: pm.Beta(name, scale, 1.5, shape=shape),
        observe,
        lambda n: own.rng.binomial(1, 0.5, (n, 1)),
    )


def _normal(own, model, labels):
    scale = pm.HalfNormal("scale", 1.0) if own.scaled else 2.0

    def observe(name, mean, x, label):
        sigma = (0.5 + 0.2 * label)[:, None] if own.has("other noise") else 0.7
        mean = mean + 0.3 if own.has("shift") else mean
        pm.Normal(name, mean, sigma, observed=x)

    _columns(
        own,
        labels,
        lambda name, shape: pm.Normal(name, 0.2, scale, shape=shape),
        observe,
        lambda n: own.rng.normal(size=(n, 1)),
    )


def _network(own, model, labels):
    t = own.truncation
    scale = 1.0 + pm.HalfNormal("scale", 1.0) if own.scaled else 1.5
    family = "poisson" if own.has("poisson") else "bernoulli"
    first = 1.5 + np.arange(t * t).reshape(t, t) if own.has("prior of each block") else 1.5
    prior = pm.Gamma if own.has("poisson") else pm.Beta
    density = prior("density", first, scale, shape=(t, t))
    if own.has("known density"):
        density = np.linspace(0.2, 0.8, t * t).reshape(t, t)
    elif own.has("potential"):
        pm.Potential("extra_density", -0.2 * (density**2).sum())
    elif own.has("other child"):
        pm.Normal("child", density.sum(), 1.0, observed=0.4)
    rows = density
    if own.has("special label"):
        rows = rows * np.where(np.arange(t) == t - 1, 0.5, 1.0)[:, None]
    if own.has("transposed"):
        rows = rows.T
    if own.has("scale"):
        rows = rows * 0.7
    if own.has("offset"):
        rows = rows * np.linspace(0.5, 0.9, t * t).reshape(t, t)
    if own.has("clip mean"):
        rows = pt.clip(rows, *BOUNDS[own.form])
    if own.has("square"):
        rows = rows**2
    if own.has("deterministic"):
        rows = pm.Deterministic("named_density", rows)
    a, b = (_chosen(own, label) for label in labels)

    def cells(*shape):
        x = own.rng.poisson(1.0, shape) if own.has("poisson") else own.rng.binomial(1, 0.5, shape)
        x = x.astype(float)
        if own.has("missing"):
            x.flat[1 % x.size] = np.nan
        return x

    if own.has("one mode") or own.has("symmetric"):
        # Each assignment is on both axes of a network of its own.
        for name, label in zip("ab", (a, b), strict=True):
            x = cells(SIZES[name], SIZES[name])
            if own.has("symmetric"):
                x = np.triu(x) + np.triu(x, 1).T
            pmm.BlockNetwork(
                name, [label, label], rows, family=family, observed=x, self_loops=True,
                symmetric=own.has("symmetric"),
            )  # fmt: skip
    elif own.has("swapped axes"):
        pmm.BlockNetwork("net", [b, a], rows, family=family, observed=cells(1, 2))
    else:
        pmm.BlockNetwork("net", [a, b], rows, family=family, observed=cells(2, 1))


def _vectors(own, model, labels):
    """Declare normal clusters with precisions; vectors of one number, so that grids are small."""
    t = own.truncation
    strength = pm.Gamma("scale", 4.0, 6.0) if own.scaled else np.float64(0.7)
    if own.has("strength of each label"):
        strength = 0.4 + 0.3 * np.arange(t)[:, None, None]
    one = not own.has("own precisions")
    precision = pm.Wishart(
        "precision", nu=9, V=np.array([[0.15]]), **({} if one else {"shape": (t, 1, 1)})
    )
    spread = np.array([[1.3]]) if own.has("no parent") else pt.linalg.inv(precision) / strength
    rows = mean = pm.MvNormal("mean", np.array([0.3]), cov=spread, shape=(t, 1))
    if own.has("potential"):
        pm.Potential("extra_mean", -0.2 * (mean**2).sum())
    if own.has("other child"):
        pm.Normal("child", mean.sum(), 1.0, observed=0.4)
    for name, label in zip("ab", labels, strict=True):
        chosen = _chosen(own, label)
        centre = _edited(own, _special(own, rows, name)[chosen])
        if own.has("rows"):
            centre = pt.stack([centre[i] for i in range(SIZES[name])])
        if own.has("shift"):
            centre = centre + pm.Normal(f"intercept_{name}", 0.0, 1.0, shape=1)
        if own.has("known shift"):
            centre = centre + 0.4
        cov = pt.linalg.inv(precision)
        cov = cov if one else cov[chosen]
        if own.has("other noise"):
            cov = cov * 1.4
        x = own.rng.normal(size=(SIZES[name], 1))
        pm.MvNormal(name, centre, cov=cov, observed=_values(own, x, name))
