"""Reads feature vectors: observed variables that are normal around projected latent vectors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.multivariate import WishartRV
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, MvNormalRV, NormalRV

from pm_match.features.emission_reader import Declared, EmissionReader, Graphs, Observed
from pm_match.features.parts import (
    FeatureDomain,
    Features,
    Isometry,
    LogNormalNumber,
    Parameter,
    Setting,
)
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.polar import polar_factor
from pm_match.reading.ancestry import RV, Refusal, a_kind, kind, names, scale, undivided
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.coarsen import powers
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, log_normal, same
from pm_match.reading.evidence import Point
from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import compiled, stand_in

# More numbers than this in one variable are not drawn one by one.
_MOST_SLICED = 100


@dataclass(frozen=True, eq=False)
class FeaturesCandidate(Declared):
    """What looks like feature vectors, by ancestry."""

    clustering: int  # the number of the clustering whose objects they are of
    # list of (variable, variable or None): what the latent vectors may be, the likeliest first,
    # each with the precision that it and all noise share, if there is one that can be integrated
    # out
    latents: list[tuple[RV, RV | None]]

    @property
    def checked(self) -> list[RV]:
        """All random variables whose declared densities are looked at."""
        return [*(latent for latent, _ in self.latents), *self.deviations, *self.rvs]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Features:
        """Hold it against the declared densities."""
        truncation = clusterings[self.clustering].truncation
        data = [_data(context, own) for own in self.observed]
        for own, domain in zip(self.observed, data, strict=True):
            n_labels = context.shapes[own.assignment.name][0]
            if n_labels != len(domain.values):
                raise Refusal(
                    f"{own.name!r} has {len(domain.values)} objects and {own.assignment.name!r} "
                    f"{n_labels} labels"
                )
        why: Refusal | None = None
        for latent, precision in self.latents:
            shape = context.shapes[latent.name]
            # A square array of latent vectors can be read both ways: the means decide.
            for flip in (flip for flip in (False, True) if shape[int(flip)] == truncation):
                n_factors = shape[int(not flip)]
                graphs = Graphs(self.observed, data, latent, flip, precision, n_factors)
                try:
                    _check_sole_use(context, graphs)
                    reader = EmissionReader(context, graphs)
                    check_emissions(context, check, graphs, reader)
                except Refusal as refusal:
                    why = why or refusal
                else:
                    return self._features(context, check, graphs, reader, truncation)
        assert why is not None
        if len(self.latents) > 1:
            raise Refusal(
                f"{names(latent for latent, _ in self.latents)} could each be the latent vectors; "
                "expected one"
            )
        raise why

    def _features(self, context, check, graphs: Graphs, reader, truncation: int) -> Features:
        parameters = parameters_of(context, check, graphs, reader)
        _check_flat(graphs, parameters)
        reader.forget(check.points, {context.key(rv) for rv in graphs.integrated})
        domains = tuple(
            FeatureDomain(
                own.name,
                own.assignment.name,
                domain,
                own.multivariate,
                own.rvs[1].name if len(own.rvs) == 2 else None,
                None if own.deviation is None else own.deviation.name,
                None if own.flag is None else own.flag.name,
                own.power,
            )
            for own, domain in zip(self.observed, graphs.data, strict=True)
        )
        return Features(
            clustering=self.clustering,
            precision=None if graphs.precision is None else graphs.precision.name,
            latent=graphs.latent.name,
            latent_transposed=graphs.transposed,
            truncation=truncation,
            n_factors=graphs.n_factors,
            domains=domains,
            parameters=parameters,
            isometries=tuple(_isometries(context, check, graphs, reader, parameters)),
            _reader=reader,
            _standard=all(e.standard for e in reader(context.start).emissions),
            _priors={
                p.name: context.normal_prior(
                    context.model[p.name], np.transpose if p.transposed else np.asarray
                )
                for p in parameters
                if p.update in ("intercept", "projection", "normal")
            },
        )


def features_candidate(
    context: Context, number: int, clustering: ClusteringCandidate, values: Sequence[RV]
) -> FeaturesCandidate | None:
    """Find the feature vectors of a clustering's objects, and refuse what are none."""
    ancestry, truncation = context.ancestry, clustering.truncation
    observed, coarse = [], powers(context, values)
    known = [v for v in values if v not in context.model.potentials]
    for assignment in clustering.assignments:
        rvs = [v for v in ancestry.children(assignment) if v in known]
        if rvs:
            observed.append(_observed(context, assignment, rvs, coarse))
    if not observed:
        return None
    observed = [replace(own, deviation=deviation_of(context, own, truncation)) for own in observed]
    declared = Declared(observed)
    rvs, deviations = declared.rvs, declared.deviations
    common = set.intersection(*(ancestry.of([own.mean]) for own in observed))
    latents = [
        rv
        for rv in context.model.free_RVs
        if rv in common
        and isinstance(rv.owner.op, NormalRV)
        and rv not in deviations
        and len(context.shapes.get(rv.name, ())) == 2
        and truncation in context.shapes[rv.name]
    ]
    if not latents:
        raise Refusal(
            f"no normal variable with one row for each of {truncation} clusters is shared by the "
            f"means of {names(rvs)}"
        )
    for rv in deviations:
        context.must_be_free(rv)
        ancestry.only_children(rv, declared.covered)
    for place, own in enumerate(observed):
        flag = clustering.flags.get(own.assignment)
        if flag is not None and flag not in ancestry.parents[own.rvs[0]]:
            raise Refusal(
                f"{own.assignment.name!r} has features ({own.name!r}), which its relevance "
                f"{flag.name!r} does not enter"
            )
        observed[place] = replace(own, flag=flag)
    discrete = [*clustering.assignments, *clustering.flags.values()]
    for rv in rvs:
        # What transforms there are is checked with the densities.
        context.must_be_plain(rv, (type(context.model.rvs_to_transforms.get(rv)),), discrete)
    apart = bool(deviations) or any(
        graph is not None for own in observed for graph in (own.flag, own.potential)
    )
    pairs = [(rv, None if apart else _shared_precision(context, rv, observed)) for rv in latents]
    # What has the precision of the noise is more likely to be the latent vectors.
    pairs.sort(key=lambda pair: pair[1] is None)
    return FeaturesCandidate(observed, number, pairs)


