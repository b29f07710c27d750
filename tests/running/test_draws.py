"""Draws kept without anything to compile are those that PyMC's own trace keeps."""

import re

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.backends import NDArray as Trace
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pm_match as pmm
from pm_match.running.draws import Draws

_QUIET = {
    "init": "dispersed",
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
    "quiet": True,
}


class _Sorted(Op):
    """An operation that PyTensor knows nothing of."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.vector()])

    def perform(self, node, inputs, outputs):
        (x,) = inputs
        if x.ndim != 1:
            raise AssertionError("expected a vector")
        outputs[0][0] = np.sort(x)


class _Mean(_Sorted):
    """One that takes the mean of all that it is given, one point or many."""

    __props__ = ()

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.full(3, np.mean(inputs[0]))


def _model() -> pm.Model:
    with pm.Model(coords={"place": list("abc")}) as model:
        weights = pm.Dirichlet("weights", np.ones(4))
        label = pm.Categorical("label", p=weights, shape=5)
        scale = pm.HalfNormal("scale", 2.0)
        free = pm.Normal("free", 0.0, scale, dims="place")
        pm.LKJCholeskyCov("cov", n=2, eta=1.0, sd_dist=pm.Exponential.dist(1.0))
        pm.Deterministic("chosen", weights[label])
        pm.Deterministic("constant", pt.arange(3.0), dims="place")
        pm.Deterministic("product", pt.outer(free, free) @ pt.ones((3, 2)))
        pm.Deterministic("sorted", _Sorted()(free))
        pm.Deterministic("larger", free.max() + label.sum())
        pm.Deterministic("mean", _Mean()(free))
    return model


def _mixture() -> pm.Model:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=list("xyz"))
    return pmm.models.mixture(table, n_clusters=3)


def _recorded(trace: Trace, points: list[dict]) -> Trace:
    trace.setup(len(points), 0, [{"log": np.float64}])
    for number, point in enumerate(points):
        trace.record(point, [{"log": float(number)}], in_warmup=False)
    return trace


def _points(model: pm.Model, n: int) -> list[dict]:
    rng = np.random.default_rng(1)
    start = model.initial_point()
    points = []
    for _ in range(n):
        point = {name: np.asarray(v + rng.normal(size=v.shape)) for name, v in start.items()}
        point["label"] = rng.integers(4, size=5)
        points.append(point)
    return points


@pytest.mark.parametrize("batch", [1, 100, 2**21])
@pytest.mark.compiled
def test_they_are_those_of_pymc(batch, monkeypatch):
    monkeypatch.setattr("pm_match.running.draws._BATCH", batch)
    model = _model()
    points = _points(model, 7)
    expected, found = (_recorded(kind(model=model), points) for kind in (Trace, Draws))
    assert expected.varnames == found.varnames
    for trace in (expected, found):
        trace.close()
    for name in expected.varnames:
        np.testing.assert_allclose(
            found.get_values(name), expected.get_values(name), rtol=1e-12, atol=1e-14, err_msg=name
        )
        assert found.get_values(name).dtype == expected.get_values(name).dtype, name
    np.testing.assert_array_equal(found.get_sampler_stats("log"), np.arange(7.0))


def test_they_can_be_looked_at_while_the_chain_runs():
    model = _model()
    points = _points(model, 6)
    expected, found = (kind(model=model) for kind in (Trace, Draws))
    for trace in (expected, found):
        trace.setup(6, 0, [{"log": np.float64}])
    for point in points[:4]:
        for trace in (expected, found):
            trace.record(point, [{"log": 0.0}], in_warmup=False)
        last = len(found) - 1
        np.testing.assert_allclose(found.point(last)["chosen"], expected.point(last)["chosen"])
    part, same = found[1:3], expected[1:3]
    assert len(part) == len(same) == 2
    np.testing.assert_allclose(part.get_values("product"), same.get_values("product"))
    found.close()
    assert len(found.get_values("sorted")) == 4


@pytest.mark.parametrize("cores", [1, 2])
def test_chains_have_their_own(cores):
    model = _mixture()
    with model:
        pm.Deterministic("largest", model["weights"].max())
    found = pmm.sample(5, tune=2, chains=3, cores=cores, model=model, **_QUIET).posterior
    assert dict(found["largest"].sizes) == {"chain": 3, "draw": 5}
    (dim,) = set(found["weights"].dims) - {"chain", "draw"}
    np.testing.assert_allclose(found["largest"], found["weights"].max(dim))
    assert len({tuple(own) for own in found["largest"].values}) == 3


def test_only_what_is_asked_for_is_kept():
    model, kwargs = _mixture(), {"tune": 0, "chains": 1, **_QUIET}
    found = pmm.sample(3, model=model, var_names=["weights"], **kwargs)
    assert set(found.posterior.data_vars) == {"weights"}
    for names in (["nobody"], []):
        message = f"var_names: expected unobserved variables of the model; found {names}"
        with pytest.raises(ValueError, match=re.escape(message)):
            pmm.sample(3, model=model, var_names=names, **kwargs)


def test_a_trace_of_the_users_own_is_used():
    model, kwargs = _mixture(), {"tune": 0, "chains": 1, **_QUIET}
    own = Trace(model=model)
    expected, found = (pmm.sample(3, model=model, trace=trace, **kwargs) for trace in (own, None))
    assert own.samples
    for name, values in expected.posterior.items():
        np.testing.assert_allclose(found.posterior[name], values, rtol=1e-12)


def test_chains_are_not_written_over_each_other():
    """By PyMC, all chains are copies of one trace with the same arrays."""
    model = _mixture()
    with pytest.raises(TypeError, match=r"trace: expected chains=1 with PyMC's NDArray.* 2 chains"):
        pmm.sample(3, tune=0, chains=2, model=model, trace=Trace(model=model), **_QUIET)
