import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from case_studies import adaptive_kernel, max_margin, view_data
from case_studies.peers import classifiers
from case_studies.peers.classifiers import Prediction
from pm_match import datasets


@pytest.mark.parametrize("unit_rows", [(), ("a",)])
def test_folds_are_scaled_by_what_is_learned_from(unit_rows):
    data = datasets.xor_views(60, n_features=4, random_seed=1)
    data.views["b"][:, 2] = 1.0
    parts = list(view_data.folds(data, unit_rows, n_folds=5, seed=3))
    assert len(parts) == 5
    held = np.concatenate([part.test["a"]["object"].to_numpy() for part in parts])
    assert sorted(held) == list(range(60))
    for part in parts:
        assert part.train["b"].shape == (48, 3)  # a constant tells nothing
        for name in ("a", "b"):
            x = part.train[name].to_numpy()
            np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
            assert np.mean(x**2) == pytest.approx(1.0)
            alike = np.allclose(x.std(axis=0), 1)
            assert alike == (name not in unit_rows)
        whole = data.views["b"].sel(object=part.test["b"]["object"])[:, [0, 1, 3]].to_numpy()
        own = data.views["b"].sel(object=part.train["b"]["object"])[:, [0, 1, 3]].to_numpy()
        expected = (whole - own.mean(axis=0)) / own.std(axis=0)
        np.testing.assert_allclose(part.test["b"], expected)
        np.testing.assert_array_equal(part.test_labels, data.labels[part.test["a"]["object"]])
    again = next(view_data.folds(data, unit_rows, n_folds=5, seed=3))
    assert again.test["a"].identical(parts[0].test["a"])


def test_features_in_one_unit_are_divided_by_one_number():
    data = datasets.xor_views(60, n_features=4, random_seed=1)
    part = next(view_data.folds(data, n_folds=5, seed=3, one_unit=("a",)))
    x = data.views["a"].sel(object=part.train["a"]["object"]).to_numpy()
    x = x - x.mean(axis=0)
    np.testing.assert_allclose(part.train["a"], x / np.sqrt(np.mean(x**2)))
    np.testing.assert_allclose(part.train["b"].std(axis=0), 1)


def test_cost_is_chosen_on_features_scaled_as_they_are(monkeypatch):
    seen, lengths = [], set()

    def predict(part, settings, seed, frozen):
        seen.append(part.train["a"].to_numpy())
        lengths.add((settings.chains, settings.draws, settings.tune))
        # The truth, the surer the smaller C: the larger one has to lose.
        sure = np.where(np.eye(2)[part.test_labels] == 1, 1 - settings.costs[0] / 10, 0.0)
        return Prediction(part.test_labels, sure), settings.costs[0] * (2 * part.test_labels - 1)

    monkeypatch.setattr(adaptive_kernel, "_predict", predict)
    data = datasets.xor_views(60, n_features=4, random_seed=1)
    fold = next(view_data.folds(data, ("a",), n_folds=5, seed=3))
    settings = adaptive_kernel.Settings(costs=(3.0, 1.0), chains=4, draws=50, tune=20)
    cost, scores, labels = adaptive_kernel._chosen(fold, settings, 0, False)
    assert cost == 1.0
    np.testing.assert_array_equal(scores, 2 * labels - 1)  # of the one that was chosen
    assert np.bincount(labels).tolist() == np.bincount(fold.train_labels).tolist()
    assert len(seen) == 2 * settings.inner_folds
    assert lengths == {(1, 67, 27)}  # a third of all draws, in one chain
    spread = fold.train["a"].std(axis=0).to_numpy()
    assert np.ptp(spread) > 0.2  # rows of unit length: features differ
    for x in seen:
        ratio = x.std(axis=0) / spread
        np.testing.assert_allclose(ratio, ratio.mean(), rtol=0.25)
    assert np.ptp([x.std(axis=0) for x in seen], axis=1).min() > 0.2


