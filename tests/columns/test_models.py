"""Whole models with independent columns: updates leave the prior alone; calibration.

After J. Geweke (2004), "Getting it right", JASA 99(467), but from many independent starts, as in A.
Gandy & J. Scott (2020), "Unit testing for MCMC and other Monte Carlo methods"; S. Talts et al.
(2018), "Validating Bayesian inference algorithms with simulation-based calibration".
"""

import dataclasses

import numpy as np
import pytest

from pm_match.columns.parts import Columns
from pm_match.networks.parts import Relation
from tests.declared.columns import (
    FAMILIES,
    HOLED,
    declared,
    many_together,
    shared_in_part,
    with_free_noise,
)
from tests.exactness.simulate import ModelSimulator, check_at_length, replace_values, uniformity

CASES = {
    **{
        family: lambda family=family: declared(family, hyperprior=True, missing=family in HOLED)
        for family in FAMILIES
    },
    "linked": lambda: declared("poisson", hyperprior=True, missing=True, links=True),
    "a hyperparameter for each column": lambda: declared("bernoulli", hyperprior="columns"),
    "parameters of their own": lambda: declared("categorical", hyperprior=True, own=True),
    "free noise": with_free_noise,
    "shared in part": shared_in_part,
    "beside features and a network": lambda: declared(
        "poisson", hyperprior=True, missing=True, beside=many_together
    ),
    "normal, beside features and a network": lambda: declared(
        "normal", hyperprior=True, beside=many_together
    ),
}
QUICK = ("poisson", "normal", "beside features and a network")
N_LONG = 4_000


class ColumnsSimulator(ModelSimulator):
    """A tiny model with independent columns, and perhaps features and a network beside them."""

    def __init__(self, model, seed):
        # What is not our steps' to draw.
        super().__init__(model, seed, {"noise"} & {rv.name for rv in model.free_RVs})

    @property
    def columns(self):
        return self.cluster.part.of(Columns)

    @property
    def cells(self):
        return [cells for own in self.columns for cells in own.cells]

    @property
    def observed(self):
        """All that is observed, and the missing values after them."""
        return [*(rv.name for rv in self.model.observed_RVs), *self.missing]

    @property
    def missing(self):
        return [cells.missing.name for cells in self.cells if cells.missing]

    def new_data(self, draw):
        self.seen = dict(zip(self.observed, self.data(draw), strict=True))
        for name in self.missing:
            draw[name] = self.seen[name]
        point = self.point(draw)
        for cells in self.cells:
            x = np.asarray(self.values(cells), np.float64)
            known = cells.known if cells.varying is None else cells.varying(point)[0]
            family = cells.family
            object.__setattr__(cells, "statistics", family.statistics(x, known))
            object.__setattr__(cells, "log_base", float(family.log_base(x, known).sum()))
            object.__setattr__(cells, "values", x)
        for evidence in self.cluster.part.evidence:
            if isinstance(evidence, Relation):
                networks = {
                    name: of_network(cells, self.seen[name])
                    for name, cells in evidence.networks.items()
                }
                object.__setattr__(evidence, "networks", networks)
            elif not isinstance(evidence, Columns):
                for domain in evidence.domains:
                    replace_values(domain.data, self.seen[domain.name])
        state = self.cluster._collapsed
        fresh = state.regrouped(state.units)
        for step in self.steps:
            if getattr(step, "_collapsed", None) is state:
                step._collapsed = fresh

    def values(self, cells):
        """Return the values of a variable's cells, (C,) or (C, K)."""
        x = self.seen[f"{cells.name}_observed" if cells.missing else cells.name]
        return x.reshape(len(cells.object), *([-1] if cells.family.rows else []))

    def own_quantities(self, draw, first, last):
        found = {}
        for own in self.columns:
            for name in own.parameters:
                theta = np.arcsinh(draw[name])
                found[f"own {name}"] = theta[first[0]].mean()
                found[f"{name} of both"] = (theta[first[0]] * theta[last[-1]]).mean()
            theta = np.arcsinh(draw[own.parameters[0]]).reshape(own.truncation, own.n_columns, -1)
            for cells in own.cells:
                x = np.arcsinh(self.values(cells)).reshape(len(cells.object), -1)
                rows = theta[draw[cells.assignment][cells.object], cells.column]
                found[f"{cells.name} and {own.parameters[0]}"] = (x * rows).mean()
                if cells.missing:
                    x = np.arcsinh(draw[cells.missing.name].astype(float)).ravel()
                    label = draw[cells.assignment][cells.missing.object]
                    rows = theta[label, cells.missing.column].mean(axis=1)
                    found |= {
                        f"{cells.missing.name}": x.mean(),
                        f"{cells.missing.name} spread": np.square(x).mean(),
                        f"{cells.missing.name} and {own.parameters[0]}": (x * rows).mean(),
                    }
        return found


def of_network(cells, table):
    """Put other edges into a network: rows of numbers of objects and a value, padded by -1."""
    table = table[table[:, 0] >= 0]
    return dataclasses.replace(cells, index=table[:, :-1].astype(np.int64), values=table[:, -1])


@pytest.mark.parametrize("case", QUICK)
def test_updates_leave_the_prior_alone(case):
    found = ColumnsSimulator(CASES[case](), seed=11).scores(600)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_updates_leave_the_prior_alone_at_length(case):
    simulator = ColumnsSimulator(CASES[case](), seed=12)
    if case in ("linked", "normal"):
        # Each step must leave a whole point behind, whichever comes last.
        simulator.steps.reverse()
    check_at_length(simulator, N_LONG)


@pytest.mark.slow
def test_a_wrong_prior_is_caught():
    """A step that believes in rates that are 1.3 times as high as the declared ones."""
    simulator = ColumnsSimulator(CASES["poisson"](), seed=13)
    (columns,) = simulator.columns
    right = columns.hyper
    object.__setattr__(columns, "hyper", lambda point: right(point) * [1.3, 1.0])
    found = simulator.scores(600)
    assert max(map(abs, found.values())) > 6.0, found


N_SIMULATIONS, N_DRAWS, THIN = 120, 31, 5


@pytest.mark.slow
@pytest.mark.parametrize("case", [*FAMILIES, "beside features and a network"])
def test_ranks_are_uniform(case):
    found = ColumnsSimulator(CASES[case](), seed=21).ranks(N_SIMULATIONS, N_DRAWS, THIN)
    p_values = uniformity(found, N_DRAWS)
    # Three hundred quantities: a right sampler falls below this once in some 30 such suites.
    assert min(p_values.values()) > 0.0001, p_values
