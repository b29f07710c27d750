"""How many dimensions latent vectors should have: by cross-validation, or by BIC."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.util import get_random_generator

from pm_match.checks import check_count, check_option, check_seed, type_name
from pm_match.features.parts import Features
from pm_match.features.search.feature_problem import FeatureProblem
from pm_match.features.search.plain import Mode, find_mode, problem_of
from pm_match.numerics.ahead import compile_ahead
from pm_match.numerics.masked import MaskedTable
from pm_match.progress import SearchProgress
from pm_match.reading import read
from pm_match.reading.parts import Clustering, UnservedModelError
from pm_match.reading.probe import initial_point
from pm_match.running.runs import runs

Factory = Callable[[int], pm.Model]


def choose_n_factors(
    model_factory: Factory,
    candidates: Iterable[int],
    *,
    method: Literal["cross-validation", "bic"] = "cross-validation",
    n_folds: int = 5,
    starts: int = 1,
    random_seed: Any = None,
    progressbar: bool = True,
    cores: int | None = None,
    executor: Executor | None = None,
) -> xr.Dataset:
    r"""Choose the dimension of the latent vectors of a model of feature vectors.

    Parameters
    ----------
    model_factory : callable
        From a number of factors to a model with one set of latent vectors, such as
        ``lambda k: pmm.models.projected_clusters(tables, n_factors=k)``. The data, links and priors
        are the model's.
    candidates : iterable of int
        The numbers of factors to try.
    method : {"cross-validation", "bic"}, default "cross-validation"
        ``"cross-validation"`` (Iwata, Hirao & Ueda 2016, section 3.2): the observed entries are
        divided at random into folds. With each fold held out in turn, labels and projections are
        found by search, and the fold is scored by its log predictive density

        .. math:: \log p(X_{\text{held out}} \mid X, \hat S, \hat W)
                  = \log p(X_{\text{all}} \mid \hat S, \hat W) - \log p(X \mid \hat S, \hat W) ,

        latent vectors and precision integrated out, per entry; the largest mean over folds is the
        best.

        ``"bic"``: one search on all data, scored by

        .. math:: -2 \log p(X, \hat S \mid \hat W) + p_K \log N, \quad
                  p_K = K \sum_d M_d - \tfrac12 K (K - 1) ,

        where N is the number of objects of all domains, and :math:`p_K` counts the entries of the
        projections but for the rotation that they leave free; latent vectors, precision and weights
        are integrated out and not counted. The smallest is the best. It is several times as fast.
    n_folds : int, default 5
        Of cross-validation.
    starts : int, default 1
        Searches for each fit, the best of which by log joint is taken.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
    progressbar : bool, default True
    cores, executor : optional
        Where folds are fitted, as in `find_matching`: the result is the same, bit for bit.

    Returns
    -------
    Dataset
        ``score`` for every ``n_factors``; for cross-validation also ``standard_error``, over folds,
        and ``score_of_fold``; for BIC also ``log_joint`` and ``n_parameters``; and ``best``, the
        best number of factors: the smallest one if several score the same.

    Raises
    ------
    TypeError, ValueError
        If a candidate or a number is not as described, or a model has not one set of feature
        vectors with one shared noise, has another number of factors than it was asked for, or
        other data than the first.
    UnservedModelError
        If the steps cannot serve the model.

    Notes
    -----
    Free hyperparameters are what they are at the model's initial point. An object's last observed
    entry is never held out, nor are values that are missing anyway. Relations of the same clusters
    are left out of account.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 6, 3, 2, random_seed=1)
    >>> chosen = pmm.choose_n_factors(
    ...     lambda k: pmm.models.projected_clusters(domains, n_factors=k),
    ...     candidates=[1, 2],
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> int(chosen["best"])
    1
    """
    if not callable(model_factory):
        raise TypeError(
            "model_factory: expected a function of a number of factors; "
            f"found {type_name(model_factory)}"
        )
    numbers = _check_candidates(candidates)
    check_option("method", method, ("cross-validation", "bic"))
    check_count("n_folds", n_folds, 2)
    check_count("starts", starts)
    if cores is not None:
        check_count("cores", cores)
    check_seed(random_seed)
    rng = get_random_generator(random_seed)
    problems = {k: _read_problem(model_factory, k) for k in numbers}
    data = problems[numbers[0]].domains
    for k, problem in problems.items():
        _check_same(data, problem.domains, k)
    # Where it is not on disk, one fold is fitted before all others, which find it there.
    first = problems[numbers[0]]
    compile_ahead([first.grouped(np.zeros(len(first.units.size), np.int64)).kernel()])
    folds = draw_folds(data, n_folds, rng) if method == "cross-validation" else []
    tasks = [(k, fold) for k in numbers for fold in (range(n_folds) if folds else [-1])]
    # Every candidate and fold has its own stream: adding a candidate changes no other's score.
    root = int(rng.integers(2**62))

    def fitted(task: tuple[int, int]) -> float:
        k, fold = task
        own = np.random.default_rng([root, k, fold + 1]).spawn(starts)
        problem = problems[k]
        if folds:
            problem = problem.with_data(hold_out(data, folds, fold))
        modes = [find_mode(problem, one) for one in own]
        mode = max(modes, key=lambda mode: mode.log_joint)
        return _predictive(problem, mode, data) if folds else mode.log_joint

    found = {}
    with SearchProgress(
        len(tasks), progressbar, title="Choosing the number of factors"
    ) as progress:
        for number, score in runs(fitted, tasks, executor=executor, cores=cores):
            found[tasks[number]] = score
            progress.advance()
    if not folds:
        return _bic(numbers, data, np.array([found[k, -1] for k in numbers]))
    scores = np.array([[found[k, fold] for fold in range(n_folds)] for k in numbers])
    return xr.Dataset(
        {
            "score": ("n_factors", scores.mean(axis=1)),
            "standard_error": ("n_factors", scores.std(axis=1, ddof=1) / np.sqrt(n_folds)),
            "score_of_fold": (("n_factors", "fold"), scores),
            "best": ((), numbers[int(scores.mean(axis=1).argmax())]),
        },
        coords={"n_factors": numbers, "fold": np.arange(n_folds)},
        attrs={"method": method},
    )


def draw_folds(
    data: Sequence[MaskedTable], n_folds: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Divide the observed entries of all domains into folds of nearly equal size.

    The entries of an object are dealt to different folds as far as there are enough, so that every
    object keeps some whichever fold is held out.

    Return a list of (N_d, M_d): the fold of every entry, -1 for missing ones and for those that are
    never held out.
    """
    folds = []
    for domain in data:
        seen = np.ones(domain.values.shape, bool) if domain.observed is None else domain.observed
        shuffled = np.where(seen, rng.random(seen.shape), np.inf).argsort(axis=1)
        rank = shuffled.argsort(axis=1)
        first = rng.permutation(len(seen))[:, None]
        fold = np.where(seen, (rank + first) % n_folds, -1)
        fold[seen.sum(axis=1) == 1] = -1
        folds.append(fold)
    return folds


def hold_out(
    data: Sequence[MaskedTable], folds: Sequence[NDArray[np.int64]], held_out: int
) -> list[MaskedTable]:
    """Return the data without the entries of one fold."""
    left = []
    for domain, fold in zip(data, folds, strict=True):
        kept = fold != held_out
        if domain.observed is not None:
            kept &= domain.observed
        left.append(MaskedTable(np.where(kept, domain.values, 0.0), None if kept.all() else kept))
    return left


def _check_candidates(candidates: Iterable[int]) -> list[int]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise TypeError(
            "candidates: expected numbers of factors, such as [3, 4, 5]; "
            f"found {type_name(candidates)}"
        )
    found = list(candidates)
    if not found:
        raise ValueError("candidates: expected at least one number of factors; found none")
    for position, number in enumerate(found):
        check_count(f"candidates[{position}]", number)
    # In order, so that of several with the same score the smallest comes first.
    return sorted({int(number) for number in found})


def _read_problem(factory: Factory, n_factors: int) -> FeatureProblem:
    model = factory(n_factors)
    clustering, features = _only_features(model, n_factors)
    problem, _, _ = problem_of(clustering, features, initial_point(model))
    return problem


def _check_same(first, other, n_factors: int) -> None:
    same = len(first) == len(other) and all(
        np.array_equal(one.values, two.values)
        and (one.observed is None) == (two.observed is None)
        and (one.observed is None or np.array_equal(one.observed, two.observed))
        for one, two in zip(first, other, strict=True)
    )
    if not same:
        raise ValueError(
            f"model_factory: expected models of the same data; found others with {n_factors} "
            "factors than with the fewest"
        )


def _only_features(model: Any, n_factors: int) -> tuple[Clustering, Features]:
    if not isinstance(model, pm.Model):
        raise TypeError(
            "model_factory: expected a function that returns a model; found one that returns "
            + type_name(model)
        )
    structure = read(model)
    pairs = [
        (c.clusterings[features.clustering], features)
        for c in structure.components
        for features in c.of(Features)
    ]
    if not pairs and structure.refusals:
        raise UnservedModelError(f"model_factory's model: {structure.explain()}.")
    if len(pairs) != 1:
        raise ValueError(
            "model_factory: expected a model with one set of latent vectors behind its feature "
            f"vectors; found {len(pairs)}"
        )
    clustering, features = pairs[0]
    if not features.standard:
        raise ValueError(
            "model_factory: expected projected latent vectors and one shared noise; found "
            "intercepts, noise of the domains' own, deviations, relevance or powers; compare such "
            "models by what `find_matching` reaches, or declare their factors with "
            "`determination=True`"
        )
    if clustering.named:
        raise ValueError(
            "model_factory: expected no observed labels; found some; compare such models otherwise"
        )
    if features.n_factors != n_factors:
        raise ValueError(
            f"model_factory: expected a model with {n_factors} factors, as it was asked for; found "
            f"one with {features.n_factors}"
        )
    return clustering, features


def _predictive(problem: FeatureProblem, mode: Mode, whole: Sequence[MaskedTable]) -> float:
    """Log predictive density of the held-out entries, per entry."""
    labels = np.concatenate(mode.labels)[problem.units.first]
    everything = problem.with_data(whole)
    gained = everything.log_evidence(labels, mode.projections) - problem.log_evidence(
        labels, mode.projections
    )
    n_held_out = sum(domain.n_values for domain in whole)
    n_held_out -= sum(domain.n_values for domain in problem.domains)
    return gained / n_held_out


def _bic(numbers: list[int], data: Sequence[MaskedTable], log_joint: NDArray) -> xr.Dataset:
    n_objects = sum(domain.values.shape[0] for domain in data)
    n_features = sum(domain.values.shape[1] for domain in data)
    parameters = np.array([k * n_features - k * (k - 1) // 2 for k in numbers])
    score = -2.0 * log_joint + parameters * np.log(n_objects)
    return xr.Dataset(
        {
            "score": ("n_factors", score),
            "log_joint": ("n_factors", log_joint),
            "n_parameters": ("n_factors", parameters),
            "best": ((), numbers[int(score.argmin())]),
        },
        coords={"n_factors": numbers},
        attrs={"method": "bic"},
    )
