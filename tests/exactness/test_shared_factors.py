"""Shared factors by Gibbs: intervals cover, and the posterior of many objects is EM's maximum."""

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import block_diag

import pm_match as pmm
from tests.exactness.simulate_factors import FactorSimulator

SIZES = {"a": 5, "b": 4}


def made_up(n: int, seed: int) -> dict[str, np.ndarray]:
    """Two views that share two dimensions, and have another one each."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    return {
        name: z @ rng.standard_normal((2, d))
        + rng.standard_normal((n, 1)) @ rng.standard_normal((1, d))
        + 0.7 * rng.standard_normal((n, d))
        + 3.0
        for name, d in SIZES.items()
    }


# -- intervals -----------------------------------------------------------------------------------


class SharedFactorsSimulator(FactorSimulator):
    """`shared_factors`, by what does not turn with its factors."""

    def quantities(self, draw) -> dict[str, float]:
        found = {"shared size": float(np.square(draw["latent"]).sum())}
        means = {}
        for name in SIZES:
            w, v = draw[f"projection_{name}"], draw[f"private_{name}"]
            shared, own = w @ w.T, v @ v.T
            means[name] = draw["latent"] @ w.T + draw[f"intercept_{name}"]
            means[name] = means[name] + draw[f"private_latent_{name}"] @ v.T
            found |= {
                f"{name} noise": draw[f"precision_{name}"],
                f"{name} intercept": draw[f"intercept_{name}"][0],
                f"{name} shared variance": shared[0, 0],
                f"{name} shared covariance": shared[0, 1],
                f"{name} own variance": own[0, 0],
                f"{name} own covariance": own[0, 1],
                f"{name} mean": means[name][1, 1],
                f"{name} columns": np.log(draw[f"column_precision_{name}"]).sum(),
                f"{name} missing": draw[f"{name}_unobserved"][0],
            }
        between = draw["projection_a"] @ draw["projection_b"].T
        found |= {"between": between[0, 0], "between, in all": np.square(between).sum()}
        return {name: float(value) for name, value in found.items()}


N_SIMULATIONS, N_DRAWS, THIN = 150, 39, 6


@pytest.mark.slow
def test_intervals_cover():
    """Central intervals hold what the data were drawn from as often as they say."""
    views = made_up(12, seed=1)
    views["a"][3, 2] = views["b"][5, 1] = np.nan
    views["b"][7] = np.nan
    model = pmm.models.shared_factors(
        views, 2, 1, noise_prior=(4.0, 2.0), projection_prior=(4.0, 4.0)
    )
    simulator = SharedFactorsSimulator(model, seed=3)
    for name, ranks in simulator.ranks(N_SIMULATIONS, N_DRAWS, THIN).items():
        ranks = np.array(ranks)
        assert len(ranks) == N_SIMULATIONS
        # Of 40 equally probable ranks; 23 quantities, two intervals.
        for least, most in ((10, 29), (2, 37)):
            share = (most - least + 1) / (N_DRAWS + 1)
            hits = int(((ranks >= least) & (ranks <= most)).sum())
            found = stats.binomtest(hits, N_SIMULATIONS, share).pvalue
            assert found > 2e-4, (name, share, hits / N_SIMULATIONS)


# -- EM's maximum --------------------------------------------------------------------------------


def moments(values, chain: int, draw: int):
    """Mean (D,) and covariance (D, D) of both views side by side, latent vectors out."""
    own = {name: np.asarray(values[name])[chain, draw] for name in values.data_vars}
    w = np.concatenate([own["projection_a"], own["projection_b"]])
    privates = [
        own[f"private_{name}"] @ own[f"private_{name}"].T + np.eye(d) / own[f"precision_{name}"]
        for name, d in SIZES.items()
    ]
    mean = np.concatenate([own["intercept_a"], own["intercept_b"]])
    return mean, w @ w.T + block_diag(*privates)


def log_likelihood(x, mean, covariance) -> float:
    return float(stats.multivariate_normal.logpdf(x, mean, covariance).sum())


def test_the_posterior_of_many_objects_is_where_em_ends():
    r"""And as wide as the likelihood says: :math:`2 (\hat\ell - \ell)` is chi-squared.

    Its degrees of freedom are the parameters, less the rotation of the shared factors.
    """
    views = made_up(1500, seed=2)
    model = pmm.models.shared_factors(views, 2, 1)
    best = pmm.fit_em(model, starts=3, random_seed=1, progressbar=False)
    idata = pmm.sample(
        1000, tune=200, chains=1, cores=1, model=model, random_seed=1, progressbar=False, quiet=True
    )
    x = np.hstack(list(views.values()))
    mean, covariance = moments(best["posterior"], 0, 0)
    highest = log_likelihood(x, mean, covariance)
    assert highest == pytest.approx(best["sample_stats"]["log_likelihood"].item(), rel=1e-9)
    keep = range(0, 1000, 4)
    drawn = [moments(idata["posterior"], 0, n) for n in keep]
    deviances = np.array([2.0 * (highest - log_likelihood(x, *one)) for one in drawn])
    d = sum(SIZES.values())
    # Means; shared loadings; private loadings and noise.
    free = d + (2 * d - 1) + (d + 2)
    assert deviances.min() > 0.0
    assert deviances.mean() == pytest.approx(free, abs=4.5 * np.sqrt(2 * free / len(keep)))
    assert deviances.var() == pytest.approx(2 * free, rel=0.5)
    for found, expected in zip(zip(*drawn, strict=True), (mean, covariance), strict=True):
        apart = np.mean(found, axis=0) - expected
        assert (np.abs(apart) < 0.35 * np.std(found, axis=0)).all()
