"""Tiny models of what is seen of pairs of objects, with parameters that are not integrated out."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pm_match as pmm

N, M, T = 5, 4, 3
RNG = np.random.default_rng(30)
EDGES = RNG.integers(2, size=(N, N))
VALUES = RNG.normal(size=(N, M))
COVARIATE = RNG.normal(size=(N, N))
UPPER = np.triu_indices(N, 1)
COUNTS = RNG.poisson(1.0, size=len(UPPER[0]))
GRADES = RNG.integers(3, size=(N, M))


def labels(name="z", n=N, t=T, weights=None):
    if weights is None:
        weights = pm.Dirichlet(f"weights_{name}", np.ones(t))
    return pm.Categorical(name, weights, shape=n)


def block(name="b", shape=(T, T)):
    return pm.Normal(name, 0.0, 1.5, shape=shape)


def logit():
    """Edges in both directions, and from objects to themselves, with a covariate."""
    z = labels()
    pm.Bernoulli("x", logit_p=block()[z[:, None], z] + COVARIATE, observed=EDGES)


def rows_and_columns():
    """Two sets of clusters, of other numbers, and one scale."""
    a, b = labels("row"), labels("column", M, 2)
    pm.Normal("x", block(shape=(T, 2))[a[:, None], b], pm.HalfNormal("scale"), observed=VALUES)


def transposed():
    """The same with a matrix whose rows are for columns, and as many clusters of both."""
    a, b = labels("row", t=2), labels("column", M, 2)
    pm.Normal("x", block(shape=(2, 2))[b[:, None], a].T, 1.0, observed=VALUES)


def assortative():
    z = labels()
    within, between = pm.Beta("within", 2.0, 1.0), pm.Beta("between", 1.0, 2.0)
    pm.Bernoulli("x", pt.switch(pt.eq(z[:, None], z), within, between), observed=EDGES)


def distances():
    """Positions of clusters, at both ends of undirected edges; and objects' own numbers."""
    z, mu = labels(), block(shape=T)
    one, two = UPPER
    pm.Poisson("x", pt.exp(-((mu[z[one]] - mu[z[two]]) ** 2)), observed=COUNTS)
    pm.Laplace("own", mu[z], 1.0, observed=VALUES[:, 0])


def one_expression():
    """Positions that are asked for once, and used at both ends."""
    own = block("position", (T, 2))[labels()]
    pm.Bernoulli("x", logit_p=own @ own.T - 0.5 * own.sum(axis=1), observed=EDGES)


def domains():
    """Two assignments to one set of clusters."""
    weights = pm.Dirichlet("weights", np.ones(2))
    a, b = labels("one", weights=weights), labels("two", M, weights=weights)
    pm.Normal("x", block(shape=(2, 2))[a][:, b], 1.0, observed=VALUES)


def effects():
    """Levels of rows, of both sides, and grades."""
    a, b = labels("row", t=2), labels("column", M, 2)
    level = block("level", 2)[a][:, None] + block("other", 2)[b] + block(shape=(2, 2))[a][:, b]
    pm.OrderedLogistic("x", cutpoints=[-0.5, 0.5], eta=level, observed=GRADES)


def linked():
    logit()
    pmm.must_link("same", {"z": [[0, 3]]})


def known():
    weights = pm.Dirichlet("weights", np.ones(T))
    given = np.ma.masked_array([1, 0, 0, 2, 0], [False, True, True, False, True])
    z = pm.Categorical("z", weights, observed=given)
    pm.Bernoulli("x", logit_p=block()[z[:, None], z], observed=EDGES)


def missing():
    """Edges that are not known, which PyMC's steps draw."""
    z, x = labels(), VALUES[:, :N].copy()
    x = np.concatenate([x, x[:, :1]], axis=1)
    x[1, 2] = np.nan
    pm.Normal("x", block()[z[:, None], z], 1.0, observed=x)


def beside_columns():
    """And a column whose means are integrated out."""
    logit()
    z = pm.modelcontext(None)["z"]
    pm.Normal("own", pm.Normal("mean", 0.0, 1.0, shape=T)[z], 1.0, observed=VALUES[:, 0])


def known_weights():
    """Two sets of clusters of which only the numbers are known to differ."""
    a, b = labels("row", 3, weights=np.ones(T) / T), labels("column", 3, weights=[0.4, 0.6])
    pm.Normal("x", block(shape=(T, 2))[a[:, None], b], 1.0, observed=VALUES[:3, :3])


def couples():
    """Every object has one partner."""
    z, one, two = labels(), np.array([0, 3]), np.array([2, 1])
    pm.StudentT("x", nu=4.0, mu=block()[z[one], z[two]], sigma=1.0, observed=VALUES[:2, 0])


def first_or_second():
    """A third place of labels is of some entries alone, those of the second objects."""
    z, one, two = labels(), np.array([0, 0, 1, 2]), np.array([1, 2, 3, 4])
    own = pt.switch(np.array([True, False, True, False]), block("c", T)[z[two]], 0.0)
    pm.Normal("x", own + block()[z[one], z[two]], 1.0, observed=VALUES[:4, 0])


def states():
    """A hidden Markov chain."""
    z, p = labels(), pm.Dirichlet("p", np.ones(T), shape=(T, T))
    pm.Potential("moves", pt.log(p[z[:-1], z[1:]]))
    pm.StudentT("x", nu=4.0, mu=block("mu", T)[z], sigma=1.0, observed=VALUES[:, 0])


def masked():
    """A potential, entries of which depend on no label, and on a free number."""
    z, level = labels(), pm.Normal("level", 0.0, 2.0)
    logs = pm.logp(pm.Normal.dist(block()[z[:, None], z], 1.0), VALUES[:, :1])
    pm.Potential("x", pt.switch(np.eye(N) + EDGES > 0, logs, -(level**2)))
    pm.Poisson("seen", pt.exp(block("c", T)[z]), observed=EDGES[0])


def switched():
    """Labels that matter where a switch is off."""
    z, on = labels(), pm.Bernoulli("on", 0.5)
    pm.Normal("x", pt.switch(on, 0.0, block()[z[:, None], z]), 1.0, observed=VALUES[:, :1] + EDGES)


def chained():
    """A place of labels that is of the second objects of some entries joins another one's."""
    z, mu = labels(), block(shape=T)
    one, two, three = (mu[z[np.array(own)]] for own in ([0, 0], [1, 2], [3, 3]))
    level = pt.stack([one - two, two - 2.0 * three])[[0, 1], [0, 1]]
    pm.Normal("x", level, 1.0, observed=VALUES[:2, 0])


WAYS = {
    own.__name__: own
    for own in (
        logit,
        rows_and_columns,
        transposed,
        assortative,
        distances,
        domains,
        one_expression,
        effects,
        linked,
        known,
        missing,
        masked,
        states,
        known_weights,
        first_or_second,
        couples,
        beside_columns,
        switched,
        chained,
    )
}


def declared(way) -> pm.Model:
    with pm.Model() as model:
        way()
    return model
