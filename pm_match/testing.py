"""Exactness tests for a kind of evidence, from a model that is declared with it.

Each takes a tiny model of one component (five to seven units and three clusters are plenty: the
assignments are enumerated), whose variables have PyMC's default transforms, and raises
AssertionError where something is not exact. A check that cannot fail is worth nothing: break the
code under test once, and see it go red.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.transforms import CircularTransform
from pymc.model.core import Model
from scipy.special import betaln, logsumexp

from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.exchange import exchange_by_moves, exchange_by_table, kernel_and_scratch
from pm_match.clusters.protocol import collect, collected
from pm_match.clusters.split_merge import new_scratch, split_or_merge
from pm_match.clusters.sweep import rename, sweep
from pm_match.numerics.kernels import entry, template
from pm_match.reading import read
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import entered_density, initial_point, over_points

__all__ = [
    "check_declared_density",
    "check_draws",
    "check_hyperparameters",
    "check_kind",
    "check_law",
    "check_running_state",
    "check_scores",
    "plain_log_joint",
    "random_point",
]

# Pairs of random directions along which draws are looked at.
_DIRECTIONS = 10

Point = Mapping[str, NDArray]
Labels = Sequence[NDArray[np.int64]]


def check_kind(
    model: Model, kind: str | None = None, *, seed: int = 0, n_sweeps: int = 100_000
) -> None:
    """Make all the checks of this module.

    Parameters
    ----------
    model : pymc.Model
        A tiny one, all of whose evidence has `log_marginal` and `log_conditional`.
    kind : str, optional
        The name of the kind that is meant to serve it: if it does not, another one may.
    seed : int, default 0
    n_sweeps : int, default 100 000
        Of `check_law`.
    """
    serving = {own.kind for own in collapsed_of(model).component.evidence}
    assert kind in (None, *serving), f"expected evidence of the kind {kind!r}; found {serving}"
    check_scores(model, seed=seed)
    check_running_state(model, seed=seed)
    check_law(model, seed=seed, n_sweeps=n_sweeps)
    check_declared_density(model, seed=seed)
    check_draws(model, seed=seed)
    check_hyperparameters(model, seed=seed)


def collapsed_of(model: Model) -> Collapsed:
    """Return a collapsed state of the model's only component, at no point yet.

    Raise `UnservedModelError` if the model is not one component.
    """
    structure = read(model)
    if len(structure.components) != 1:
        raise UnservedModelError(
            f"expected a model of one component; found {len(structure.components)}"
            + (f": {structure.explain()}" if structure.refusals else "")
        )
    return Collapsed(model, structure.components[0])


def random_point(
    model: Model, rng: np.random.Generator, state: Collapsed | None = None
) -> dict[str, NDArray]:
    """Draw a point of the value variables.

    Linked objects share their label in it, and observed labels are what they are.
    """
    state = collapsed_of(model) if state is None else state
    point = {
        name: rng.normal(0.0, 0.8, np.shape(value)).astype(np.asarray(value).dtype)
        if np.asarray(value).dtype.kind == "f"
        else np.asarray(value)
        for name, value in initial_point(model).items()
    }
    labels = [
        rng.integers(-1 if (site >= 0).any() else 0, clustering.truncation, len(own.size))
        for clustering, own, site in zip(
            state.component.clusterings,
            state.units,
            [partition.relevance.group for partition in state.partitions],
            strict=True,
        )
    ]
    labels = [
        clustering.respected(
            np.where((label < 0) & (partition.relevance.group < 0), 0, label)[own.of_object]
        )
        for clustering, label, partition, own in zip(
            state.component.clusterings, labels, state.partitions, state.units, strict=True
        )
    ]
    return at_labels(state, point, labels)


def at_labels(state: Collapsed, point: Point, labels: Labels) -> dict[str, NDArray]:
    """Put labels (N,) of every clustering, -1 for irrelevant objects, into a point."""
    new = dict(point)
    for points, label in zip(state.points, labels, strict=True):
        points.write_labels(new, label)
    return new


def plain_log_joint(state: Collapsed, point: Point, labels: Labels) -> float:
    """Log p(data, assignments, relevance) by plain formulas, all else integrated out.

    Parameters
    ----------
    state : Collapsed
    point : mapping
        With the hyperparameters.
    labels : sequence of (N,) integer array
        Of every clustering, -1 for irrelevant objects.
    """
    total = plain_log_prior(state, point, labels)
    return total + sum(evidence.log_marginal(point, labels) for evidence in state.evidence)


def plain_log_prior(state: Collapsed, point: Point, labels: Labels) -> float:
    """Log p(assignments, relevance), stick by stick and flag by flag."""
    total = 0.0
    for clustering, label in zip(state.component.clusterings, labels, strict=True):
        counts = np.bincount(label[label >= 0], minlength=clustering.truncation)
        if clustering.weights:
            for j, (a, b) in enumerate(zip(*clustering.prior(point), strict=True)):
                total += betaln(a + counts[j], b + counts[j + 1 :].sum()) - betaln(a, b)
        else:
            a, b = clustering.prior(point)
            rest = np.append(1.0, np.cumprod(b / (a + b)))
            total += counts @ np.log(rest * np.append(a / (a + b), 1.0))
        group = np.concatenate([np.full(a.n_objects, a.group) for a in clustering.assignments])
        for number, (e, f, free) in enumerate(clustering.relevance_prior(point)):
            yes, no = (
                ((group == number) & (label >= 0)).sum(),
                ((group == number) & (label < 0)).sum(),
            )
            total += (
                betaln(e + yes, f + no) - betaln(e, f)
                if free
                else yes * np.log(e / (e + f)) + no * np.log(f / (e + f))
            )
    return float(total)


def check_scores(model: Model, *, seed: int = 0, n_points: int = 10) -> None:
    """Check every unit's scores: differences of the plain formula between its labels."""
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    # Every term twice: one that does not add to what others have scored shows.
    state.terms = [collect([*collected(table), *collected(table)]) for table in state.terms]
    for _ in range(n_points):
        point = random_point(model, rng, state)
        state.load(point, state.labels(point))
        here = state.found()
        for number, (partition, own) in enumerate(zip(state.partitions, state.units, strict=True)):
            for unit in range(len(own.size)):
                least = -1 if partition.relevance.group[unit] >= 0 else 0
                expected = []
                for label in range(least, len(partition.counts)):
                    moved = [one.copy() for one in here]
                    moved[number][own.of_object == unit] = label
                    expected.append(
                        sum(evidence.log_marginal(point, moved) for evidence in state.evidence)
                    )
                found = state.scores(number, unit)
                found = np.roll(found, 1) if least < 0 else found[:-1]
                np.testing.assert_allclose(
                    found - found[-1],
                    2.0 * (np.array(expected) - expected[-1]),
                    rtol=1e-8,
                    atol=1e-8,
                    err_msg=f"twice the scores of unit {unit} of clustering {number} at labels "
                    f"{here}",
                )


