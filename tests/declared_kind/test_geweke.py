"""The steps that `pmm.sample` uses, NUTS for what is left, leave the joint of all alone.

J. Geweke (2004), "Getting it right", JASA 99(467).
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling import mcmc
from pymc.step_methods.compound import CompoundStep

import pm_match as pmm
from pm_match.clusters import collapsed
from pm_match.clusters.step import PartitionStep
from pm_match.declared.pair_state import PairState
from pm_match.declared.parts import Likelihoods, PairLikelihoods, Sampled
from pm_match.declared.rows import Redraw
from pm_match.declared.state import LikelihoodState
from pm_match.reading import read
from tests.exactness.simulate import ModelSimulator, look_away, uniformity

T = 3


def student(n=4) -> pm.Model:
    """Declare a mixture of Student-t distributions, with centres and scales of their own."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        centre = pm.Normal("centre", 0.0, 2.0, shape=T)
        scale = pm.Gamma("scale", 3.0, 3.0, shape=T)
        c = pm.Categorical("cluster", p=w, shape=n)
        data = pm.Data("data", np.zeros(n))
        pm.StudentT("x", nu=4.0, mu=centre[c], sigma=scale[c], observed=data)
    return model


def counts(n=3, d=2) -> pm.Model:
    """Declare counts of two domains whose log rates are projections of shared vectors."""
    with pm.Model() as model:
        w = pm.Dirichlet("weights", np.array([1.0, 0.7, 2.0]))
        z = pm.Normal("latent", 0.0, 1.0, shape=(T, d))
        for name in "ab":
            c = pm.Categorical(f"cluster_{name}", p=w, shape=n)
            projection = pm.Normal(f"projection_{name}", 0.0, 0.6, shape=(2, d))
            data = pm.Data(f"data_{name}", np.zeros((n, 2), int))
            pm.Poisson(name, pt.exp(z[c] @ projection.T), observed=data)
    return model


def groups(n=4) -> pm.Model:
    """Declare a mixture whose weights groups of objects have each, around those of all."""
    with pm.Model() as model:
        concentration = pm.Gamma("concentration", 4.0, 2.0)
        share = pm.Dirichlet("share", np.array([1.0, 0.7, 2.0]))
        weights = pm.Dirichlet("weights", concentration * share + 0.5, shape=(2, T))
        centre = pm.Normal("centre", 0.0, 2.0, shape=T)
        c = pm.Categorical("cluster", p=weights[np.arange(n) % 2])
        data = pm.Data("data", np.zeros(n))
        pm.StudentT("x", nu=4.0, mu=centre[c], sigma=0.7, observed=data)
    return model


def effects(n=4) -> pm.Model:
    """Declare a mixture of objects with two values each, and effects of which a scale is drawn."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        centre = pm.Normal("centre", 0.0, 2.0, shape=T)
        spread = pm.Gamma("spread", 3.0, 3.0)
        effect = pm.Normal("effect", 0.0, spread, shape=n)
        factor = pm.Gamma("factor", 3.0, 3.0, shape=n)
        c = pm.Categorical("cluster", p=w, shape=n)
        data = pm.Data("data", np.zeros((n, 2)))
        pm.StudentT(
            "x", nu=4.0, mu=(centre[c] + effect)[:, None], sigma=factor[:, None], observed=data
        )
    return model


def edges(n=4) -> pm.Model:
    """Declare values of edges, whose blocks and scale are drawn."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        block = pm.Normal("block", 0.0, 2.0, shape=(T, T))
        scale = pm.Gamma("scale", 3.0, 3.0)
        c = pm.Categorical("cluster", p=w, shape=n)
        data = pm.Data("data", np.zeros((n, n)))
        pm.Normal("x", block[c[:, None], c], scale, observed=data)
    return model


