"""Choosing the number of factors."""

import sys

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.features.choose_n_factors import draw_folds, hold_out
from pm_match.features.emission import Emission
from pm_match.features.projected_normal import log_marginal
from pm_match.numerics.masked import MaskedTable


def three_factors(seed=0, missing=0.0):
    return pmm.datasets.synthetic(40, 12, n_factors=3, missing=missing, random_seed=seed)


def factory(tables, **kwargs):
    return lambda k: pmm.models.projected_clusters(tables, n_factors=k, **kwargs)


def quietly(make, candidates, **kwargs):
    return pmm.choose_n_factors(make, candidates, progressbar=False, random_seed=1, **kwargs)


def test_cross_validation_tells_too_few_factors():
    chosen = quietly(factory(three_factors()), [3, 1], n_folds=3)
    assert chosen["n_factors"].to_numpy().tolist() == [1, 3]
    assert int(chosen["best"]) == 3
    assert chosen["score_of_fold"].shape == (2, 3)
    scores = chosen["score_of_fold"].to_numpy()
    np.testing.assert_allclose(chosen["score"], scores.mean(axis=1))
    np.testing.assert_allclose(chosen["standard_error"], scores.std(axis=1, ddof=1) / np.sqrt(3))
    # Noise of precision 1: no density can be better on average than its own entropy allows.
    assert -2.0 < float(chosen["score"][1]) < -0.5 * np.log(2 * np.pi * np.e) + 0.2


def test_bic_finds_the_true_number():
    chosen = quietly(factory(three_factors(1)), [5, 3, 4, 1], method="bic")
    assert int(chosen["best"]) == 3
    # 24 features; rotations leave K (K - 1) / 2 free.
    assert chosen["n_parameters"].to_numpy().tolist() == [24, 69, 90, 110]
    np.testing.assert_allclose(
        chosen["score"], -2 * chosen["log_joint"] + np.log(80) * chosen["n_parameters"]
    )


def test_what_fits_call_is_asked_for_beforehand(monkeypatch):
    """If it is not on disk, processes do not all compile it at once."""
    listed: list = []
    asks = "pm_match.features.choose_n_factors.compile_ahead"
    monkeypatch.setattr(asks, lambda jobs: listed.extend(jobs))
    quietly(factory(three_factors(missing=0.1)), [2], n_folds=2, cores=1)
    ((kernel, signature),) = listed
    assert signature in kernel.overloads
    asked = set(kernel.overloads)
    quietly(factory(three_factors()), [1], n_folds=2, cores=1)
    assert listed[1] == listed[0]
    assert set(kernel.overloads) == asked


def test_the_predictive_is_that_of_the_held_out_entries():
    from pm_match.features.choose_n_factors import _predictive, _read_problem
    from pm_match.features.search.plain import find_mode

    problem = _read_problem(factory(three_factors(2, missing=0.1)), 2)
    folds = draw_folds(problem.domains, 4, np.random.default_rng(0))
    left = problem.with_data(hold_out(problem.domains, folds, 1))
    mode = find_mode(left, np.random.default_rng(0))
    labels = np.concatenate(mode.labels)
    plain = [
        log_marginal(
            data, [Emission.of_projection(w) for w in mode.projections], labels, 1.0, (1.0, 1.0)
        )
        for data in (problem.domains, left.domains)
    ]
    n_held_out = sum(int((fold == 1).sum()) for fold in folds)
    np.testing.assert_allclose(
        _predictive(left, mode, problem.domains), (plain[0] - plain[1]) / n_held_out, rtol=1e-9
    )


def test_folds_share_out_what_is_observed():
    rng = np.random.default_rng(0)
    seen = rng.random((30, 7)) < 0.7
    seen[:, 0] = True
    seen[3, 1:] = False
    data = [MaskedTable(np.where(seen, 1.5, 0.0), seen), MaskedTable(np.ones((9, 2)))]
    folds = draw_folds(data, 4, rng)
    assert (folds[0][~seen] == -1).all()
    # The only entry of an object is never held out, and no object loses all.
    assert (folds[0][3] == -1).all()
    others = np.arange(30) != 3
    assert (folds[0][others][seen[others]] >= 0).all()
    counts = np.bincount(folds[0][folds[0] >= 0])
    assert counts.max() - counts.min() <= 30
    held = [hold_out(data, folds, number) for number in range(4)]
    for left in held:
        for domain in left:
            assert domain.observed.any(axis=1).all()
            assert not domain.values[~domain.observed].any()
    lost = sum(data[0].n_values - left[0].n_values for left in held)
    assert lost == seen.sum() - 1


def test_ties_go_to_the_smaller_number(monkeypatch):
    # The function has the name of its module.
    module = sys.modules["pm_match.features.choose_n_factors"]
    monkeypatch.setattr(module, "_predictive", lambda *_: -1.0)
    assert int(quietly(factory(three_factors()), [4, 2, 3], n_folds=2)["best"]) == 2


def test_the_seed_reproduces_whatever_the_other_candidates():
    make = factory(three_factors())
    one = quietly(make, [2], n_folds=2)
    two = quietly(make, [2, 1], n_folds=2)
    assert float(one["score"].sel(n_factors=2)) == float(two["score"].sel(n_factors=2))


def test_missing_values_and_links():
    tables = three_factors(3, missing=0.2)
    make = factory(tables, links={"a": [0, 1], "b": [0, 1]})
    assert np.isfinite(quietly(make, [2, 3], n_folds=2)["score"]).all()


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        ([], ValueError, "candidates: expected at least one"),
        ([2, 0], ValueError, "at least 1; found 0"),
        ([2.5], ValueError, "found 2.5"),
        ([True], ValueError, "found True"),
        (3, TypeError, "candidates: expected numbers"),
        ("345", TypeError, "candidates: expected numbers"),
    ],
)
def test_candidates_are_checked(candidates, error, message):
    with pytest.raises(error, match=message):
        quietly(factory(three_factors()), candidates)


def test_other_arguments_are_checked():
    tables = three_factors()
    with pytest.raises(ValueError, match="method: expected"):
        quietly(factory(tables), [2], method="aic")
    with pytest.raises(ValueError, match="n_folds: expected"):
        quietly(factory(tables), [2], n_folds=1)
    with pytest.raises(ValueError, match="starts: expected"):
        quietly(factory(tables), [2], starts=0)
    with pytest.raises(TypeError, match="model_factory: expected a function"):
        quietly(factory(tables)(2), [2])
    with pytest.raises(TypeError, match="expected a function that returns"):
        quietly(lambda k: k, [2])
    with pytest.raises(ValueError, match="expected a model with 3 factors"):
        quietly(lambda k: factory(tables)(2), [3])
    with pytest.raises(ValueError, match="of the same data"):
        quietly(lambda k: factory(three_factors(k))(k), [2, 3])


def test_a_model_without_features_is_refused():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ValueError, match="one set of latent vectors"):
        quietly(lambda k: model, [2])


def test_features_with_noise_of_their_own_are_refused():
    with pytest.raises(ValueError, match="expected projected latent vectors and one shared noise"):
        quietly(factory(three_factors(), projection="normal", noise="own"), [1], method="bic")
