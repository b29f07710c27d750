"""PyTensor's floatX of 32 bits: refused in words, or served with the same law."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import softmax

import pm_match as pmm
from tests.declared.kinds import MODELS
from tests.exactness.chains import run

X = np.array([[-0.4, 1.2], [0.6, 0.1], [1.9, 2.2]])
CENTRES = np.array([0.0, 0.7, 2.1])


@pytest.fixture(autouse=True)
def single():
    with pytensor.config.change_flags(floatX="float32"):
        yield


@pytest.mark.parametrize("kind", MODELS)
def test_variables_of_32_bits_are_refused(kind):
    model = MODELS[kind]()
    with pytest.raises(pmm.UnservedModelError, match=r"is float32; expected float64 .PyTensor's"):
        pmm.steps(model)


def test_tables_of_known_weights_have_the_same_law():
    """With no free number there is nothing to refuse, and tables need no more than 32 bits."""
    weights = np.array([0.5, 0.2, 0.3])
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=weights, shape=3)
        pm.StudentT("x", 4.0, pt.as_tensor(CENTRES.astype("float32"))[cluster][:, None], observed=X)
    assert model["x"].dtype == "float32"
    n = 20_000
    chain = run(pmm.steps(model), model.initial_point(0), n)
    labels = np.array([point["cluster"] for point in chain])
    logs = stats.t(4.0).logpdf(X[:, None, :] - CENTRES[:, None]).sum(axis=2)
    law = softmax(np.log(weights) + logs, axis=1)
    for label, expected in zip(labels.T, law, strict=True):
        error = np.sqrt(expected * (1.0 - expected) / n)
        assert (np.abs(np.bincount(label, minlength=3) / n - expected) < 4.5 * error).all()
