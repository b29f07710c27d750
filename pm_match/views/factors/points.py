"""Reads and writes points of linear factor models, and what their views say of latents there."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.reading.parts import Point
from pm_match.reading.probe import natural_function
from pm_match.views.factors.linear_factors import Array, CanonicalForm, likelihood, product
from pm_match.views.factors.recognise import Factor, FactorModel, FactorView, Intercept


@dataclass(frozen=True, eq=False)
class ViewForm:
    """What one view says of its latents, private ones of ours with their prior.

    Attributes
    ----------
    full : CanonicalForm
        Of all latents of the view, side by side, those of ours that are private times their prior.
    places : dict of int to integer array
        By the latent's number, its entries in `full`.
    private : tuple of int
        Those of ours that no other view has.
    """

    full: CanonicalForm
    places: dict[int, NDArray[np.int64]]
    private: tuple[int, ...]

    def entries(self, numbers) -> NDArray[np.int64]:
        """Return the entries of latents in `full`."""
        return np.concatenate([self.places[n] for n in numbers] or [np.empty(0, np.int64)])


class FactorPoints(Writer):
    """Reads and writes the variables of a factor model.

    Latents and loadings are read and written as (objects or features, factors), however they are
    declared.

    Parameters
    ----------
    model : pymc.Model
    part : FactorModel
    """

    def __init__(self, model: Model, part: FactorModel):
        given = [latent.name for latent in part.latents if latent.foreign]
        super().__init__(model, [*part.names, *given])
        self.part = part
        # Those of ours have no transform.
        self._given = natural_function(model, given) if given else None
        self._given_names = given

    def latents(self, point: Point) -> list[Array]:
        """Read all latents (N, k)."""
        given = {}
        if self._given is not None:
            given = dict(zip(self._given_names, self._given(point), strict=True))
        found = []
        for latent in self.part.latents:
            value = given.get(latent.name)
            value = self.read(point, latent.name) if value is None else value
            found.append(value.T if latent.transposed else value)
        return found

    def loadings(self, point: Point, view: FactorView) -> Array:
        """Read the loadings of a view side by side (D, k)."""
        return np.hstack([self.loading(point, loading) for loading in view.loadings])

    def loading(self, point: Point, loading: Factor) -> Array:
        """Read the loadings (D, k) of one latent in one view."""
        value = self.read(point, loading.name)
        return value.T if loading.transposed else value

    def write_loading(self, point: dict[str, NDArray], loading: Factor, value: Array) -> None:
        """Write the loadings (D, k) of one latent in one view into a new `point`."""
        value = np.ascontiguousarray(value.T if loading.transposed else value)
        self.write(point, {loading.name: value})

    def intercept(self, point: Point, intercept: Intercept) -> Array:
        """Read an intercept (D,)."""
        return self.read(point, intercept.name).reshape(-1)

    def write_latents(self, point: dict[str, NDArray], values: dict[int, Array]) -> None:
        """Write latents (N, k), by number, into a new `point`."""
        for number, value in values.items():
            latent = self.part.latents[number]
            value = np.ascontiguousarray(value.T if latent.transposed else value)
            self.write(point, {latent.name: value})

    def write_intercept(
        self, point: dict[str, NDArray], intercept: Intercept, value: Array
    ) -> None:
        """Write an intercept (D,) into a new `point`."""
        self.write(point, {intercept.name: value.reshape(self.read(point, intercept.name).shape)})

    def positive(self, point: Point, name: str) -> NDArray:
        """Read a positive variable, whether its log is sampled or itself."""
        value = self.read(point, name)
        return np.exp(value) if self.transformed[name] else value

    def log_positive(self, point: Point, name: str) -> NDArray:
        """Read the log of a positive variable, even where it is too small for a float."""
        value = self.read(point, name)
        return value if self.transformed[name] else np.log(value)

    def write_positive(self, point: dict[str, NDArray], name: str, log_value: NDArray) -> None:
        """Write a positive variable, given its log, into a new `point`."""
        self.write(point, {name: log_value if self.transformed[name] else np.exp(log_value)})

    def form(self, point: Point, view: FactorView) -> ViewForm:
        """Find what a view says of its latents at a point, missing values integrated out."""
        part = self.part
        ends = np.cumsum([0, *(loading.shape[1] for loading in view.loadings)])
        places = {number: np.arange(ends[n], ends[n + 1]) for n, number in enumerate(view.latents)}
        full = likelihood(
            view.table,
            self.loadings(point, view),
            view.noise(point),
            self.intercept(point, view.intercept) if view.intercept else None,
        )
        private = tuple(
            number
            for number in view.latents
            if part.private(number) and not part.latents[number].foreign
        )
        for number in private:
            full = full.with_prior(*part.latents[number].prior(point), places[number])
        return ViewForm(full, places, private)

    def shared_form(
        self, point: Point, names: list[str] | None = None
    ) -> tuple[CanonicalForm, list[ViewForm], dict[int, NDArray[np.int64]]]:
        r"""Find what all views say of the latents that are not private to one of them.

        Private latents of ours, and missing values, are integrated out: for one shared latent
        :math:`h`, :math:`\log p(x_n | h) = -h^\top A_p h / 2 + h^\top b_n`, up to a constant.

        Parameters
        ----------
        point : dict
        names : list of str, optional
            The latents that the form is to be of; others that are shared (or not ours) are given,
            at their values in the point. Default: all shared latents of ours.

        Returns
        -------
        form : CanonicalForm
            Without the latents' own priors.
        forms : list of ViewForm
            Of each view, for `draw_private`.
        places : dict of int to integer array
            By the latent's number, its entries in `form`.
        """
        part = self.part
        forms = [self.form(point, view) for view in part.views]
        private = {number for own in forms for number in own.private}
        if names is None:
            wanted = [number for number in part.own if number not in private]
        else:
            wanted = [n for n, latent in enumerate(part.latents) if latent.name in names]
        ends = np.cumsum([0, *(part.latents[number].shape[1] for number in wanted)])
        places = {number: np.arange(ends[n], ends[n + 1]) for n, number in enumerate(wanted)}
        latents = self.latents(point)
        reduced, where = [], []
        for own in forms:
            known = [n for n in own.places if n not in wanted and n not in own.private]
            form, kept = _condition(own, known, latents)
            gone = [n for n in kept if n not in wanted]
            if gone:
                entries = np.concatenate([kept[n] for n in gone])
                form = form.without(entries)
            mine = [n for n in own.places if n in wanted]
            if mine:
                reduced.append(form)
                where.append(np.concatenate([places[n] for n in mine]))
        size = int(ends[-1])
        if not reduced:
            empty = np.zeros((1, size, size)), np.zeros((part.n_objects, size))
            return CanonicalForm(*empty, np.zeros(part.n_objects, np.int64)), forms, places
        return product(reduced, where, size), forms, places

    def draw_private(
        self, rng: np.random.Generator, point: dict[str, NDArray], forms: list[ViewForm]
    ) -> None:
        """Draw private latents given all other ones at a new `point`, and write them there."""
        latents = self.latents(point)
        for own in forms:
            if not own.private:
                continue
            known = [n for n in own.places if n not in own.private]
            form, kept = _condition(own, known, latents)
            drawn = form.draw(rng)
            self.write_latents(point, {n: drawn[:, kept[n]] for n in own.private})

    def draw_missing(self, rng: np.random.Generator, point: dict[str, NDArray]) -> None:
        """Draw missing values given all else at a new `point`, and write them there."""
        latents = self.latents(point)
        for view in self.part.views:
            observed = view.table.observed
            if view.missing is None or observed is None:
                continue
            row, column = np.nonzero(~observed)
            design = np.hstack([latents[n] for n in view.latents])
            means = np.einsum("ik,ik->i", design[row], self.loadings(point, view)[column])
            if view.intercept is not None:
                means += self.intercept(point, view.intercept)[column]
            width = view.noise(point)[column] ** -0.5
            self.write(point, {view.missing: means + width * rng.standard_normal(len(row))})


def _condition(
    own: ViewForm, known: list[int], latents: list[Array]
) -> tuple[CanonicalForm, dict[int, NDArray[np.int64]]]:
    """Fix latents in a view's form at their values; return it, and where the others are in it."""
    kept = [number for number in own.places if number not in known]
    # Entries keep their order.
    order = np.sort(own.entries(kept))
    places = {number: np.searchsorted(order, own.places[number]) for number in kept}
    if not known:
        return own.full, places
    values = np.hstack([latents[number] for number in known])
    return own.full.given(own.entries(known), values), places