def test_a_choice_is_calibrated_by_what_it_held_out(monkeypatch):
    def predict(part, settings, seed, frozen):
        assert not frozen
        truth = np.eye(3)[part.test_labels]
        # Sure of the truth if C is 1, of another class if it is 3; scores of class k in column k.
        sure = truth if settings.costs == (1.0,) else np.roll(truth, 1, axis=1)
        return Prediction(sure.argmax(axis=1), sure), 2 * sure - 1

    monkeypatch.setattr(adaptive_kernel, "_predict", predict)
    data = datasets.dependent_clusters("structured", n_objects=90, random_seed=1)
    fold = next(view_data.folds(data, n_folds=3, seed=3))
    said = adaptive_kernel.predict(fold, adaptive_kernel.Settings(costs=(3.0, 1.0)), 0)
    np.testing.assert_array_equal(said.labels, fold.test_labels)
    of_truth = said.calibrated[np.arange(len(fold.test_labels)), fold.test_labels]
    assert 0.9 < of_truth.min() <= of_truth.max() < 1.0
    single = adaptive_kernel.predict(fold, adaptive_kernel.Settings(costs=(3.0,)), 0)
    assert single.calibrated is None


@pytest.mark.parametrize("name", view_data.ROWS)
def test_rows_set_what_the_model_takes(name):
    row = view_data.ROWS[name]
    settings = adaptive_kernel.Settings(**row.model, costs=row.costs)
    noise = {"kar-zer": 5.0, "cornell": 0.5, "fou-mor": 1.0}
    if name in noise:
        assert np.divide(*settings.precision_prior) == noise[name]
    assert settings.chains == (4 if name in ("ten-digits", "kar-zer", "fou-mor") else 1)


def test_scores():
    labels = np.array([0, 1, 1])
    said = Prediction(np.array([0, 1, 0]), np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]]))
    found = max_margin.scores(said, labels)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log loss"] == pytest.approx(-np.log([0.8, 0.6, 0.5]).mean())
    assert found["Brier"] == pytest.approx(np.mean([0.2**2, 0.4**2, 0.5**2]))
    sure = Prediction(np.array([1, 1, 1]), np.tile([0.0, 1.0], (3, 1)))
    assert max_margin.scores(sure, labels)["log loss"] == pytest.approx(-np.log(1e-6) / 3, rel=1e-3)


@pytest.mark.parametrize("classify", classifiers.CLASSIFIERS.values())
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_tell_plain_classes(classify, n_classes):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_classes), 30)
    x = 3.0 * np.eye(4)[labels] + rng.normal(size=(len(labels), 4))
    said = classify(x, labels, 3.0 * np.eye(4)[:n_classes], 0)
    np.testing.assert_array_equal(said.labels, np.arange(n_classes))
    np.testing.assert_allclose(said.probability.sum(axis=1), 1)
    assert (said.probability.argmax(axis=1) == np.arange(n_classes)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_platt_sigmoids_are_those_of_scikit_learn(n_classes):
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    frozen = pytest.importorskip("sklearn.frozen")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_classes), 40)
    x = 2.0 * np.eye(4)[labels] + rng.normal(size=(len(labels), 4))
    machine = LinearSVC().fit(x, labels)
    own, other = (x + rng.normal(size=x.shape) for _ in range(2))
    expected = CalibratedClassifierCV(frozen.FrozenEstimator(machine)).fit(own, labels)
    score = machine.decision_function
    found = classifiers.platt(score(own), labels, score(other))
    np.testing.assert_allclose(found, expected.predict_proba(other), atol=1e-3)
    # Scores that divide the classes leave some doubt.
    sure = classifiers.platt(np.eye(n_classes)[labels], labels, np.eye(n_classes))
    assert 0.9 < sure.max() < 0.999
    strange = classifiers.platt(score(own), labels, np.full_like(score(own), -1e5))
    np.testing.assert_allclose(strange.sum(axis=1), 1)


