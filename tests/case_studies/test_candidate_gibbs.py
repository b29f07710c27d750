"""Hyperparameters chosen among candidates: the law that they follow."""

import pytest

from case_studies.candidate_gibbs import CandidateGibbs
from tests.declared.networks import network_model
from tests.exactness.hyperparameters import law_distances


def test_hyperparameters_against_numerical_integration():
    for name, distance in law_distances(CandidateGibbs).items():
        assert distance < 1.8, (name, distance)


def test_what_is_no_count_is_refused():
    model = network_model(hyperpriors=True)
    with pytest.raises(ValueError, match="n_candidates: expected a whole number of at least 1"):
        CandidateGibbs([model["density_prior"]], n_candidates=0, model=model)