def feature_flags(context: Context, values: Sequence[RV]) -> dict[RV, RV]:
    """Find the relevance flags that features depend on, by assignment."""
    found = {}
    for rv in values:
        parents = context.ancestry.parents[rv]
        for assignment in parents:
            if not isinstance(assignment.owner.op, CategoricalRV):
                continue
            flags = {
                p
                for p in parents
                if isinstance(p.owner.op, BernoulliRV)
                and context.shapes.get(p.name) == context.shapes.get(assignment.name)
            }
            if len(flags) > 1:
                raise Refusal(
                    f"{rv.name!r} depends on {names(flags)}; expected one relevance variable"
                )
            if flags:
                found[assignment] = flags.pop()
    return found


def is_normal(rv: RV) -> bool:
    """Whether a variable is normal, or the observed or the missing part of one."""
    return isinstance(undivided(rv).owner.op, NormalRV | MvNormalRV)


def noise_assignments(context: Context, rv: RV) -> list[RV]:
    """Return the assignments that the noise of a normal variable depends on."""
    parents = context.ancestry.of([scale(undivided(rv))])
    return [p for p in parents if isinstance(p.owner.op, CategoricalRV)]


def _observed(
    context: Context, assignment: RV, rvs: list[RV], coarse: dict[RV, tuple[RV, float]]
) -> Observed:
    """Find the observed variable over an assignment; `coarse`: see `coarsen.powers`."""
    free = context.model.free_RVs
    for rv in rvs:
        if not is_normal(rv):
            raise Refusal(f"{rv.name!r} is {a_kind(rv)}; expected a Normal or MvNormal")
    # PyMC splits data with missing values into an observed and a free variable.
    split = len(rvs) == 2 and len({context.whole_name(rv) for rv in rvs}) == 1
    if len(rvs) > 1 and not split:
        raise Refusal(
            f"{names(rvs)} all depend on {assignment.name!r}; put the features of one "
            "assignment side by side in one observed variable"
        )
    if split:
        rvs = sorted(rvs, key=lambda rv: rv in free)
        context.ancestry.only_children(rvs[1], [])
    elif rvs[0] in free:
        raise Refusal(f"{rvs[0].name!r} is not observed")
    found = Observed.of(context, context.whole_name(rvs[0]), assignment, rvs)
    if rvs[0] not in coarse:
        return found
    potential, power = coarse[rvs[0]]
    if split:
        raise Refusal(
            f"{rvs[1].name!r} holds missing values; expected none of what is coarsened "
            f"({potential.name!r})"
        )
    return replace(found, potential=potential, power=power)


