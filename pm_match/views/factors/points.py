"""Reads and writes points of linear factor models, and what their views say of latents there."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.reading.densities import log_gamma, log_normal
from pm_match.reading.parts import Point
from pm_match.views.factors.linear_factors import (
    Array,
    CanonicalForm,
    draw_shift,
    likelihood,
    product,
    summed_to,
)
from pm_match.views.factors.recognise import Factor, FactorModel, FactorView


@dataclass(frozen=True, eq=False)
class LatentForm:
    """A form of several latents, side by side."""

    form: CanonicalForm
    sizes: dict[int, int]  # by the latent's number, in order: the lengths of its vectors

    @classmethod
    def product(cls, forms: Sequence["LatentForm"], sizes: dict[int, int]) -> "LatentForm":
        """Multiply forms of some of the latents that have these `sizes`."""
        where = [_entries(sizes, own.sizes) for own in forms]
        return cls(product([own.form for own in forms], where, sum(sizes.values())), sizes)

    def given(self, values: dict[int, Array]) -> "LatentForm":
        """Fix latents at their values (N, k); a form of the others."""
        if not values:
            return self
        own, held = _entries(self.sizes, values), np.hstack([*values.values()])
        return LatentForm(self.form.given(own, held), self._others(values))

    def without(self, numbers: Collection[int]) -> "LatentForm":
        """Integrate latents out, under whose form they must have a density."""
        if not numbers:
            return self
        own = _entries(self.sizes, numbers)
        return LatentForm(self.form.without(own), self._others(numbers))

    def _others(self, numbers: Collection[int]) -> dict[int, int]:
        return {n: size for n, size in self.sizes.items() if n not in numbers}

    def with_prior(self, number: int, prior: tuple[Array, Array]) -> "LatentForm":
        """Multiply by the independent normal densities of a latent: its means and precisions."""
        own = _entries(self.sizes, [number])
        return LatentForm(self.form.with_prior(*prior, own), self.sizes)

    def draw(self, rng: np.random.Generator) -> dict[int, Array]:
        """Draw the latents (N, k) from the densities that the form is proportional to."""
        drawn = self.form.draw(rng)
        return {number: drawn[:, _entries(self.sizes, [number])] for number in self.sizes}


def _entries(sizes: dict[int, int], numbers: Iterable[int]) -> NDArray[np.int64]:
    """Find the entries of some latents among those that have these `sizes`."""
    end = dict(zip(sizes, np.cumsum([*sizes.values()]), strict=True))
    return np.concatenate([np.arange(end[n] - sizes[n], end[n]) for n in numbers])


# What one view says of its latents, and those of ours that no other view has, whose prior is in it.
ViewForm = tuple[LatentForm, list[int]]


class FactorPoints(Writer):
    """Reads and writes the variables of a factor model.

    Latents and loadings are read and written as (objects or features, factors), however they are
    declared.
    """

    def __init__(self, model: Model, part: FactorModel):
        given = [latent.name for latent in part.latents if latent.foreign]
        super().__init__(model, [*part.names, *given])
        self.part = part

    def latents(self, point: Point) -> list[Array]:
        """Read all latents (N, k)."""
        # Those of ours have no transform.
        return [
            latent.value(point) if latent.foreign else self.factor(point, latent)
            for latent in self.part.latents
        ]

    def factor(self, point: Point, factor: Factor) -> Array:
        """Read latents (N, k), the loadings (D, k) of one latent, or an intercept (D, 1)."""
        return factor.arranged(self.read(point, factor.name))

    def write_factor(self, point: dict[str, NDArray], factor: Factor, value: Array) -> None:
        """Write what `factor` reads into a new `point`."""
        self.write(point, {factor.name: factor.as_declared(value)})

    def write_latents(self, point: dict[str, NDArray], values: dict[int, Array]) -> None:
        """Write latents (N, k), by number, into a new `point`."""
        for number, value in values.items():
            self.write_factor(point, self.part.latents[number], value)

    def loadings(self, point: Point, view: FactorView) -> Array:
        """Read the loadings of a view side by side (D, k)."""
        return np.hstack([self.factor(point, loading) for loading in view.loadings])

    def intercept(self, point: Point, view: FactorView) -> Array:
        """Read the intercept (D,) of a view, zeros if it has none."""
        if view.intercept is None:
            return np.zeros(view.table.values.shape[1])
        return self.factor(point, view.intercept)[:, 0]

    def exchange_centre(
        self,
        rng: np.random.Generator,
        point: dict[str, NDArray],
        number: int,
        latents: Array,
        prior: tuple[Array, Array],
    ) -> Array | None:
        """Draw how far `latents` (N, k) move, and write the intercepts that take it back.

        Return (k,) or None: what is to be added to the latents; None if a view that they enter has
        no intercept.
        """
        entered = [
            (self.part.views[v].intercept, self.factor(point, loading))
            for (v, _), loading in self.part.entered(number).items()
        ]
        shifted = [(own, w) for own, w in entered if own is not None]
        if len(shifted) < len(entered):
            return None
        columns = [(w, self.factor(point, own), own.prior(point)) for own, w in shifted]
        c = draw_shift(
            rng, latents, prior, [(w, a[:, 0], (m[:, 0], p[:, 0])) for w, a, (m, p) in columns]
        )
        for (own, _), (w, old, _) in zip(shifted, columns, strict=True):
            self.write_factor(point, own, old - (w @ c)[:, None])
        return c

    def exchange_scale(
        self,
        point: dict[str, NDArray],
        number: int,
        prior: tuple[Array, Array],
        draw: Callable[[Array, Array], Array],
    ) -> None:
        r"""Exchange the scale of latents with their loadings and the precisions of these.

        Given :math:`r`, a column of many loadings has little choice in its length, and given
        these, :math:`r` has little. But :math:`(e^t z, e^{-t} w, e^{2t} r)` changes neither the
        likelihood nor the density of :math:`\sqrt r w`. Along the orbits of these scalings, by the
        theorem that `numerics.rescale` names, :math:`\log p(t) = e t - \tfrac12 q e^{2t}`, with

        .. math:: e = N + 2 \sum_r a_r, \qquad q = \sum_n \tau_n z_n^2 + 2 \sum_r b_r r.

        Nothing is done unless latents and loadings are around zero, with such precisions.

        `point`: a new one; `number`: of the latents; `prior`, pair of (N, k): mean and precision of
        the latents; `draw`: from q and e, each (k,) or (1,) of one scale for all factors, to t.
        """
        loadings, precisions = self.part.scaled_with(number)
        mean, precision = prior
        if not precisions or mean.any() or any(own.prior(point)[0].any() for own in loadings):
            return
        latent = self.part.latents[number]
        z = self.factor(point, latent)
        logs = [self.read_log(point, own.name) for own in precisions]
        # One precision of several columns: these keep their proportions.
        shape = (z.shape[1] if all(log.size == z.shape[1] for log in logs) else 1,)
        quadratic = summed_to((precision * z**2).sum(axis=0), shape)
        exponent = np.full(shape, z.size / shape[0])
        for own, log in zip(precisions, logs, strict=True):
            a, b = own.prior(point)
            exponent = exponent + 2.0 * summed_to(a.reshape(-1), shape)
            quadratic = quadratic + 2.0 * summed_to((b * np.exp(log)).reshape(-1), shape)
        t = draw(quadratic, exponent)
        self.write_factor(point, latent, z * np.exp(t))
        for loading in loadings:
            self.write_factor(point, loading, self.factor(point, loading) * np.exp(-t))
        for own, log in zip(precisions, logs, strict=True):
            moved = t.reshape(own.shape) if log.size == t.size else t
            self.write_positive(point, own.name, log + 2.0 * moved)

    def log_densities(self, point: Point) -> list[float]:
        """Log densities of all views, missing values and variables of ours at a point."""
        part, latents, found = self.part, self.latents(point), []
        for view in part.views:
            design = np.hstack([latents[n] for n in view.latents])
            means = design @ self.loadings(point, view).T + self.intercept(point, view)
            values = view.table.filled(self.read(point, view.missing) if view.missing else np.nan)
            found.append(log_normal(values, means, view.noise(point)).sum())
        free = [part.latents[number] for number in part.own]
        for factor in [*free, *(own for view in part.views for own in view.factors)]:
            found.append(log_normal(self.factor(point, factor), *factor.prior(point)).sum())
        for precision in part.precisions:
            log = self.read_log(point, precision.name)
            found.append(log_gamma(log, *precision.prior(point)).sum())
        return [float(own) for own in found]

    def view_form(self, point: Point, view: FactorView) -> LatentForm:
        """Find what a view says of its latents at a point, missing values integrated out."""
        sizes = {n: own.shape[1] for n, own in zip(view.latents, view.loadings, strict=True)}
        intercept = self.intercept(point, view) if view.intercept else None
        given = view.table, self.loadings(point, view), view.noise(point), intercept
        return LatentForm(likelihood(*given), sizes)

    def shared_form(
        self, point: Point, names: list[str] | None = None
    ) -> tuple[LatentForm, list[ViewForm]]:
        r"""Find what all views say of the latents that are not private to one of them.

        Private latents of ours, and missing values, are integrated out: for one shared latent
        :math:`h`, :math:`\log p(x_n | h) = -h^\top A_p h / 2 + h^\top b_n`, up to a constant.

        `names`: the latents that the form is to be of; others that are shared (or not ours) are
        given, at their values in the point. Default: all shared latents of ours. Return the form,
        without the latents' own priors, and that of each view, for `draw_private`.
        """
        part = self.part
        forms: list[ViewForm] = []
        for view in part.views:
            own = [n for n in view.latents if part.private(n) and not part.latents[n].foreign]
            form = self.view_form(point, view)
            for number in own:
                form = form.with_prior(number, part.latents[number].prior(point))
            forms.append((form, own))
        if names is None:
            wanted = [n for n in part.own if not part.private(n)]
        else:
            wanted = [n for n, latent in enumerate(part.latents) if latent.name in names]
        latents, reduced = self.latents(point), []
        for form, private in forms:
            if form.sizes.keys().isdisjoint(wanted):
                continue
            known = {n: latents[n] for n in form.sizes if n not in wanted and n not in private}
            reduced.append(form.given(known).without([n for n in private if n not in wanted]))
        sizes = {n: part.latents[n].shape[1] for n in wanted}
        if reduced:
            return LatentForm.product(reduced, sizes), forms
        size, n = sum(sizes.values()), part.n_objects
        empty = CanonicalForm(np.zeros((1, size, size)), np.zeros((n, size)), np.zeros(n, np.int64))
        return LatentForm(empty, sizes), forms

    def draw_private(
        self, rng: np.random.Generator, point: dict[str, NDArray], forms: list[ViewForm]
    ) -> None:
        """Draw private latents given all other ones at a new `point`, and write them there."""
        latents = self.latents(point)
        for form, private in forms:
            if private:
                known = {n: latents[n] for n in form.sizes if n not in private}
                self.write_latents(point, form.given(known).draw(rng))

    def draw_missing(self, rng: np.random.Generator, point: dict[str, NDArray]) -> None:
        """Draw missing values given all else at a new `point`, and write them there."""
        latents = self.latents(point)
        for view in self.part.views:
            if view.missing is None:
                continue
            row, column = view.table.holes
            design = np.hstack([latents[n] for n in view.latents])
            means = np.einsum("ik,ik->i", design[row], self.loadings(point, view)[column])
            means += self.intercept(point, view)[column]
            width = view.noise(point)[column] ** -0.5
            self.write(point, {view.missing: means + width * rng.standard_normal(len(row))})
