"""Models of views with labels under a hinge, whose data and labels are drawn anew."""

import numpy as np

import pm_match as pmm
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hinge import fourier_values
from pm_match.views.hinge.recognise import HingeModel
from tests.exactness.simulate import ModelSimulator, look_away


def log_weights(scores, classes, C):
    """Log pseudo-likelihood of every label (N, labels), from scores (N, K)."""
    upper = -2.0 * C * np.maximum(0.0, 1.0 - scores)
    lower = -2.0 * C * np.maximum(0.0, 1.0 + scores)
    if classes:
        return upper + lower.sum(axis=1, keepdims=True) - lower
    return np.concatenate([lower, upper], axis=1)


class ViewsSimulator(ModelSimulator):
    """A tiny max-margin model, its steps, and data that can be replaced.

    Prior times pseudo-likelihood is a measure on parameters and labels together. Draws from the
    prior, with labels from the pseudo-likelihood normalised over them, have it with the normaliser
    as their weight. So every step, by itself, must leave weighted means as they are.
    """

    # What is missing is drawn by the steps.
    missing = ()

    def __init__(self, model, seed: int, n_leapfrog: int = 0):
        self.model, self.rng = model, np.random.default_rng(seed)
        leaps = pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_leapfrog=n_leapfrog)
        self.steps = [leaps if type(s) is type(leaps) else s for s in pmm.steps(model)]
        for step in self.steps:
            step.setup_chain(self.rng, 0, 0)
            step.started = True
        look_away(*self.steps)
        parts = [step.part for step in self.steps]
        (self.factors,) = [part for part in parts if isinstance(part, FactorModel)]
        self.hinge = next(part for part in parts if isinstance(part, HingeModel))
        self.known = self.hinge.labels.any(axis=1)
        observed = [f"{v.name}_observed" if v.missing else v.name for v in self.factors.views]
        self._compile([model[name] for name in (*observed, "label")], seed)

    def step(self, kind):
        """Return the step of a kind."""
        (found,) = [step for step in self.steps if isinstance(step, kind)]
        return found

    def start(self):
        """Draw from the prior, and data; return the draw and the log of its weight."""
        draw = dict(zip(self.names, self._prior(), strict=True))
        *views, codes = self.data(draw)
        for view, x in zip(self.factors.views, views, strict=True):
            seen = ... if view.table.observed is None else view.table.observed
            view.table.values[seen] = x
        columns = self.hinge.labels.shape[1]
        signs = (
            codes[:, None] if columns == 1 else 2.0 * (codes[:, None] == np.arange(columns)) - 1.0
        )
        self.hinge.labels[:] = np.where(self.known[:, None], signs, 0.0)
        for step in self.steps:
            own = getattr(step, "_points", None)
            if hasattr(own, "labels"):
                own.labels[:] = self.hinge.labels[own.rows]
        logs = log_weights(self._scores(draw), columns > 1, self.hinge.C({}))
        return draw, np.logaddexp.reduce(logs[self.known], axis=1).sum()

    def _scores(self, draw):
        beta = draw["coefficients"].reshape(-1, self.hinge.labels.shape[1])
        return fourier_values(draw["latent"], draw["frequencies"]) @ beta

    def quantities(self, draw) -> dict[str, float]:
        """Moments of every variable, how they go together, and what labels say."""
        found = {}
        for name in self.names:
            x = np.asarray(draw[name], float)
            found[f"{name} mean"] = np.arcsinh(x).mean()
            found[f"{name} spread"] = np.log1p(np.square(x)).mean()
        h, scores, labels = draw["latent"], self._scores(draw), self.hinge.labels
        angles = h @ draw["frequencies"].T
        margins = labels * scores
        found["loss"] = np.tanh(np.maximum(0.0, 1.0 - margins)[self.known]).mean()
        found["margins"] = np.tanh(margins).mean()
        found["squared scores"] = np.log1p(np.square(scores)).mean()
        found["angles"] = np.log1p(np.square(angles)).mean()
        for n in range(len(h)):
            found[f"score {n}"] = np.tanh(scores[n, 0])
            found[f"score {n}, h"] = np.tanh(scores[n, 0]) * np.arcsinh(h[n, 0])
            found[f"h square {n}"] = np.log1p(h[n] @ h[n])
        for view in self.factors.views:
            w, a = draw[f"projection_{view.name}"], draw[f"intercept_{view.name}"]
            r, tau = draw[f"column_precision_{view.name}"], draw[f"precision_{view.name}"]
            signal = h @ w.T
            if f"private_{view.name}" in draw:
                private = draw[f"private_latent_{view.name}"] @ draw[f"private_{view.name}"].T
                found[f"{view.name} both"] = np.tanh(signal * private).mean()
                signal = signal + private
            residuals = np.sqrt(tau) * view.table.residuals(signal + a)
            found[f"{view.name} signal"] = np.log1p(np.square(signal)).mean()
            found[f"{view.name} residuals"] = np.log1p(np.square(residuals)).mean()
            found[f"{view.name} fit"] = np.arcsinh(np.mean(view.table.residuals(a) * signal))
            found[f"{view.name} columns"] = np.log1p(r * np.square(w)).mean()
            if view.missing:
                gone = ~view.table.observed
                hole = (draw[view.missing] - (signal + a)[gone]) * np.sqrt(tau)
                found[f"{view.name} missing"] = np.arcsinh(hole).mean()
                found[f"{view.name} missing spread"] = np.log1p(np.square(hole)).mean()
        component, precision = draw["component"], draw["component_precision"]
        away = draw["frequencies"] - draw["component_mean"][component]
        found["away"] = np.tanh(away).mean()
        spread = np.einsum("ja,jab,jb->j", away, precision[component], away)
        found["spread in components"] = np.log1p(spread).mean()
        found["components"] = np.linalg.slogdet(precision)[1].mean()
        found["occupied"] = len(np.unique(component))
        return {name: float(value) for name, value in found.items()}

    def scores(self, n: int, moves: dict, n_updates: int = 1) -> dict:
        """Standardised mean changes of all quantities by some moves, each from `n` exact draws.

        Parameters
        ----------
        n : int
        moves : dict
            From names to functions that take a point to another one.
        n_updates : int

        Returns
        -------
        dict
            From a move and a quantity to Student's t, of what changed at all.
        """
        changes: dict = {}
        for _ in range(n):
            draw, log_weight = self.start()
            before, start = self.quantities(draw), self.point(draw)
            for name, move in moves.items():
                point = start
                for _ in range(n_updates):
                    point = move(point)
                after = self.quantities(self.natural(point))
                for of in before:
                    change = np.exp(log_weight) * (after[of] - before[of])
                    changes.setdefault((name, of), []).append(change)
        return {
            name: np.sum(own) / np.sqrt(np.square(own).sum())
            for name, own in changes.items()
            if np.abs(own).max() > 1e-9
        }