def deviation_of(context: Context, own: Observed, truncation: int) -> RV | None:
    """Find the deviations of a domain: what its mean has besides, one row for each cluster.

    They are told from a projection that happens to have the same shape by what they do: to a row's
    objects they add the row.
    """
    found = [
        p
        for p in context.ancestry.of([own.mean])
        if p is not own.assignment
        and isinstance(p.owner.op, NormalRV)
        and len(context.shapes.get(p.name, ())) == 2
        and context.shapes[p.name][0] == truncation
        and own.mean.type.shape[-1:] in ((None,), context.shapes[p.name][1:])
        and _adds_rows(context, own, p)
    ]
    if len(found) > 1:
        raise Refusal(
            f"{names(found)} could each be the deviations of {own.name!r} from its clusters' "
            "latent vectors; expected one"
        )
    return found[0] if found else None


def _adds_rows(context: Context, own: Observed, candidate: RV) -> bool:
    """Whether the mean is something plus ``candidate[assignment]``."""
    assignment = own.assignment
    labels, rows = stand_in(assignment), stand_in(candidate)
    shape = context.shapes[candidate.name]
    label = np.arange(context.shapes[assignment.name][0]) % shape[0]
    some = np.random.default_rng(1).normal(size=shape)
    try:
        stands = {assignment: labels, candidate: rows}
        function, _ = compiled(context.model, [own.mean], stands, [labels, rows])
        (zero,) = function(context.start, label, np.zeros(shape))
        (moved,) = function(context.start, label, some)
    except Exception:
        return False
    return moved.shape == some[label].shape and np.allclose(moved - zero, some[label])


def _shared_precision(context: Context, latent: RV, observed: list[Observed]) -> RV | None:
    """Find the Gamma precision that all noise and the latent vectors share, if there is one.

    It is integrated out. Whatever else they share is a parameter like others, and given.
    """
    ancestry = context.ancestry
    rvs = [rv for own in observed for rv in own.rvs]
    scales = [scale(latent), *(own.scale for own in observed)]
    tied = set.intersection(*(ancestry.of([graph]) for graph in scales))
    if len(tied) != 1:
        return None
    (precision,) = tied
    if (
        not context.is_gamma(precision)
        or context.shapes[precision.name] != ()
        or ancestry.strangers(precision, [latent, *rvs])
        or context.discrete(ancestry.parents[precision])
    ):
        return None
    powers = [-0.5, *(-1.0 if own.multivariate else -0.5 for own in observed)]
    read = context.at(scales)
    before, after = read(context.start), read(context.multiplied(context.start, precision, 2.0))
    multiples = all(
        np.allclose(new, old * 2.0**power, rtol=1e-9)
        for old, new, power in zip(before, after, powers, strict=True)
    )
    return precision if multiples else None


def _data(context: Context, own: Observed) -> MaskedTable:
    values, seen = context.table(own.rvs)
    if values.ndim != 2:
        raise Refusal(f"{own.name!r} has shape {values.shape}; expected (objects, features)")
    return MaskedTable(values, seen)


# -- what the candidates mean, by numbers ---------------------------------------------------------


def check_emissions(
    context: Context,
    check: DensityCheck,
    graphs: Graphs,
    reader: EmissionReader,
) -> None:
    """Refuse if the declared densities are not those of the settings that are read."""
    alphas = [] if graphs.precision is None else check.natural(graphs.precision)
    for number, point in enumerate(check.points):
        try:
            setting = reader(point)
        except np.linalg.LinAlgError as error:
            raise Refusal(f"the noise of {names(graphs.rvs)} is not positive definite") from error
        if graphs.precision is not None:
            setting = setting.given(float(alphas[number]))
        latent = check.value(number, graphs.latent)
        expected = log_normal(latent, 0.0, setting.latent_precision)
        if not same(check.declared(graphs.latent)[number], expected):
            raise Refusal(
                f"{graphs.latent.name!r}: its declared log density is not that of independent "
                "Normal(0, sigma) with one sigma"
            )
        for d in range(len(graphs.data)):
            _check_domain(context, check, graphs, reader, setting, number, d)


