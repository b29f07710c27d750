"""A few draws of a model that is declared in a function."""

import pymc as pm

import pm_match as pmm


def declared(write, **options) -> pm.Model:
    """Declare a model by what a function writes into it."""
    with pm.Model(**options) as model:
        write()
    return model


def few_draws(model, draws=6, tune=4, chains=1, init="dispersed", **options):
    """Sample without a search, without a word, and not to be judged."""
    return pmm.sample(
        draws,
        tune=tune,
        chains=chains,
        init=init,
        model=model,
        random_seed=0,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        **options,
    )
