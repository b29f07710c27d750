"""The kind that docs/extending.md adds, from outside the package: served, and held to be exact."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.reading import kinds, read

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def blocks() -> list[str]:
    """Python blocks of the page: the kind, and its tests."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def imported(text: str, folder: Path, name: str):
    """Import some code as a module of its own."""
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's modules: the kind is registered, and let go of afterwards."""
    before = list(kinds._KINDS)
    folder = tmp_path_factory.mktemp("page")
    kind, tests, *_ = blocks()
    yield imported(kind, folder, "counts"), imported(tests, folder, "test_counts")
    kinds._KINDS[:] = before
    for reset in kinds._RESETS:
        reset()


def test_the_pages_tests_pass(page):
    _, tests = page
    own = [name for name in dir(tests) if name.startswith("test_")]
    assert len(own) == 2
    for name in own:
        getattr(tests, name)()


@pytest.mark.usefixtures("page", "only_collapsed")
def test_what_is_not_the_kind_is_refused():
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=2)
        rates = pm.Gamma("rates", 1.5, np.array([[0.5], [0.5], [0.9]]), shape=(3, 2))
        cluster = pm.Categorical("cluster", p=weights, shape=4)
        pm.Poisson("x", rates[cluster], observed=np.ones((4, 2)))
    with pytest.raises(pmm.UnservedModelError, match="'rates' differs between clusters"):
        pmm.steps(model)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=2)
        rates = pm.Gamma("rates", 1.5, 0.5, shape=(3, 2))
        cluster = pm.Categorical("cluster", p=weights, shape=4)
        pm.Poisson("x", rates[cluster] ** 2, observed=np.ones((4, 2)))
    with pytest.raises(pmm.UnservedModelError, match="'x' is not Poisson with the rates 'rates'"):
        pmm.steps(model)


def test_new_objects_of_a_kind_that_predicts_nothing_are_refused(page):
    _, tests = page
    model = tests.declared()
    idata = pmm.find_matching(model, starts=1, random_seed=0, progressbar=False)
    with pytest.raises(pmm.UnservedModelError, match="'rates' of their own, and predictions"):
        pmm.assign(idata, model, {"a": np.ones((1, 2))}, progressbar=False)


BREAKS = {
    "a unit scored as if it had not left": (
        "check_scores",
        "inside = 1.0 if slot == own else 0.0",
        "inside = 0.0",
    ),
    "scores that are not added": (
        "check_scores",
        "y = term.counts[unit, m]\n            a",
        "y = term.counts[unit, m]\n            out[slot] *= m > 0\n            a",
    ),
    "a slot's rows forgotten": (
        "check_running_state",
        "term.rows[target] = term.rows[source]",
        "pass",
    ),
    "a prior that stays": (
        "check_hyperparameters",
        "self.term.shape[:], self.term.rate[:] = self.evidence.prior(point)",
        "self.evidence.prior(point)",
    ),
    "a constant forgotten": ("check_declared_density", "found = -gammaln", "found = 0.5 * gammaln"),
    "draws from the prior": (
        "check_draws",
        "draw_log_gamma(rng, a)",
        "draw_log_gamma(rng, a + 0.2)",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_the_harness_sees_what_is_wrong(case, page, tmp_path):
    check, right, wrong = BREAKS[case]
    text = blocks()[0]
    assert right in text
    _, tests = page
    try:
        imported(text.replace(right, wrong), tmp_path, "broken_counts")
        with pytest.raises(AssertionError):
            getattr(testing, check)(tests.declared(hyperprior=check == "check_hyperparameters"))
    finally:
        kinds.register_kind(page[0].CountKind())


def kinds_of_evidence(model) -> list[str]:
    return [own.kind for component in read(model).components for own in component.evidence]


def test_kinds_are_found_by_their_entry_points(monkeypatch, page):
    module, tests = page
    model = tests.declared()

    class Entry:
        def load(self):
            return module.CountKind

    monkeypatch.setattr(
        kinds, "entry_points", lambda group: [Entry()] * (group == "pm_match.kinds")
    )
    others = [k for k in kinds.kinds() if k.name != "counts" and not k.last]
    monkeypatch.setattr(kinds, "_KINDS", others)
    for reset in kinds._RESETS:
        reset()
    # Other kinds may serve it too.
    assert "counts" not in kinds_of_evidence(model)
    monkeypatch.setattr(kinds, "_loaded", False)
    for reset in kinds._RESETS:
        reset()
    assert kinds_of_evidence(model) == ["counts"]


def test_only_kinds_are_registered(page):
    with pytest.raises(TypeError, match=r"expected an instance of pm_match\.Kind; found 3"):
        pmm.register_kind(3)
    with pytest.raises(TypeError, match="Kind: expected a `name`; found none"):
        pmm.register_kind(kinds.Kind())

    before = kinds.registered()
    taken = next(own for own in before if type(own).__module__.startswith("pm_match."))

    class Taken(page[0].CountKind):
        name = taken.name

    message = f"found '{taken.name}', the name of {type(taken).__name__}"
    with pytest.raises(ValueError, match=message):
        pmm.register_kind(Taken())
    assert kinds.registered() == before


def test_the_harness_says_if_another_kind_serves_the_model(page, monkeypatch):
    module, tests = page
    monkeypatch.setattr(module.CountKind, "claims", lambda self, context, rv: False)
    with pytest.raises(AssertionError, match=r"of the kind 'counts'; found .'(columns|declared)'"):
        testing.check_kind(tests.declared(), "counts")


LACKING = {
    "no load": ("def load(", "def loaded(", "CountState: expected `load`; found none"),
    "no kind": ('kind = "counts"', "", "Counts: expected `kind` to be 'counts'"),
    "no terms": ("self.terms =", "self.term_s =", "kind 'counts': expected states with terms"),
}


@pytest.mark.parametrize("case", LACKING)
def test_what_a_kind_lacks_is_named(case, page, tmp_path):
    right, wrong, message = LACKING[case]
    text = blocks()[0]
    assert text.count(right) == 1
    try:
        imported(text.replace(right, wrong), tmp_path, "lacking_counts")
        with pytest.raises((NotImplementedError, TypeError), match=message):
            testing.check_scores(page[1].declared())
    finally:
        kinds.register_kind(page[0].CountKind())


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("n_clusters", [2, 4])
def test_clusters_whose_weights_are_alike_exchange_their_labels(n_clusters):
    """Clusters far apart, of one object each: every swap is accepted, an even number or not."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.full(n_clusters, 3.0))
        rates = pm.Gamma("rates", 1.5, 0.05, shape=(n_clusters, 1))
        cluster = pm.Categorical("cluster", p=weights, shape=n_clusters)
        observed = np.array([[0], [40], [200], [600]])[:n_clusters]
        pm.Poisson("x", rates[cluster], observed=observed)
    testing.check_law(model, seed=1, n_sweeps=20_000)