def _check_domain(
    context: Context,
    check: DensityCheck,
    graphs: Graphs,
    reader: EmissionReader,
    setting: Setting,
    number: int,
    d: int,
) -> None:
    """Refuse if the declared density of one domain is another one."""
    own, data, emission = graphs.observed[d], graphs.data[d], setting.emissions[d]
    deviation, flag = own.deviation, own.flag
    point, latent = check.points[number], check.value(number, graphs.latent)
    label = check.value(number, own.assignment)
    latent = latent.T if graphs.transposed else latent
    centre = latent @ emission.projection[:, : graphs.n_factors].T
    if deviation is not None:
        drawn = check.value(number, deviation)
        centre = centre + drawn
        tau = np.asarray(setting.spreads[d]) ** -2.0
        if not same(check.declared(deviation)[number], log_normal(drawn, 0.0, tau)):
            raise Refusal(
                f"{deviation.name!r}: its declared log density is not that of independent "
                "Normal(0, sigma)"
            )
    seen = np.ones(data.values.shape, bool) if data.observed is None else data.observed
    values = data.values.copy()
    if len(own.rvs) == 2:
        values[~seen] = np.ravel(check.value(number, own.rvs[1]))
    logs = emission.log_noise(MaskedTable(values - centre[label]))
    background = reader.background(d, point)
    if background is not None:
        assert flag is not None
        others = dict(point)
        for v in graphs.integrated:
            others[context.key(v)] = np.zeros_like(point[context.key(v)])
        alone = background.log_density(MaskedTable(values))
        without = reader.background(d, others)
        assert without is not None
        if not same(alone, without.log_density(MaskedTable(values))):
            raise Refusal(
                f"{own.name!r}: objects that are irrelevant by {names([flag])} still depend on "
                "their cluster"
            )
        logs = np.where(check.value(number, flag) > 0, logs, alone)
    declared = [check.declared(rv)[number] for rv in own.rvs]
    if not same(own.by_object(declared, seen), logs):
        raise Refusal(
            f"{own.name!r}: its declared log density is not that of a normal around the "
            f"projected vectors {graphs.latent.name!r} of its objects' clusters"
        )


def _check_sole_use(context: Context, graphs: Graphs) -> None:
    """Refuse latent vectors that cannot be integrated out."""
    context.must_be_plain(graphs.latent, (), ())
    context.ancestry.only_children(graphs.latent, graphs.covered)
    context.must_be_free(graphs.latent)


def _check_flat(graphs: Graphs, parameters: Sequence[Parameter]) -> None:
    """Refuse flat projections that cannot be found, all of them together."""
    flat = {p.domain: p.name for p in parameters if p.update == "flat"}
    for d, own in enumerate(graphs.observed if flat else []):
        if d not in flat:
            raise Refusal(
                f"{min(flat.values())!r} is flat, and flat projections are found together, all or "
                f"none; that of {own.name!r} is not"
            )
        if own.multivariate and graphs.data[d].observed is not None:
            raise Refusal(
                f"{flat[d]!r} is flat; where values are missing and the noise of features is "
                "dependent, expected projections with a proper prior"
            )


def parameters_of(
    context: Context, check: DensityCheck, graphs: Graphs, reader: EmissionReader
) -> tuple[Parameter, ...]:
    """Find the free variables that emissions depend on, and say how each is drawn."""
    ancestry, model = context.ancestry, context.model
    known = {graphs.precision, *graphs.integrated, *(own.flag for own in graphs.observed)}
    home = {graphs.latent, *graphs.covered, *graphs.deviations}
    entering: set[RV] = set().union(*(ancestry.parents[rv] for rv in home)) - known
    found = []
    for rv in model.free_RVs:
        if rv not in entering or rv in home:
            continue
        if set(ancestry.children(rv)) - home or _discrete_parents(context, rv):
            if kind(rv) == "Flat":
                raise Refusal(
                    f"{rv.name!r} is flat, and more than the features of one domain depends on it; "
                    "expected a proper prior"
                )
            continue
        parameter = _parameter(context, check, graphs, reader, rv)
        if parameter is not None:
            found.append(parameter)
    taken = {rv.name for rv in known | home if rv is not None}
    served = {p.name for p in found}
    return (*found, *_hyperparameters(context, served, taken))


