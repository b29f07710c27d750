"""Whole network models, hyperpriors and all: Geweke's test, calibration, and numerical integration.

J. Geweke (2004), "Getting it right", JASA 99(467); S. Talts et al. (2018), "Validating Bayesian
inference algorithms with simulation-based calibration".
"""

import dataclasses

import numpy as np
import pytest
from arviz_stats import ess
from scipy.special import expit

import pm_match as pmm
from pm_match.clusters.collapsed import Collapsed
from pm_match.networks.parts import Relation
from tests.declared.networks import network_model
from tests.exactness.hyperparameters import law_distances
from tests.exactness.simulate import look_away, uniformity

CASES = {
    "bipartite": {},
    "unknown cells": {"unknown": True},
    "all relevant": {"relevance": False},
    "linked": {"relevance": False, "linked": True},
    "poisson": {"family": "poisson", "exposure": True},
    "negative binomial": {"family": "negative-binomial", "exposure": True, "unknown": True},
    "directed": {"kind": "directed"},
    "undirected": {"kind": "undirected", "loops": True},
    "three-way": {"kind": "three-way"},
}
N_PRIOR = 20_000
# As many see what `test_a_wrong_update_is_caught` breaks.
N_QUICK = 2_000
N_LONG = 5_000


class NetworkSimulator:
    """A tiny declared network model, its steps, and data that can be replaced.

    Priors are drawn by the definition of the model, in NumPy: that the model declares it is for
    `test_networks` to show.
    """

    def __init__(self, model, seed):
        self.model, self.rng = model, np.random.default_rng(seed)
        self.cluster = next(s for s in pmm.steps(model) if isinstance(s, pmm.ClusterGibbs))
        names = [model[name] for name in self.cluster.part.hyperparameters]
        self.hyper = pmm.HyperparameterGibbs(names, model=model)
        for step in (self.hyper, self.cluster):
            step.setup_chain(self.rng, 0, 0)
            step.started = True
        self.part = self.cluster.part

    def prior(self) -> dict:
        """Draw everything but the data, on the natural scale."""
        rng, draw = self.rng, {}
        for name in self.part.hyperparameters:
            draw[name] = rng.gamma(5.0, 1.0 / 5.0)
        for number, clustering in enumerate(self.part.clusterings):
            sticks = rng.beta(1.0, draw[f"concentration_{number}"], clustering.truncation - 1)
            rest = np.append(1.0, np.cumprod(1.0 - sticks))
            weights = np.append(sticks, 1.0) * rest
            draw[clustering.weights] = weights
            for name in clustering.probabilities:
                draw[name] = rng.beta(2.0, 1.5)
            for a in clustering.assignments:
                draw[a.name] = rng.choice(len(weights), a.n_objects, p=weights / weights.sum())
            labels = np.concatenate([draw[a.name] for a in clustering.assignments])
            links = clustering.links
            if not np.array_equal(labels[links[:, 0]], labels[links[:, 1]]):
                # The links condition everything: begin again.
                return self.prior()
            for a in clustering.assignments:
                if a.relevance:
                    share = draw[clustering.probabilities[a.group]]
                    draw[a.relevance] = (rng.random(a.n_objects) < share).astype(int)
        (relation,) = self.part.of(Relation)
        size = tuple(self.part.clusterings[axis].truncation for axis in relation.axes)
        first = draw["density_prior"]
        if relation.family in ("bernoulli", "negative-binomial"):
            draw["density"] = rng.beta(first, 1.2, size)
            draw["noise"] = rng.beta(0.7, 1.2)
        else:
            draw["density"] = rng.gamma(first, 1.0 / 1.2, size)
            draw["noise"] = rng.gamma(0.7, 1.0 / 1.2)
        return draw

    def data_given(self, draw) -> dict:
        """Draw the data of all networks, by the definition: cell by cell."""
        (relation,) = self.part.of(Relation)
        found = {}
        for name, cells in relation.networks.items():
            axes = self.axes[name]
            rates = draw["density"]
            labels = [draw[f"cluster_{axis}"] for axis in axes]
            if relation.symmetric:
                low = np.minimum.outer(labels[0], labels[0])
                high = np.maximum.outer(labels[0], labels[0])
                rates = rates[low, high]
            else:
                rates = rates[np.ix_(*labels)]
            relevant = np.ones(cells.shape, bool)
            for axis, of_axis in enumerate(axes):
                flags = draw.get(f"relevance_{of_axis}")
                if flags is not None:
                    shape = [1] * len(axes)
                    shape[axis] = -1
                    relevant &= np.reshape(flags, shape) == 1
            rates = np.where(relevant, rates, draw.get("noise", np.nan))
            if relation.family == "bernoulli":
                x = (self.rng.random(cells.shape) < rates).astype(float)
            else:
                exposure = cells.exposures(0)
                for axis in range(1, len(axes)):
                    exposure = np.multiply.outer(exposure, cells.exposures(axis))
                if relation.family == "poisson":
                    x = self.rng.poisson(rates * exposure).astype(float)
                else:
                    x = self.rng.negative_binomial(exposure, rates).astype(float)
            known = np.ones(cells.shape, bool)
            known[tuple(cells.unknown.T)] = False
            if relation.one_mode and not relation.self_loops:
                np.fill_diagonal(known, False)
            if relation.symmetric:
                known &= np.triu(np.ones(cells.shape, bool))
            index = np.argwhere(known & (x != 0.0))
            found[name] = dataclasses.replace(cells, index=index, values=x[tuple(index.T)])
        return found

    @property
    def axes(self) -> dict:
        """Names of each network's axes, as in the names of its variables."""
        (relation,) = self.part.of(Relation)
        return {
            name: [f"{name}_{0 if relation.one_mode else axis}" for axis in range(len(cells.shape))]
            for name, cells in relation.networks.items()
        }

    def set_data(self, networks) -> None:
        (relation,) = self.part.of(Relation)
        part = dataclasses.replace(
            self.part, evidence=(dataclasses.replace(relation, networks=networks),)
        )
        look_away(self.cluster)
        like = self.cluster._collapsed
        collapsed = Collapsed(None, part, like.units, like)
        for step in (self.hyper, self.cluster):
            step._collapsed = collapsed

    def point(self, draw) -> dict:
        point = dict(self.model.initial_point(0))
        for rv in self.model.free_RVs:
            value, transform = self.model.rvs_to_values[rv], self.model.rvs_to_transforms[rv]
            natural = np.asarray(draw[rv.name])
            if transform is None:
                pass
            elif "simplex" in value.name:
                natural = np.log(natural[:-1]) - np.log(natural).mean()
            elif "logodds" in value.name:
                natural = np.log(natural) - np.log1p(-natural)
            else:
                natural = np.log(natural)
            point[value.name] = np.asarray(natural, dtype=value.dtype)
        return point

    def natural(self, point) -> dict:
        draw = {}
        for rv in self.model.free_RVs:
            value = self.model.rvs_to_values[rv]
            found = point[value.name]
            if "simplex" in value.name:
                weights = np.exp(np.append(found, -found.sum()))
                found = weights / weights.sum()
            elif "logodds" in value.name:
                found = expit(found)
            elif value.name.endswith("_log__"):
                found = np.exp(found)
            draw[rv.name] = found
        return draw

    def update(self, point) -> dict:
        for step in (self.hyper, self.cluster):
            point, _ = step.step(point)
        return point