def test_main_prints_writes_and_skips(tmp_path, capsys):
    options = ["--only", "xor", "cornell", "--methods", "RBF SVM", "logistic", "--folds", "3"]
    max_margin.main([*options, "--up-to", "2", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "cornell: skipped" in printed
    assert "xor, seed 0: RBF SVM" in printed
    found = pd.read_csv(tmp_path / "folds.csv")
    assert len(found) == 4
    mean = found.groupby("method")["accuracy"].mean()
    # No linear function tells the classes.
    assert mean["RBF SVM"] > 0.7 > mean["logistic"]


def test_costs_to_choose_from_are_the_datas_own_unless_given(tmp_path, monkeypatch):
    asked = []

    def know(fold, settings, seed):
        asked.append(settings.costs)
        return Prediction(fold.test_labels, np.eye(2)[fold.test_labels])

    monkeypatch.setitem(max_margin.METHODS, "pm_match", know)
    options = ["--only", "xor", "--methods", "pm_match", "--up-to", "1", "--out", str(tmp_path)]
    max_margin.main(options)
    max_margin.main([*options, "--costs", "0.5"])
    assert asked == [(1.0, 3.0), (0.5,)]
    assert view_data.ROWS["cornell"].costs == (10.0, 20.0, 40.0)


def test_frequencies_move_as_they_are_asked_to(tmp_path, monkeypatch):
    seen = []

    def sample(*args, model, step, **kwargs):
        seen.append(step and [(own.n_leapfrog, own.vars[0].name) for own in step])
        raise StopIteration

    monkeypatch.setattr(adaptive_kernel.pmm, "sample", sample)
    options = ["--only", "xor", "--methods", "pm_match", "--costs", "1", "--out", str(tmp_path)]
    for more in ([], ["--leapfrog", "4"]):
        with pytest.raises(StopIteration):
            max_margin.main([*options, *more])
    assert seen == [None, [(4, "frequencies")]]


def test_what_is_calibrated_besides_has_a_row_of_its_own(tmp_path, monkeypatch, capsys):
    def sure(fold, settings, seed):
        certain = np.eye(2)[fold.test_labels]
        return Prediction(fold.test_labels, certain, np.where(certain == 1, 0.4, 0.6))

    monkeypatch.setitem(max_margin.METHODS, "pm_match", sure)
    options = ["--only", "xor", "--methods", "pm_match", "--up-to", "1", "--out", str(tmp_path)]
    max_margin.main(options)
    assert "xor, seed 0: pm_match 1.000\n" in capsys.readouterr().out  # told once
    found = pd.read_csv(tmp_path / "folds.csv").set_index("method")
    assert found.loc["pm_match", "log loss"] == pytest.approx(0.0, abs=1e-5)
    assert found.loc["pm_match + Platt", "log loss"] == pytest.approx(-np.log(0.4))
    # Of the labels, which stay the method's own.
    assert (found["accuracy"] == 1.0).all()


def test_summary():
    found = pd.DataFrame(
        [
            {"data": "d", "method": "m", "seed": 0, "fold": k, "accuracy": a}
            | {"log loss": 0.1, "Brier": 0.2, "seconds": 4.0}
            for k, a in enumerate([0.7, 0.9])
        ]
    )
    table = max_margin.summary(found)
    assert table.loc[("d", "m"), ("accuracy", "mean")] == pytest.approx(0.8)
    assert table.loc[("d", "m"), ("accuracy", "s.e.")] == pytest.approx(0.1)
    assert table.loc[("d", "m"), ("folds", "")] == 2
    assert "0.800 ± 0.100" in max_margin.readable(table)


@pytest.mark.slow
def test_model_learns_what_no_line_tells(tmp_path):
    from dataclasses import replace

    from case_studies.adaptive_kernel import Settings, fit, predict

    fold = next(view_data.folds(datasets.xor_views(noise=0.2, n_private=0, random_seed=0)))
    settings = Settings(n_factors=2, n_frequencies=20, draws=100, tune=150)
    said = predict(fold, settings, 0)
    assert np.mean(said.labels == fold.test_labels) > 0.8
    chosen = predict(fold, replace(settings, costs=(1e-6, 1.0), inner_folds=2), 0)
    assert np.mean(chosen.labels == fold.test_labels) > 0.8
    assert np.mean(chosen.calibrated.argmax(axis=1) == fold.test_labels) > 0.8
    assert np.mean(predict(fold, settings, 0, frozen=True).labels == fold.test_labels) > 0.6
    short = replace(settings, draws=5, tune=5, chains=2, precision_prior=(1e6, 2e5))
    _, idata = fit(fold.train, fold.train_labels, short, 0)
    posterior = idata["posterior"]
    assert np.ptp(posterior["frequencies"].isel(draw=0).to_numpy(), axis=0).min() > 0.0
    unit = float((fold.train["a"] ** 2).mean())
    precision = posterior["precision_a"].to_numpy()
    np.testing.assert_allclose(unit * precision, 5.0, rtol=0.02)
    _, idata = fit(fold.train, fold.train_labels, replace(settings, draws=5), 0, frozen=True)
    assert np.ptp(idata["posterior"]["frequencies"].to_numpy(), axis=1).max() == 0.0