def _hyperparameters(context: Context, served: set[str], taken: set[str]) -> list[Parameter]:
    """Find the free variables that only the priors of variables `served` by a step depend on.

    Those `taken` are not considered.
    """
    model, ancestry = context.model, context.ancestry
    found = []
    for rv in model.free_RVs:
        children = ancestry.children(rv)
        if (
            children
            and rv.name not in taken | served
            and not _discrete_parents(context, rv)
            and _number_by_number(context, rv)
            and all(child.name in served for child in children)
            and not any(rv in _moved_by(context, child) for child in children)
        ):
            found.append(Parameter(rv.name, "prior", -1))
    return found


def _discrete_parents(context: Context, rv: RV) -> bool:
    """Whether a variable or what it depends on is discrete."""
    return any(not v.dtype.startswith("float") for v in (rv, *context.ancestry.parents[rv]))


def _number_by_number(context: Context, rv: RV) -> bool:
    """Whether the numbers of a variable can be drawn one by one, on the scale that is sampled."""
    op = rv.owner.op
    free = context.transformed(rv) or isinstance(op, MvNormalRV) or getattr(op, "ndim_supp", 1) == 0
    return free and context.start[context.key(rv)].size <= _MOST_SLICED


def _moved_by(context: Context, rv: RV) -> set[RV]:
    """Return what a variable's natural value depends on besides the value that is sampled."""
    transform = context.model.rvs_to_transforms[rv]
    if transform is None:
        return set()
    value = context.model.rvs_to_values[rv]
    return context.ancestry.of([transform.backward(value, *rv.owner.inputs)])


def _parameter(context, check, graphs: Graphs, reader, rv) -> Parameter | None:
    """Say which draw a parameter gets; None if it is none of ours."""
    plain = not context.transformed(rv)
    flat, normal = kind(rv) == "Flat", isinstance(rv.owner.op, NormalRV)
    homes = [
        d
        for d, own in enumerate(graphs.observed)
        if any(rv in context.ancestry.parents[o] for o in own.rvs)
    ]
    own = {o for d in homes for o in graphs.observed[d].covered}
    alone = len(homes) == 1 and not set(context.ancestry.children(rv)) - own
    if alone:
        (d,) = homes
        emissions = [reader(point).emissions[d] for point in check.points]
        pairs = [*zip(check.natural(rv), emissions, strict=True)]
        k, only = graphs.n_factors, partial(_moves_only, context, check, reader, d, rv)
        equal = all(np.array_equal(v, e.intercept) for v, e in pairs)
        if plain and normal and equal and only("intercept"):
            return Parameter(rv.name, "intercept", d)
        if plain and (normal or flat):
            for flip in (False, True):
                if all(_same_matrix(v, e.projection[:, :k], flip) for v, e in pairs) and only(
                    "projection"
                ):
                    return Parameter(rv.name, "flat" if flat else "projection", d, flip)
        if (
            graphs.precision is None
            and isinstance(rv.owner.op, WishartRV)
            and all(v.shape == e.precision.shape and same(v, e.precision) for v, e in pairs)
            and only("root")
        ):
            return Parameter(rv.name, "wishart", d)
    if flat:
        raise Refusal(
            f"{rv.name!r} is flat, and it is not just the projection of one domain; expected a "
            "proper prior"
        )
    if plain and normal:
        return Parameter(rv.name, "normal", -1)
    return Parameter(rv.name, "slice", -1) if _number_by_number(context, rv) else None


def _same_matrix(value: NDArray, projection: NDArray, flip: bool) -> bool:
    if value.ndim != 2 or (value.T if flip else value).shape != projection.shape:
        return False
    return bool(np.allclose(value.T if flip else value, projection, rtol=1e-12))


def _moves_only(
    context: Context,
    check: DensityCheck,
    reader: EmissionReader,
    d: int,
    rv: RV,
    what: str,
    fits: Callable[..., bool] = lambda *_: True,
) -> bool:
    """Whether nothing depends on a variable but one part of a domain, and that as it should.

    `fits` says so of the old and the new value of the variable and of the part. Its numbers are
    moved by different amounts: something may depend on their differences.
    """
    key, rng = context.key(rv), np.random.default_rng(1)
    for point in check.points:
        value = np.asarray(point[key])
        moved = np.asarray(value + 0.1 * rng.standard_normal(value.shape))
        old, new = _parts(reader, point), _parts(reader, point | {key: moved})
        own, other = old.pop((what, d), None), new.pop((what, d), None)
        if own is None or not fits(value, moved, own, other):
            return False
        for part, still in old.items():
            # A projection is what is left when an intercept is taken away: up to rounding.
            rounding = 1e-9 if part[0] in ("intercept", "projection") else 0.0
            if not np.allclose(still, new[part], rtol=1e-9, atol=rounding):
                return False
    return True