class Simulator(ModelSimulator):
    """All steps of a model whose parameters are not integrated out, and its data."""

    missing = ()

    def __init__(self, model: pm.Model, seed: int):
        (self.evidence,) = read(model).of(Sampled)
        sliced, weights = set[str](), set[str]()
        if isinstance(self.evidence, Likelihoods):
            sliced = {name for rows in self.evidence.sliced for name in rows.names}
            weights = {own.name for own in self.evidence.weights}
        left = {rv.name for rv in model.free_RVs} - sliced - weights - {*self.evidence.assignments}
        super().__init__(model, seed, left - {"weights"})
        ours = pmm.steps(model)
        given, chosen = mcmc.assign_step_methods(model, ours)
        with model:
            found = mcmc.instantiate_steppers(model, given, chosen)
        self.steps = CompoundStep(found).methods
        for step in self.steps:
            step.setup_chain(self.rng, 0, 0)
            step.stop_tuning()
            step.started = True

    @property
    def observed(self) -> list[str]:
        """The observed variables."""
        seen = {rv.name for rv in self.model.observed_RVs}
        return [name for name in self.evidence.factors if name in seen]

    def new_data(self, draw) -> None:
        """Replace the data by a draw given everything else."""
        self.x = dict(zip(self.observed, self.data(draw), strict=True))
        for name, x in self.x.items():
            held = self.model[{"x": "data"}.get(name, f"data_{name}")]
            held.set_value(np.asarray(x, held.dtype))

    def own_quantities(self, draw, first, last) -> dict[str, float]:
        """What clusters have, seen from objects."""
        if isinstance(self.evidence, PairLikelihoods):
            own, x = draw["block"][first[0], first[1]], self.x["x"]
            return {
                "own block": np.arcsinh(own),
                "block squared": np.log1p(own**2),
                "x by block": np.arcsinh(x[0, 1]) * np.arcsinh(own),
                "diagonal": np.arcsinh(draw["block"][first[0], first[0]]) * np.arcsinh(x[0, 0]),
                "residual": np.log1p(np.square(x - draw["block"][first[:, None], first])).mean(),
            }
        found = {}
        for name in (name for rows in self.evidence.rows for name in rows.names):
            row = draw[name][first[0]]
            found[f"own {name}"] = np.arcsinh(row).sum()
            found[f"next {name}"] = np.arcsinh(draw[name][(first[0] + 1) % T]).sum()
            found[f"other {name}"] = np.arcsinh(np.sum(row * draw[name][last[-1]]))
            for own, x in self.x.items():
                found[f"{own} by {name}"] = np.log1p(np.abs(x[0])).sum() * np.arcsinh(row).sum()
        return found


MODELS = {
    "student": student,
    "counts": counts,
    "groups": groups,
    "effects": effects,
    "edges": edges,
}


@pytest.mark.parametrize(
    ("case", "n"),
    [
        ("student", 600),
        pytest.param("student", 3000, marks=pytest.mark.slow),
        pytest.param("counts", 3000, marks=pytest.mark.slow),
        pytest.param("groups", 3000, marks=pytest.mark.slow),
        pytest.param("effects", 3000, marks=pytest.mark.slow),
        pytest.param("edges", 3000, marks=pytest.mark.slow),
    ],
)
def test_updates_leave_the_joint_alone(case, n, monkeypatch):
    # As often as can be: a swap hardly ever happens by itself here.
    monkeypatch.setattr(collapsed, "ANCHORED_SWAPS", 1.0)
    found = Simulator(MODELS[case](), seed=3).scores(n)
    assert len(found) > 12
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["rows stay behind", "rows of another prior", "tempered"])
def test_a_wrong_update_is_caught(wrong, monkeypatch):
    monkeypatch.setattr(collapsed, "ANCHORED_SWAPS", 1.0)
    if wrong == "rows stay behind":
        monkeypatch.setattr(LikelihoodState, "draw", lambda self, rng, point, new: None)
    elif wrong == "tempered":
        right = LikelihoodState.by_label

        def by_label(self, keys):
            worth = right(self, keys)
            return lambda *given: tuple(0.5 * own for own in worth(*given))

        monkeypatch.setattr(LikelihoodState, "by_label", by_label)
    else:
        right = Redraw.proposed

        def proposed(self, rng, point, empty):
            new = right(self, rng, point, empty)
            return new and new | {"centre": np.where(empty, 1.5 * new["centre"], new["centre"])}

        monkeypatch.setattr(Redraw, "proposed", proposed)
    simulator = Simulator(student(), seed=4)
    # A chain of users would stop at the first look.
    look_away(*(step for step in simulator.steps if isinstance(step, PartitionStep)))
    found = simulator.scores(3000)
    assert max(map(abs, found.values())) > 6.0, found


@pytest.mark.slow
def test_a_wrong_table_of_pairs_is_caught(monkeypatch):
    right = PairState.load

    def load(self, point):
        right(self, point)
        self._worth *= 0.5

    monkeypatch.setattr(PairState, "load", load)
    monkeypatch.setattr(PairState, "draw", lambda *given: None)
    simulator = Simulator(edges(), seed=4)
    look_away(*(step for step in simulator.steps if isinstance(step, PartitionStep)))
    found = simulator.scores(3000)
    assert max(map(abs, found.values())) > 6.0, found


N_SIMULATIONS, N_DRAWS, THIN = 120, 31, 4


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS)
def test_ranks_are_uniform(case):
    found = Simulator(MODELS[case](), seed=5).ranks(N_SIMULATIONS, N_DRAWS, THIN)
    p_values = uniformity(found, N_DRAWS)
    # Some forty quantities: a right sampler falls below this once in a hundred such suites.
    assert min(p_values.values()) > 0.0003, p_values
