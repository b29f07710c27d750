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


def test_only_kinds_are_registered():
    with pytest.raises(TypeError, match=r"expected an instance of pm_match\.Kind; found 3"):
        pmm.register_kind(3)
