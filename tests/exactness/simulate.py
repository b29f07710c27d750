"""Simulate from a declared model, and hand its steps new data."""

import numpy as np
import pymc as pm

import pm_match as pmm
from tests.tiny import inside


class Simulator:
    """A tiny declared model, its steps, and data that can be replaced without building anything
    anew.

    Prior draws come from PyMC, through the declared model: the steps are judged against it, not
    against another version of their own code.
    """

    def __init__(self, model: pm.Model, seed: int):
        self.model = model
        self.rng = np.random.default_rng(seed)
        self.steps = pmm.steps(model)
        for step in self.steps:
            step.setup_chain(self.rng, 0, 0)
            step.started = True
        self.cluster = next(s for s in self.steps if isinstance(s, pmm.ClusterGibbs))
        self.partition = inside(self.cluster)
        self.names = [
            "weights",
            "precision",
            "latent",
            *(d.assignment for d in self.partition.domains),
            *(d.projection for d in self.partition.domains),
        ]

    def prior(self, n: int) -> list[dict]:
        """Draw `n` times from the prior, and the data, keeping draws that satisfy the links."""
        draws: list[dict] = []
        observed = [d.name for d in self.partition.domains]
        variables = [self.model[name] for name in [*self.names, *observed]]
        links = self.partition.links
        while len(draws) < n:
            seed = int(self.rng.integers(2**30))
            found = pm.draw(variables, draws=max(n, 2), random_seed=seed)
            for values in zip(*found, strict=True):
                draw = dict(zip([*self.names, *observed], values, strict=True))
                labels = np.concatenate([draw[d.assignment] for d in self.partition.domains])
                draw["missing"] = [
                    np.asarray(draw[d.name])[~d.data.observed]
                    for d in self.partition.domains
                    if d.missing
                ]
                if np.array_equal(labels[links[:, 0]], labels[links[:, 1]]):
                    draws.append(draw)
        return draws[:n]

    def set_data(self, data) -> None:
        squares = 0.0
        for domain, x in zip(self.partition.domains, data, strict=True):
            seen = domain.data.observed
            domain.data.values[:] = x if seen is None else np.where(seen, x, 0.0)
            squares += np.vdot(domain.data.values, domain.data.values)
        inside(self.cluster).evidence.sum_of_squares = float(squares)

    def point(self, draw) -> dict:
        """The point of value variables for a draw (missing values as drawn with the data)."""
        point = dict(self.model.initial_point(0))
        for name in self.names:
            rv = self.model[name]
            value = self.model.rvs_to_values[rv]
            transform = self.model.rvs_to_transforms[rv]
            natural = draw[name]
            if transform is not None:
                natural = {
                    "weights": lambda w: np.log(w[:-1]) - np.log(w).mean(),
                    "precision": np.log,
                }[name](natural)
            point[value.name] = np.asarray(natural, dtype=value.dtype)
        for domain in self.partition.domains:
            if domain.missing:
                point[domain.missing] = np.asarray(draw[domain.name])[~domain.data.observed]
        return point

    def natural(self, point) -> dict:
        weights = np.exp(np.append(point["weights_simplex__"], -point["weights_simplex__"].sum()))
        draw = {name: point[name] for name in self.names[2:]}
        draw |= {
            "weights": weights / weights.sum(),
            "precision": np.exp(point["precision_log__"]),
        }
        draw["missing"] = [point[d.missing] for d in self.partition.domains if d.missing]
        return draw

    def data_given(self, draw) -> list[np.ndarray]:
        """Draw the data of every domain given everything else."""
        return [
            draw["latent"][draw[d.assignment]] @ draw[d.projection].T
            + self.rng.standard_normal(d.data.values.shape) * draw["precision"] ** -0.5
            for d in self.partition.domains
        ]

    def update(self, point) -> dict:
        for step in self.steps:
            point, _ = step.step(point)
        return point


def quantities(draw) -> dict[str, float]:
    """Label-invariant functions of a draw, and some that see labels."""
    a, b = draw["cluster_a"], draw["cluster_b"]
    w = draw["weights"]
    z, alpha = draw["latent"], float(draw["precision"])
    found = {
        "log precision": np.log(alpha),
        "precision": alpha,
        "occupied": len(set(a) | set(b)),
        "same domain": float(a[0] == a[1]),
        "match": float(a[0] == b[0]),
        "label": float(a[1] == 0),
        "last label": float(b[2] == len(w) - 1),
        "first weight": w[0],
        "squared weights": (w**2).sum(),
        "projection": draw["projection_a"][0, 0],
        "projection squared": (draw["projection_b"] ** 2).mean(),
        "latent squared": alpha * (z**2).mean(),
        "own latent squared": alpha * (z[a[0]] ** 2).sum(),
        "signal": np.sqrt(alpha) * z[b[0]] @ draw["projection_b"][0],
        "fit": np.log1p(alpha * (z[a[1]] @ draw["projection_a"][1]) ** 2),
    }
    for number, values in enumerate(draw["missing"]):
        # Values that the tiny data miss: a[0, 1] first, and b[2, 0] first.
        mean = (z[a[0]] @ draw["projection_a"][1], z[b[2]] @ draw["projection_b"][0])[number]
        found[f"missing {number}"] = np.log1p(values[0] ** 2)
        residual = np.log1p(alpha * (values[0] - mean) ** 2)
        found[f"missing {number} residual"] = residual
        # Standardised residuals do not depend on the precision.
        found[f"missing {number} scale"] = residual * np.log(alpha)
    return found
