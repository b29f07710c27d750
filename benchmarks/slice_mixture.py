"""Mixing of the mixture over frequencies: collapsed sweeps beside the paper's slice sampler.

Du et al. (2018), section 3.2, eq. (5)-(9), draw assignments given weights, means and covariances,
among the components whose weights are above an object's slice. Ours draws them with all three
integrated out. Both are of the same model, a truncated stick-breaking mixture with normal-Wishart
components: that they agree on its number of components is printed too.

Effective draws of the number of occupied components, a sweep and a second of CPU time. Run from the
repository: `python -m benchmarks.slice_mixture`.
"""

import time

import arviz as az
import numpy as np

from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import new_partition, place, rename, sweep
from pm_match.clusters.units import units
from pm_match.normal.conjugate import posterior
from pm_match.normal.normal_rows import NormalRows, NormalWishartPrior
from pm_match.normal.normal_wishart import NormalWishartEvidence

TRUNCATION = 10
CONCENTRATION = 1.0
N_DRAWS = 30_000
SIZES = ((100, 2), (100, 4))


def data(n, d, seed=0):
    """Three components, some of which overlap, of variance 1 over d in each dimension."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, d)) * 2.0
    return (centres[rng.integers(3, size=n)] + rng.normal(size=(n, d))) / np.sqrt(d)


def prior_of(d):
    """Return the prior that `max_margin_views` declares for frequencies of d dimensions."""
    return NormalWishartPrior(np.zeros(d), 1.0, d + 2.0, np.eye(d) / d)


def sliced(x, prior, rng, n_sweeps):
    """Yield labels by the slice sampler, plain NumPy."""
    n = len(x)
    labels = np.zeros(n, int)
    for _ in range(n_sweeps):
        means, precisions = posterior(x, labels, TRUNCATION, prior, shared=False).draw(rng)
        counts = np.bincount(labels, minlength=TRUNCATION)
        after = counts[::-1].cumsum()[::-1] - counts
        sticks = rng.beta(1.0 + counts, CONCENTRATION + after)
        sticks[-1] = 1.0
        weights = sticks * np.append(1.0, np.cumprod(1.0 - sticks[:-1]))
        slices = rng.uniform(size=n) * weights[labels]
        away = x[:, None, :] - means
        scores = -0.5 * np.einsum("nki,kij,nkj->nk", away, precisions, away, optimize=True)
        scores += 0.5 * np.linalg.slogdet(precisions)[1]
        scores[weights < slices[:, None]] = -np.inf
        labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
        yield labels


def collapsed(x, prior, rng, n_sweeps):
    """Yield labels by sweeps with weights, means and covariances integrated out."""
    n, d = x.shape
    own = units(n, np.zeros((0, 2), int))
    evidence = NormalWishartEvidence(NormalRows(np.arange(n), own, d), TRUNCATION)
    state = new_partition(own.size, TRUNCATION)
    place(state, np.zeros(n, int))
    evidence.load(x, state.slot.astype(np.int64), prior)
    a, b = np.ones(TRUNCATION - 1), np.full(TRUNCATION - 1, CONCENTRATION)
    renamed, terms = np.zeros(TRUNCATION, np.int64), collect([evidence.term])
    for _ in range(n_sweeps):
        sweep(rng, a, b, state, terms)
        rename(rng, a, b, state, renamed, TRUNCATION)
        yield state.slot


def mixing(sampler, x, prior):
    """Effective draws of the number of components, seconds, and the mean with its error."""
    rng = np.random.default_rng(1)
    for _ in sampler(x, prior, rng, 5):  # compiles
        pass
    found = np.empty(N_DRAWS)
    begin = time.process_time()
    for k, labels in enumerate(sampler(x, prior, rng, N_DRAWS)):
        found[k] = len(np.unique(labels))
    seconds = time.process_time() - begin
    kept = found[N_DRAWS // 10 :]
    effective = float(az.ess(kept[None]))
    return effective, seconds, kept.mean(), kept.std() / np.sqrt(effective)


def main():
    for n, d in SIZES:
        x, prior = data(n, d), prior_of(d)
        rates = []
        for name, sampler in (("collapsed", collapsed), ("slices", sliced)):
            effective, seconds, mean, error = mixing(sampler, x, prior)
            rates.append((effective / N_DRAWS, effective / seconds))
            print(
                f"{n} x {d:2d}, {name:9s}: {rates[-1][0]:.3f} effective draws a sweep, "
                f"{rates[-1][1]:7.1f} a second; {mean:.2f} ± {error:.2f} components"
            )
        own, other = rates
        print(f"    {own[0] / other[0]:.1f} times a sweep, {own[1] / other[1]:.1f} times a second")


if __name__ == "__main__":
    main()
