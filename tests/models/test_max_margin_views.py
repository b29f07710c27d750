import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from scipy import stats

import pm_match as pmm
from pm_match.models import max_margin_views
from pm_match.reading import read
from pm_match.reading.probe import PLAIN
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hinge.labelled_latents import LabelledLatent
from pm_match.views.hinge.recognise import HingeModel
from tests.declared.views import tiny_views

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2))
SMALL = {"n_factors": 2, "n_frequencies": 3, "n_components": 2}


def declared(labels, **kwargs):
    return max_margin_views({"x": X, "y": Y}, labels, **SMALL | kwargs)


def log_density(model, point) -> float:
    function = pytensor.function(model.value_vars, model.logp(), mode=PLAIN)
    return float(function(*[point[value.name] for value in model.value_vars]))


def signs_of(model) -> np.ndarray:
    """Labels as the model has them, 0 where there is none; not read, which takes longer."""
    return model.rvs_to_values[model["label"]].data


def test_declares_what_it_says():
    model = tiny_views()
    assert {rv.name for rv in model.free_RVs} == {
        *("latent", "component_weights", "component", "component_precision", "component_mean"),
        *("frequencies", "coefficient_precision", "coefficients"),
        *("column_precision_x", "projection_x", "private_x", "private_latent_x", "precision_x"),
        *("column_precision_y", "projection_y", "precision_y", "intercept_x", "intercept_y"),
        "y_unobserved",
    }
    assert np.isfinite(log_density(model, model.initial_point(0)))


def test_the_prior_of_the_coefficients_precision_is_the_one_that_is_given():
    model = declared([1, -1] * 3, coefficient_prior=(3.0, 4.0))
    found = pm.logp(model["coefficient_precision"], 0.7).eval()
    assert found == pytest.approx(stats.gamma.logpdf(0.7, 3.0, scale=1.0 / 4.0))


def test_all_is_served():
    model = tiny_views()
    structure = read(model)
    assert not structure.refusals
    assert {type(part) for part in structure.parts} == {FactorModel, HingeModel, LabelledLatent}
    held = [value.name for step in pmm.steps(model) for value in step.vars]
    assert set(held) == {value.name for value in model.value_vars}


@pytest.mark.parametrize(
    ("labels", "classes", "signs"),
    [
        ([1, -1, 1, 1, -1, np.nan], [-1, 1], [1, -1, 1, 1, -1, 0]),
        ([True, False, True, None, False, True], [False, True], [1, -1, 1, 0, -1, 1]),
        (["no", "yes", "no", "no", None, "yes"], ["no", "yes"], [-1, 1, -1, -1, 0, 1]),
        (np.ma.MaskedArray([1, -1, 1, 1, 1, -1], [0, 1, 0, 0, 0, 0]), [-1, 1], [1, 0, 1, 1, 1, -1]),
        ([3, 7, 7, 3, 3, 3], [3, 7], [-1, 1, 1, -1, -1, -1]),
        (
            pd.Categorical(["b", "a", None, "a", "b", "b"]),
            ["a", "b"],
            [1, -1, 0, -1, 1, 1],
        ),
    ],
)
def test_two_classes_have_one_score(labels, classes, signs):
    model = declared(labels)
    assert list(model.coords["class"]) == classes
    np.testing.assert_array_equal(signs_of(model), signs)


def test_more_classes_have_a_score_each():
    model = declared(["b", "c", "a", None, "a", "c"])
    assert list(model.coords["class"]) == ["a", "b", "c"]
    expected = [[-1, 1, -1], [-1, -1, 1], [1, -1, -1], [0, 0, 0], [1, -1, -1], [-1, -1, 1]]
    hinge = next(part for part in read(model).parts if isinstance(part, HingeModel))
    np.testing.assert_array_equal(hinge.labels, expected)
    assert model["coefficients"].type.shape == (7, 3) or model.dim_lengths["class"].eval() == 3


def test_labels_are_matched_by_the_index_of_a_series():
    objects = list("abcdef")
    views = {"x": pd.DataFrame(X, index=objects), "y": Y}
    labels = pd.Series([1, -1, 1, 1, -1, -1], index=objects)
    model = max_margin_views(views, labels.sample(frac=1.0, random_state=0), **SMALL)
    np.testing.assert_array_equal(signs_of(model), labels)


def test_numbered_objects_have_the_labels_of_their_numbers():
    """An index of 0, 1, ... is one of labels, where objects have the same in another order."""
    views = {"x": pd.DataFrame(X).sample(frac=1.0, random_state=0)}
    order = views["x"].index.to_numpy()
    labels = pd.Series([1, -1, 1, 1, -1, -1])
    assert not np.array_equal(labels[order], labels)
    signs = signs_of(max_margin_views(views, labels, **SMALL))
    np.testing.assert_array_equal(signs, labels[order])
    # Without an index they are in the order of the views' rows.
    for plain in (labels.to_numpy(), labels.tolist()):
        signs = signs_of(max_margin_views(views, plain, **SMALL))
        np.testing.assert_array_equal(signs, labels)
    others = {"x": views["x"].set_axis(range(1, 7))}
    with pytest.raises(ValueError, match="expected labels of objects in the index; found '0'"):
        max_margin_views(others, labels, **SMALL)


