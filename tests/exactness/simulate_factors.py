"""Factor models whose data are drawn anew."""

import numpy as np

import pm_match as pmm
from tests.exactness.simulate import ModelSimulator, look_away


class FactorSimulator(ModelSimulator):
    """A tiny factor model, its step, and data that can be replaced.

    What the step does not draw stays as it was drawn from the prior.
    """

    # What is missing is drawn by the step.
    missing = ()

    def __init__(self, model, seed: int):
        self.model, self.rng = model, np.random.default_rng(seed)
        self.steps = pmm.steps(model)
        (self.step,) = self.steps
        self.step.setup_chain(self.rng, 0, 0)
        look_away(self.step)
        self.views = self.step.part.views
        observed = [f"{v.name}_observed" if v.missing else v.name for v in self.views]
        others = [rv for rv in model.observed_RVs if rv.name not in observed]
        # What else is observed is drawn too, but no draw is given it.
        assert all(rv.name == "score" for rv in others)
        self._compile([model[name] for name in observed], seed)

    def prior(self, n: int) -> list[dict]:
        return [dict(zip(self.names, self._prior(), strict=True)) for _ in range(n)]

    def new_data(self, draw) -> None:
        found = self._data(*(np.asarray(draw[name]) for name in self.names))
        for view, x in zip(self.views, found, strict=True):
            if view.table.observed is None:
                view.table.values[:] = x
            else:
                view.table.values[view.table.observed] = x

    def quantities(self, draw) -> dict[str, float]:
        """Moments of every variable, how they go together, and how the views are explained."""
        found, heads = {}, {}
        for name in self.names:
            x = np.asarray(draw[name], float)
            found[f"{name} spread"] = np.log1p(np.square(x)).mean()
            found[f"{name} mean"] = np.arcsinh(x).mean()
            heads[name] = np.arcsinh(x.ravel()[0])
        names = list(heads)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                found[f"{one}, {other}"] = heads[one] * heads[other]
        points = self.step._points
        point = self.point(draw)
        latents = points.latents(point)
        for view in self.views:
            design = np.hstack([latents[n] for n in view.latents])
            means = design @ points.loadings(point, view).T
            found[f"{view.name} signal"] = np.log1p(np.square(means)).mean()
            if view.intercept is not None:
                means = means + points.intercept(point, view)
            residuals = view.table.residuals(means) * np.sqrt(view.noise(point))
            found[f"{view.name} residuals"] = np.log1p(np.square(residuals)).mean()
            found[f"{view.name} fit"] = np.arcsinh((view.table.values * means).mean())
        return {name: float(value) for name, value in found.items()}
