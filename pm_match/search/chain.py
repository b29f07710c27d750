"""A chain driven by hand: what every search starts from, moves, and compares."""

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from pymc.step_methods.compound import BlockedStep

from pm_match.clusters.cluster_gibbs import ClusterGibbs
from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.clusters.units import Units
from pm_match.reading import read
from pm_match.reading.parts import Component


class Chain:
    """The steps of a model, driven by hand from a `point` of value variables.

    What none of the `steps`, which are from `pm_match.steps()`, draws stays as it is. The attribute
    `point` is the present one: always a new one, never written to. Whatever a search draws besides
    the steps is drawn by `rng`.
    """

    def __init__(
        self,
        model: Model,
        steps: Sequence[BlockedStep],
        point: Mapping[str, NDArray],
        rng: np.random.Generator,
    ):
        self.model = model
        self.steps = list(steps)
        self.point = dict(point)
        self.components: tuple[Component, ...] = read(model).components
        *own, self.rng = rng.spawn(len(self.steps) + 1)
        for step, generator in zip(self.steps, own, strict=True):
            step.setup_chain(generator, 0, 0)

    def run(self, n: int, number: int | None = None, *, n_sweeps: int = 1, fit: bool = False):
        """Take `n` iterations of the steps in turn.

        `number`: the component to run. Default: all of them. `n_sweeps`: sweeps over the clusters
        in an iteration; `fit`: whether projections that are maximised are so to the end, rather
        than gradually.
        """
        steps = self.steps_of(number)
        for step in steps:
            if step.maximises:
                step.n_gradual = 0 if fit else sys.maxsize
        given = {id(s): s.n_sweeps for s in steps if isinstance(s, ClusterGibbs)}
        try:
            for step in steps:
                if isinstance(step, ClusterGibbs):
                    step.n_sweeps = n_sweeps
            for _ in range(n):
                for step in steps:
                    self.point, _ = step.step(self.point)
        finally:
            for step in steps:
                if isinstance(step, ClusterGibbs):
                    step.n_sweeps = given[id(step)]

    def steps_of(self, number: int | None = None) -> list[BlockedStep]:
        """Return the steps that serve a component, or all of ours."""
        if number is None:
            return self.steps
        component = self.components[number]
        parts = [component, *component.evidence]
        return [s for s in self.steps if any(getattr(s, "part", None) is p for p in parts)]

    def collapsed(self, number: int) -> Collapsed:
        """Return the collapsed state of a component, which its steps share, at whatever point."""
        return Collapsed.of(self.model, self.components[number])

    def loaded(self, number: int, grouped: list[Units] | None = None) -> Collapsed:
        """Return the collapsed state at the chain's point, on request with other units."""
        state = self.collapsed(number)
        labels = state.labels(self.point)
        if grouped is not None:
            state = state.regrouped(grouped)
        state.load(self.point, labels)
        return state

    def labels(self, number: int) -> list[NDArray[np.int64]]:
        """Read the labels (N,) of every clustering of a component, -1 for irrelevant objects."""
        return self.collapsed(number).labels(self.point)

    def place(self, number: int, labels: Sequence[NDArray]) -> None:
        """Put labels (N,), -1 for irrelevant objects, of every clustering into the point.

        Labels that are known stay as they are; so does what is integrated out given the labels,
        until the next step draws it.

        Raise `ValueError` if a label is not a cluster's, or an object is irrelevant that cannot be.
        """
        new = dict(self.point)
        state = self.collapsed(number)
        for points, label in zip(state.points, labels, strict=True):
            own = points.clustering
            points.write_labels(new, own.respected(np.asarray(label)))
        self.point = new

    def settle(self, number: int | None = None) -> None:
        """Draw what is integrated out given the present labels from its exact conditional."""
        for n in range(len(self.components)) if number is None else [number]:
            state = self.loaded(n)
            new = dict(self.point)
            state.draw(self.rng, self.point, new)
            self.point = new

    def maximise_hyperparameters(self, number: int) -> None:
        """Climb the log joint in the hyperparameters of a component."""
        for step in self.steps_of(number):
            if isinstance(step, HyperparameterGibbs):
                self.point = step.maximise(self.point)

    def log_joint(self, number: int | None = None) -> float:
        """Log of what modes are compared by.

        The collapsed log joint of data, assignments and relevance, with the log density of the
        hyperparameters that our steps draw, on the scale that is sampled, and of projections that
        have a normal prior.
        """
        total = 0.0
        for n in range(len(self.components)) if number is None else [number]:
            state = self.loaded(n)
            total += state.log_joint() + state.log_prior(self.point)
            for step in self.steps_of(n):
                if isinstance(step, HyperparameterGibbs):
                    total += step.log_prior(self.point)
        return total

    def n_occupied(self) -> int:
        """Count the clusters that hold an object, of all components."""
        found = 0
        for number in range(len(self.components)):
            found += sum(len(np.unique(own[own >= 0])) for own in self.labels(number))
        return found
