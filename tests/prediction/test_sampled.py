"""With draws that the samplers make: against full parameters, and the rate of coverage."""

import numpy as np
import pytest
from scipy import stats

import pm_match as pmm


@pytest.fixture(scope="module")
def sampled():
    """Data drawn from the declared model, of which a part is held out, and its posterior."""
    rng = np.random.default_rng(12)
    n_clusters, n_factors, n, n_new = 3, 2, 40, 40
    sizes = {"a": 6, "b": 5}
    z = rng.normal(size=(n_clusters, n_factors))
    w = {name: rng.normal(size=(m, n_factors)) for name, m in sizes.items()}
    labels = {name: rng.integers(0, n_clusters, n + n_new) for name in sizes}
    tables = {
        name: z[labels[name]] @ w[name].T + 0.5 * rng.normal(size=(n + n_new, m))
        for name, m in sizes.items()
    }
    # A few known matches: three clusters of two factors match in any way otherwise.
    links = {
        name: np.concatenate([np.flatnonzero(own[:n] == j)[:4] for j in range(n_clusters)])
        for name, own in labels.items()
    }
    model = pmm.models.projected_clusters(
        {name: table[:n] for name, table in tables.items()},
        n_factors,
        n_clusters,
        projection="normal",
        weights="uniform",
        links=links,
    )
    idata = pmm.sample(
        150, tune=100, chains=2, cores=1, model=model, random_seed=1, quiet=True,
        compute_convergence_checks=False,
    )  # fmt: skip
    new = {name: table[n:] for name, table in tables.items()}
    # What the new objects' matches look like in the other domain.
    other = z[labels["a"][n:]] @ w["b"].T + 0.5 * rng.normal(size=(n_new, sizes["b"]))
    return model, idata, new, other


def test_collapsed_or_given_all_parameters_the_mean_is_the_same(sampled):
    model, idata, new, _ = sampled
    x = new["a"]
    found = pmm.assign(idata, model, {"a": x}, progressbar=False)["prediction/a"]
    v = idata["posterior"].to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    latent, w, alpha = v["latent"].values, v["projection_a"].values, v["precision"].values
    means = np.einsum("tjk,tmk->tjm", latent, w)
    logs = stats.norm.logpdf(
        x[None, :, None], means[:, None], alpha[:, None, None, None] ** -0.5
    ).sum(axis=-1)
    q = np.exp(logs)
    same = v["cluster_b"].values[:, None, :, None] == np.arange(3)
    match = np.einsum("tij,tinj->in", q, np.broadcast_to(same, (len(q), len(x), *same.shape[2:])))
    match /= q.sum(axis=(0, 2))[:, None]
    effective = q.sum(axis=2).sum(axis=0) ** 2 / np.square(q.sum(axis=2)).sum(axis=0)
    # Four standard errors of the noisier one, and what autocorrelation adds to them.
    noise = np.sqrt(match * (1.0 - match) / effective[:, None])
    assert (np.abs(found["match_b"].to_numpy() - match) < 6.0 * noise + 0.02).all()
    # Less is left to chance where more is integrated out.
    assert found["effective_draws"].mean() > effective.mean()


def coverage(found, name, values):
    inside = (found[f"{name}_lower"] <= values) & (values <= found[f"{name}_upper"])
    return float(inside.mean())


@pytest.mark.parametrize("prob", [0.5, 0.9])
def test_intervals_cover_at_their_rate(sampled, prob):
    model, idata, new, other = sampled
    # Binomial noise of 200 values, of which those of one object share its cluster.
    limit = 3.0 * np.sqrt(prob * (1.0 - prob) / other.size) + 0.01
    found = pmm.translate(idata, model, new["a"], source="a", target="b", ci_prob=prob,
                      num_draws=50, progressbar=False)  # fmt: skip
    assert abs(coverage(found, "b", other) - prob) < limit
    hidden = np.random.default_rng(0).random(new["b"].shape) < 0.4
    x = np.where(hidden, np.nan, new["b"])
    found = pmm.impute(idata, model, {"b": x}, ci_prob=prob, num_draws=50, progressbar=False)
    seen = found["b"].to_numpy()[~hidden]
    np.testing.assert_array_equal(seen, new["b"][~hidden])
    inside = (found["b_lower"] <= new["b"]) & (new["b"] <= found["b_upper"])
    limit = 3.0 * np.sqrt(prob * (1.0 - prob) / hidden.sum()) + 0.01
    assert abs(float(inside.to_numpy()[hidden].mean()) - prob) < limit