@template
def _walk(exchange, rng, a, b, partition, terms, members, names, swaps, free, scratch, out):
    """Make one of each move for every row of `out`, and write the labels of all units to it."""
    for number in range(out.shape[0]):
        sweep(rng, a, b, partition, terms)
        split_or_merge(rng, a, b, partition, terms, members, 1)
        if free.shape[0] > 0:
            start, stop = free[int(rng.random() * free.shape[0])]
            exchange(rng, a, b, partition, terms, start, stop, *scratch)
        rename(rng, a, b, partition, names, swaps)
        for unit in range(out.shape[1]):
            out[number, unit] = partition.label[unit]


@entry
def _walk_by_table(rng, a, b, partition, terms, members, names, swaps, free, scratch, out):
    _walk(exchange_by_table, rng, a, b, partition, terms, members, names, swaps, free, scratch, out)


@entry
def _walk_by_moves(rng, a, b, partition, terms, members, names, swaps, free, scratch, out):
    _walk(exchange_by_moves, rng, a, b, partition, terms, members, names, swaps, free, scratch, out)


def _visited(state: Collapsed, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Make `n` of each move; return the labels of all units after each (n, U).

    In compiled code, of a single clustering all of them at once: the moves of tiny models take a
    microsecond. Labels that have parameters are not swapped: those would have to go along.
    """
    walks = []
    for partition, terms, prior, moves in zip(
        state.partitions, state.terms, state.priors, state.exchanges, strict=True
    ):
        n_units, truncation = len(partition.label), len(partition.counts)
        exchange, *scratch = kernel_and_scratch(collected(terms), truncation)
        walk = _walk_by_table if exchange is exchange_by_table else _walk_by_moves
        swaps = 0 if any(own.anchored for own in state.component.evidence) else truncation
        free = np.array(moves.free, np.int64).reshape(-1, 2)
        own = new_scratch(n_units), np.zeros(truncation, np.int64), swaps, free, tuple(scratch)
        walks.append(partial(walk, rng, *prior, partition, terms, *own))
    visited = [np.zeros((n, len(own.label)), np.int64) for own in state.partitions]
    together = n if len(walks) == 1 else 1
    for start in range(0, n, together):
        for walk, labels in zip(walks, visited, strict=True):
            walk(labels[start : start + together])
    return np.concatenate(visited, axis=1)


def check_running_state(model: Model, *, seed: int = 0, n_moves: int = 3000) -> None:
    """Check the running state against the plain formula, while units move thousands of times."""
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    point = random_point(model, rng, state)
    state.load(point, state.labels(point))
    for number in range(100, n_moves + 1, 100):
        _visited(state, rng, 100)
        expected = plain_log_joint(state, point, state.found())
        np.testing.assert_allclose(
            state.log_joint(), expected, rtol=1e-9, atol=1e-8, err_msg=f"after {number} rounds"
        )


def check_law(model: Model, *, seed: int = 0, n_sweeps: int = 100_000) -> None:
    """Check how often a chain visits every assignment against its enumerated probability."""
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    point = random_point(model, rng, state)
    state.load(point, state.labels(point))
    choices = [
        [label] if fixed else range(-1 if group >= 0 else 0, len(partition.counts))
        for partition in state.partitions
        for group, fixed, label in zip(
            partition.relevance.group, partition.fixed, partition.label.copy(), strict=True
        )
    ]
    ends = np.cumsum([len(own.size) for own in state.units])[:-1]
    states = [np.array(units) for units in product(*choices)]
    logs = []
    for units in states:
        parts = zip(np.split(units, ends), state.units, strict=True)
        logs.append(plain_log_joint(state, point, [part[own.of_object] for part, own in parts]))
    law = np.exp(np.array(logs) - logsumexp(logs))
    # Places in the order of `product`, in which the last unit's labels change first.
    places = _visited(state, rng, n_sweeps) - [own[0] for own in choices]
    steps = np.cumprod([1, *(len(own) for own in choices[:0:-1])])[::-1]
    visits = np.bincount(places @ steps, minlength=len(states))
    distance = 0.5 * np.abs(visits / n_sweeps - law).sum()
    # What independent draws would have; a chain's are correlated.
    noise = 0.5 * np.sqrt(2.0 * law * (1.0 - law) / (np.pi * n_sweeps)).sum()
    if noise > 0.05:
        raise ValueError(
            f"n_sweeps: expected enough to tell laws over {len(states)} assignments apart; found "
            f"{n_sweeps}, with which the distance of the right law is {noise:.2f}"
        )
    assert distance < 2.0 * noise, (
        f"total variation between visits and the enumerated law: expected about {noise:.4f}; found "
        f"{distance:.4f}"
    )


def check_declared_density(model: Model, *, seed: int = 0, n_points: int = 5) -> None:
    r"""Check Chib's identity, what is integrated out being drawn from its conditional.

    .. math:: \log p(X, \theta \mid s) = \log p(X \mid s) + \log p(\theta \mid X, s)

    The left side is the declared model's, the right side the kind's `log_marginal` and
    `log_conditional`.
    """
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    declared = DeclaredDensity.of_component(model, state.component)
    for _ in range(n_points):
        point = random_point(model, rng, state)
        labels = state.labels(point)
        state.load(point, labels)
        new = dict(point)
        state.draw(rng, point, new)
        new = at_labels(state, new, labels)
        found = declared(new)
        expected = sum(sum(points.log_densities(new)) for points in state.points) + sum(
            evidence.log_marginal(new, labels) + evidence.log_conditional(new)
            for evidence in state.evidence
        )
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def check_draws(model: Model, *, seed: int = 0, n_draws: int = 4000) -> None:
    r"""Check draws of what is integrated out by the declared model's gradient.

    On the scale that is sampled, draws x from a density p have the means

    .. math:: E[\nabla \log p(x)] = 0, \qquad E[x\, \nabla \log p(x)^\top] = -I

    (Stein's identity), which is seen entry by entry, and along some random pairs of directions; of
    angles, :math:`E[\sin x\, \nabla \log p(x)] = -E[\cos x]`. For every entry of what is discrete,
    values that follow on one another have

    .. math:: E\left[\frac{p(x + 1)}{p(x)}\right] = \Pr(p(x - 1) > 0).
    """
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    point = random_point(model, rng, state)
    labels = state.labels(point)
    state.load(point, labels)
    every = [name for evidence in state.component.evidence for name in evidence.names]
    if not every:
        raise ValueError("model: expected parameters that are integrated out; found none")
    names = [name for name in every if model[name].dtype.startswith("float")]
    discrete = [name for name in every if name not in names]
    values = [model.rvs_to_values[model[name]] for name in names]
    slopes, _ = over_points(model, [model.dlogp([model[name] for name in names])], point)
    n_values = sum(np.size(point[value.name]) for value in values)
    one, other = rng.standard_normal((2, _DIRECTIONS, n_values)) / np.sqrt(n_values)
    drawn = []
    for _ in range(n_draws):
        drawn.append(dict(point))
        for evidence in state.evidence:
            evidence.draw(rng, point, drawn[-1])
    new = {name: np.stack([own[name] for own in drawn]) for name in point}
    (slope,) = slopes(new)
    angles = [isinstance(model.rvs_to_transforms[model[name]], CircularTransform) for name in names]
    stein = [
        _stein(new[value.name].reshape(n_draws, -1), angle)
        for value, angle in zip(values, angles, strict=True)
    ]
    x, dx = (np.concatenate(part, axis=1) for part in zip(*stein, strict=True))
    pairs = (x @ one.T) * (slope @ other.T) + dx @ (one * other).T
    moments = np.concatenate([slope, x * slope + dx, pairs, *_steps(model, new, discrete)], axis=1)
    means = np.mean(moments, axis=0)
    errors = np.std(moments, axis=0) / np.sqrt(n_draws)
    z = np.abs(means / np.maximum(errors, 1e-12))
    worst = int(np.argmax(z))
    if worst < 2 * n_values:
        where = f"entry {worst % n_values} of {names}, one variable after the other"
    elif worst < 2 * n_values + _DIRECTIONS:
        where = f"two directions of {names}"
    else:
        where = f"entry {worst - 2 * n_values - _DIRECTIONS} of {discrete}, one after the other"
    assert z.max() < 5.0, (
        f"draws of {every}: Stein's identity fails by {z.max():.1f} standard errors ({where})"
    )


def _stein(x: NDArray, angle: bool) -> tuple[NDArray, NDArray]:
    """Return a function of values that Stein's identity holds for, and its derivative."""
    return (np.sin(x), np.cos(x)) if angle else (x, np.ones_like(x))


def _steps(model: Model, points: Mapping[str, NDArray], names: Sequence[str]) -> list[NDArray]:
    """Of every entry of discrete variables, p(x + 1) / p(x) less whether p(x - 1) > 0.

    Returns
    -------
    list of (n_points, 1) arrays
    """
    if not names:
        return []
    graph = entered_density(model, [model[name] for name in names])
    log_density, _ = over_points(model, [graph], {key: x[0] for key, x in points.items()})
    (here,), found = log_density(points), []
    for name in names:
        for place in np.ndindex(points[name].shape[1:]):
            more, less = points[name].copy(), points[name].copy()
            more[:, *place] += 1
            less[:, *place] -= 1
            (above,), (below,) = (log_density({**points, name: value}) for value in (more, less))
            found.append((np.exp(above - here) - (below > -np.inf))[:, None])
    return found


def check_hyperparameters(model: Model, *, seed: int = 0, n_points: int = 5) -> None:
    """Check the factor that hyperparameters enter: it changes as the plain formula does."""
    state, rng = collapsed_of(model), np.random.default_rng(seed)
    for _ in range(n_points):
        here = random_point(model, rng, state)
        labels = state.labels(here)
        there = at_labels(state, random_point(model, rng, state), labels)
        state.load(here, labels)
        for own, declared in zip(state.evidence, state.component.evidence, strict=True):
            if declared.hyperpriors:
                found = own.log_factor(there) - own.log_factor(here)
                expected = own.log_marginal(there, labels) - own.log_marginal(here, labels)
                np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