def test_labels_that_nobody_numbered_are_in_the_order_of_named_objects():
    views = {"x": pd.DataFrame(X, index=list("fbdace"))}
    labels = pd.Series([1, -1, 1, 1, -1, -1])
    signs = signs_of(max_margin_views(views, labels, **SMALL))
    np.testing.assert_array_equal(signs, labels)


def test_other_units_say_the_same():
    """A view in other units has the same density, but for its Jacobian."""
    one, other = declared([1, -1] * 3), max_margin_views({"x": 7 * X, "y": Y}, [1, -1] * 3, **SMALL)
    point = one.initial_point(0)
    rng = np.random.default_rng(1)
    for name in ("projection_x", "private_x", "latent", "private_latent_x"):
        point[name] = rng.normal(size=point[name].shape)
    scaled = dict(point)
    for name in ("projection_x", "private_x", "intercept_x"):
        scaled[name] = 7.0 * point[name]
    for name in ("column_precision_x_log__", "precision_x_log__"):
        scaled[name] = point[name] - 2.0 * np.log(7.0)
    jacobian = np.log(7.0) * (
        X.size + sum(point[name].size for name in ("projection_x", "private_x", "intercept_x"))
    )
    found, expected = log_density(one, point), log_density(other, scaled)
    np.testing.assert_allclose(found, expected + jacobian)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([1, -1, 1], ValueError, "one for each of 6 objects; found shape \\(3,\\)"),
        (np.ones((6, 1)), ValueError, "found shape"),
        ([1] * 6, ValueError, "two or more classes.*found \\[1\\]"),
        ([None] * 6, ValueError, "found no label"),
        ([1, -1, 0.5, 1, -1, 1], ValueError, "found the number 0.5"),
        ([1, -1, np.inf, 1, -1, 1], ValueError, "found the number inf"),
        ("abcdef", TypeError, "labels: expected an array"),
    ],
)
def test_bad_labels(labels, error, message):
    with pytest.raises(error, match=message):
        declared(labels)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"C": 0.0}, ValueError, "C: expected a positive number; found 0"),
        ({"C": np.inf}, ValueError, "C: expected a positive number; found inf"),
        ({"C": "1"}, ValueError, "C: expected a positive number"),
        ({"n_factors": 0}, ValueError, "n_factors: expected a whole number"),
        ({"n_frequencies": 1.5}, ValueError, "n_frequencies: expected a whole number"),
        ({"n_components": 1}, ValueError, "n_components: .* at least 2"),
        ({"concentration": -1.0}, ValueError, "concentration: expected a positive number"),
        ({"n_private": -1}, ValueError, "n_private: expected a whole number"),
        ({"n_private": {"x": 1}}, ValueError, "n_private: expected a number, or one for each"),
        ({"column_prior": 1.0}, ValueError, "column_prior: expected \\(shape, rate\\)"),
        ({"private_precision": 0}, ValueError, "private_precision: expected a positive number"),
        (
            {"coefficient_prior": (1.0, 0.0)},
            ValueError,
            "coefficient_prior's rate: expected a positive number; found 0",
        ),
        ({"intercept": "yes"}, TypeError, "intercept: expected True or False"),
    ],
)
def test_bad_parameters(given, error, message):
    with pytest.raises(error, match=message):
        declared([1, -1] * 3, **given)


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ({}, ValueError, "at least one view"),
        ({"x": X, "y": Y[:4]}, ValueError, "view 'y': expected 6 objects"),
        ({"label": X}, ValueError, "found 'label', which it uses itself"),
        ({"x": np.zeros((6, 2))}, ValueError, "'x': expected objects that differ"),
    ],
)
def test_bad_views(views, error, message):
    with pytest.raises(error, match=message):
        max_margin_views(views, [1, -1] * 3, **SMALL)


def test_a_series_turned_round_keeps_its_labels():
    """A slice of a Series has an index of the same kind as one that was never set."""
    labels = pd.Series([1, -1, 1, 1, -1, -1])
    found, turned = (signs_of(declared(own)) for own in (labels, labels[::-1]))
    np.testing.assert_array_equal(turned, found)
    with pytest.raises(ValueError, match=r"labels: expected labels of objects .*; found '6'"):
        declared(pd.concat([labels, labels], ignore_index=True)[3:9])


def test_compiling_its_density_logs_nothing(caplog):
    """A rewrite fails, and says so, on Wisharts whose scale is a constant, diagonal matrix."""
    model = declared([1, -1, 1, 1, -1, -1])
    mode = pytensor.compile.mode.Mode(linker="py", optimizer="fast_run")
    pytensor.function(model.value_vars, model.logp(), mode=mode)
    assert "Rewrite failure" not in caplog.text


@pytest.mark.parametrize("n_objects", [100, 111])
def test_many_factors_are_served(n_objects):
    """With precisions of twenty rows, what is declared is still told from what is not."""
    rng = np.random.default_rng(0)
    views = {"a": rng.normal(size=(n_objects, 7)), "b": rng.normal(size=(n_objects, 5))}
    model = pmm.models.max_margin_views(views, np.arange(n_objects) % 2, 20, 40)
    assert not read(model).refusals
