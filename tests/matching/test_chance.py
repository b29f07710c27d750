from itertools import combinations

import numpy as np
import pytest

import pm_match as pmm
from pm_match.matching.chance import Chance, beside_chance, chance_of
from pm_match.matching.set_draws import read_sets
from tests.declared.draws import tree, with_relevance


def counted(draws):
    """Pairs of objects of different domains that share clusters, one after the other."""
    domain, n = draws.domain_of, len(draws.domain_of)
    several = len(draws.sizes) > 1
    pairs = [(i, j) for i, j in combinations(range(n), 2) if not several or domain[i] != domain[j]]
    labels = np.array([own for own, _ in draws])
    first, second = (labels[:, own] for own in np.transpose(pairs))
    return (first == second) & (first >= 0)


@pytest.mark.parametrize("idata", [tree(), tree(sizes=(("a", 9),)), with_relevance(tree())])
def test_chances_are_those_of_all_pairs(idata):
    (draws,) = read_sets(idata, None, "posterior", ("chain", "draw"))
    together = counted(draws)
    half = len(together) // 2
    found = chance_of(draws)
    assert found.together == pytest.approx(together.mean())
    both = (together[:half] & together[half:]).mean()
    assert found.again == pytest.approx(both / together.mean())


@pytest.mark.parametrize(
    ("together", "again", "kappa", "uninformative"),
    [
        (0.1, 0.25, 1 / 6, True),
        (0.1, 0.4, 1 / 3, False),
        (0.6, 0.96, 0.9, False),
        (1.0, 1.0, 0.0, True),
        (0.6, np.nan, np.nan, True),
        (0.4, np.nan, np.nan, False),
    ],
)
def test_what_agrees_little_beyond_chance_is_uninformative(together, again, kappa, uninformative):
    found = Chance(together, again)
    assert found.kappa == pytest.approx(kappa, nan_ok=True)
    assert found.uninformative is uninformative


def test_one_draw_has_no_other_to_compare_with():
    idata = tree()["posterior"].to_dataset().isel(chain=[0], draw=[0])
    (line,) = beside_chance(idata)
    assert "in another" not in line


@pytest.mark.parametrize("signal", [False, True])
def test_noise_is_called_noise(signal):
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(40, 4)) for name in "ab"}
    if signal:
        centres = rng.normal(size=(4, 4)) * 6.0
        tables = {name: own + centres[np.arange(40) % 4] for name, own in tables.items()}
    model = pmm.models.projected_clusters(tables, n_factors=2, n_clusters=8, projection="normal")
    idata = pmm.sample(
        150, tune=100, chains=2, cores=1, model=model, random_seed=0, progressbar=False, quiet=True
    )
    (line,) = beside_chance(idata)
    assert "taken at random" in line
    (draws,) = read_sets(idata, None, "posterior", ("chain", "draw"))
    assert chance_of(draws).uninformative is not signal