def quantities(draw) -> dict[str, float]:
    """Label-invariant functions of a draw, and some that see labels."""
    density = np.clip(draw["density"], 1e-300, None)
    z, other = draw["cluster_a_0"], draw["cluster_b_0"]
    found = {
        "density prior": draw["density_prior"],
        "concentration": draw["concentration_0"],
        "log concentration": np.log(draw["concentration_0"]),
        "match": float(z[0] == other[0]),
        "same domain": float(z[0] == z[1]),
        "label": float(z[1] == 0),
        "first weight": draw["weights_0"][0],
        "density": density.mean(),
        "density squared": (np.log1p(density) ** 2).mean(),
        "own density": density[(z[0],) * density.ndim if _square(density) else (z[0],)].mean(),
    }
    if "share_0" in draw:
        found |= {
            "noise": np.log1p(draw["noise"]),
            "share": draw["share_0"],
            "relevant": float(draw["relevance_a_0"].sum()),
            "relevant label": float((draw["relevance_b_0"] == 1) @ (other == 0)),
            "irrelevant label": float((draw["relevance_a_0"] == 0) @ (z == 0)),
            "relevant pair": float(draw["relevance_a_0"][0] * draw["relevance_b_0"][0]),
        }
    return {name: float(value) for name, value in found.items()}


