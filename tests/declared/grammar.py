"""Declarations made up from forms that are served and small edits, one for every number."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt

# Objects of each table: three labels in all, so that every assignment can be listed.
N = (2, 1)
# Where random points of order one hardly come, and chains do.
BOUNDS = {
    "features": (-2.5, 2.5),
    "counts": (0.1, 8.0),
    "flags": (0.08, 0.92),
    "normal column": (-2.5, 2.5),
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
}  # fmt: skip
COMMON = (
    "potential", "potential on labels", "data", "do", "observe", "dims", "two clusters",
    "random weights", "deterministic", "missing", "other child",
)  # fmt: skip


def choices(number: int) -> Choices:
    """Choose what the declaration of a number is made of."""
    rng = np.random.default_rng([20160401, number])
    form = list(EDITS)[number % len(EDITS)]
    possible = [*EDITS[form], *COMMON]
    n = rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1]) if number >= len(EDITS) else 0
    edits = set(rng.choice(possible, n, replace=False).tolist())
    # What is integrated out has to fit on a grid.
    few = edits & {"two clusters", "random weights", "own", "missing"}
    truncation = 2 if few else 3
    return Choices(form, edits, rng, truncation)


def declared(own: Choices) -> pm.Model:
    """Declare the model of some choices."""
    t = own.truncation
    coords = {"cluster": range(t)} if own.has("dims") else {}
    with pm.Model(coords=coords) as model:
        if own.has("random weights"):
            weights = pm.StickBreakingWeights("weights", 1.3, K=t - 1)
        else:
            weights = np.arange(1.0, t + 1.0) / (t * (t + 1.0) / 2.0)
        labels = [
            pm.Categorical(f"cluster_{d}", p=weights, shape=n) for d, n in zip("ab", N, strict=True)
        ]
        {"features": _features, "counts": _counts, "flags": _flags, "normal column": _normal}[
            own.form
        ](own, model, labels)
        if own.has("potential on labels"):
            pm.Potential("extra", 0.3 * pt.eq(labels[0][0], 1).astype("float64"))
    if own.has("observe") and "scale" in model.named_vars:
        model = pm.observe(model, {"scale": 1.3})
    if own.has("do") and "scale" in model.named_vars:
        model = pm.do(model, {"scale": 1.3})
    return model


def _chosen(own: Choices, labels):
    """Edit labels on their way to what they choose."""
    t, n = own.truncation, labels.type.shape[0]
    if own.has("next label"):
        labels = (labels + 1) % t
    if own.has("swapped labels"):
        labels = pt.switch(pt.eq(labels, 0), 1, pt.switch(pt.eq(labels, 1), 0, labels))
    if own.has("permuted objects") and n is not None and n > 1:
        labels = labels[np.arange(n)[::-1]]
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
    scale = pm.HalfNormal("scale", 1.0) if own.has("hyperprior") else 2.0
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
        x = own.rng.normal(size=(label.type.shape[0], m))
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
        x = draw(label.type.shape[0])
        observe(d, value, _values(own, x, d), label)


def _counts(own, model, labels):
    scale = pm.HalfNormal("scale", 1.0) if own.has("hyperprior") else 0.5

    def observe(name, rate, x, label):
        if own.has("offset"):
            rate = rate * (1.0 + np.arange(label.type.shape[0]))[:, None]
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
    scale = 1.0 + pm.HalfNormal("scale", 1.0) if own.has("hyperprior") else 1.5

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
    scale = pm.HalfNormal("scale", 1.0) if own.has("hyperprior") else 2.0

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