def _parts(reader: EmissionReader, point: Point) -> dict[tuple[str, int], NDArray]:
    """Read all that features depend on, by what it is and the number of the domain."""
    setting, k = reader(point), reader.graphs.n_factors
    found = {("latent", -1): np.asarray(setting.latent_precision)}
    for d, (emission, spread) in enumerate(zip(setting.emissions, setting.spreads, strict=True)):
        found["intercept", d], found["root", d] = emission.intercept, emission.root
        found["projection", d] = emission.projection[:, :k]
        if spread is not None:
            found["spread", d] = spread
        background = reader.background(d, point)
        if background is not None:
            found["mean", d], found["background", d] = background.mean, background.root
    return found


# -- projections that keep distances --------------------------------------------------------------


def _isometries(
    context: Context, check: DensityCheck, graphs: Graphs, reader: EmissionReader, parameters
) -> Iterator[Isometry]:
    """Find the domains whose projection is a scale times the polar factor of a normal variable."""
    if graphs.precision is not None:
        return
    for d, data in enumerate(graphs.data):
        shape = data.values.shape[1], graphs.n_factors
        if shape[0] < shape[1]:
            continue
        moving = partial(_moves_only, context, check, reader, d)
        for p in parameters:
            rv = context.model[p.name]
            if (
                p.update == "normal"
                and context.start[context.key(rv)].shape == shape
                and _is_spherical(context, check, rv)
                and moving(rv, "projection", _keeps_scale)
            ):
                numbers: dict[str, LogNormalNumber | None] = {}
                for other in parameters:
                    number = _log_normal_number(context, other)
                    for what in () if number is None else ("projection", "spread"):
                        if moving(context.model[other.name], what, _multiplies):
                            numbers[what] = number
                yield Isometry(d, p, numbers.get("projection"), numbers.get("spread"))
                break


def _is_spherical(context: Context, check: DensityCheck, rv: RV) -> bool:
    """Whether the entries of a normal variable are independent, with mean 0 and one variance."""
    read = context.normal_prior(rv, np.asarray)
    moments = [read(point) for point in check.points]
    return all(not mean.any() and (tau == tau.flat[0]).all() for mean, tau in moments)


def _log_normal_number(context: Context, parameter: Parameter) -> LogNormalNumber | None:
    """Return a number whose value is normal with a known mean and variance; None if it is not."""
    rv = context.model[parameter.name]
    value = context.start[context.key(rv)]
    if parameter.update != "slice" or value.shape or context.ancestry.parents[rv]:
        return None
    density = log_density_function(context.model, parameter.name)
    at = np.array([-1.0, 0.0, 1.0, -2.3, 3.1, -0.4])
    found = np.array([density({context.key(rv): np.asarray(x)}) for x in at])
    if not np.isfinite(found).all():
        return None
    quadratic, slope = (found[2] + found[0]) / 2.0 - found[1], (found[2] - found[0]) / 2.0
    if quadratic >= 0.0 or not same(found, found[1] + slope * at + quadratic * at**2):
        return None
    return LogNormalNumber(parameter.name, -0.5 * slope / quadratic, -2.0 * quadratic)


def _keeps_scale(value: NDArray, moved: NDArray, own: NDArray, other: NDArray) -> bool:
    """Whether W is the same number times the polar factor at both values."""
    number = np.linalg.norm(own) / np.sqrt(own.shape[1])
    pairs = (value, own), (moved, other)
    return all(np.allclose(w, number * polar_factor(a), atol=1e-9 * number) for a, w in pairs)


def _multiplies(value: NDArray, moved: NDArray, own: NDArray, other: NDArray) -> bool:
    """Whether what depends on a number is multiplied by its exponential; spreads are all equal."""
    alike = own.ndim > 1 or (own == own.flat[0]).all()
    return bool(alike) and np.allclose(other, own * np.exp(moved - value), rtol=1e-9)