def _square(density):
    return len(set(density.shape)) == 1


def model_of(case, **more):
    return network_model(**case, hyperpriors=True, truncation=2, **more)


def scores(simulator, n_chain, n_prior=N_PRIOR) -> dict[str, float]:
    """Standardised differences between the prior and the successive-conditional chain."""
    prior = [quantities(simulator.prior()) for _ in range(n_prior)]
    draw = simulator.prior()
    point = simulator.point(draw)
    chain = []
    for _ in range(n_chain):
        simulator.set_data(simulator.data_given(draw))
        point = simulator.update(point)
        draw = simulator.natural(point)
        chain.append(quantities(draw))
    found = {}
    for name in prior[0]:
        p = np.array([q[name] for q in prior])
        c = np.array([q[name] for q in chain])
        if np.ptp(p) == np.ptp(c) == 0.0:
            # What links decide is the same in every draw.
            assert p[0] == c[0], name
            continue
        error = p.var() / len(p) + c.var() / float(ess(c[None]))
        found[name] = float((c.mean() - p.mean()) / np.sqrt(error))
    return found


def test_updates_leave_the_prior_alone():
    """The other cases have kernels in common with this one."""
    simulator = NetworkSimulator(model_of(CASES["bipartite"]), seed=11)
    found = scores(simulator, N_QUICK, 2 * N_QUICK)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_updates_leave_the_prior_alone_at_length(case):
    found = scores(NetworkSimulator(model_of(CASES[case]), seed=11), N_LONG)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
def test_a_wrong_update_is_caught():
    simulator = NetworkSimulator(model_of({}), seed=12)
    (relation,) = simulator.part.of(Relation)
    right = relation.prior

    def wrong(point):
        density, noise = right(point)
        return density, (2.0 * noise[0], *noise[1:])

    object.__setattr__(relation, "prior", wrong)
    found = scores(simulator, N_QUICK, 2 * N_QUICK)
    assert max(map(abs, found.values())) > 6.0, found


def test_hyperparameters_against_numerical_integration():
    for name, distance in law_distances(pmm.HyperparameterGibbs).items():
        assert distance < 1.8, (name, distance)


N_SIMULATIONS = 120
N_DRAWS = 31
THIN = 5


@pytest.mark.slow
@pytest.mark.parametrize("case", ["bipartite", "poisson", "undirected"])
def test_ranks_are_uniform(case):
    simulator = NetworkSimulator(model_of(CASES[case]), seed=21)
    rng = np.random.default_rng(22)
    found: dict[str, list[int]] = {}
    for _ in range(N_SIMULATIONS):
        truth = simulator.prior()
        simulator.set_data(simulator.data_given(truth))
        point = simulator.point(simulator.prior())
        for _ in range(10 * THIN):
            point = simulator.update(point)
        draws = []
        for _ in range(N_DRAWS):
            for _ in range(THIN):
                point = simulator.update(point)
            draws.append(quantities(simulator.natural(point)))
        for name, reference in quantities(truth).items():
            values = np.array([draw[name] for draw in draws])
            # Ties are broken at random, or ranks of integers would pile up.
            below, ties = (values < reference).sum(), (values == reference).sum()
            found.setdefault(name, []).append(int(below + rng.integers(ties + 1)))
    p_values = uniformity(found, N_DRAWS)
    # Sixteen quantities, three cases: a right sampler falls below this once in 40 such suites.
    assert min(p_values.values()) > 0.0005, p_values
