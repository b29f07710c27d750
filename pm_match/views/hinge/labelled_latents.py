"""Finds latent vectors of linear factor models that hinges score by their Fourier features."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytensor.tensor.random.basic import NormalRV

from pm_match.reading.ancestry import Refusal, a_kind, names, read_each, scale
from pm_match.reading.context import Context, Prior
from pm_match.reading.parts import Part
from pm_match.views.factors.recognise import Factor, FactorModel
from pm_match.views.hinge import read_hinge
from pm_match.views.hinge.recognise import HingeModel


@dataclass(frozen=True, eq=False)
class LabelledLatent(Part):
    """Latent vectors that views see linearly, and labels through random Fourier features."""

    name: str  # the latent vectors, a variable of shape (N, m)
    factors: FactorModel  # of the views
    hinges: tuple[HingeModel, ...]
    # from a point to mean and precision (N, m) of the independent normal prior
    prior: Prior = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The free variables that our steps draw for it."""
        return [self.name]


def labelled_latents(
    context: Context, parts: Sequence[Part]
) -> tuple[list[LabelledLatent], dict[str, str]]:
    """Join factor models and hinges by the latent vectors that both have.

    Return `parts`; `refused`: by latent variable, why it is left to PyMC.
    """
    hinges = [part for part in parts if isinstance(part, HingeModel)]
    shared = [
        (factors, latent)
        for factors in parts
        if isinstance(factors, FactorModel)
        for latent in factors.latents
        if latent.foreign
        and any(read_hinge(v) for v in context.ancestry.children(context.model[latent.name]))
    ]
    return read_each(
        shared, lambda own: _labelled(context, *own, hinges), lambda own: [own[1].name]
    )


def _labelled(
    context: Context, factors: FactorModel, latent: Factor, hinges: Sequence[HingeModel]
) -> LabelledLatent:
    rv = context.model[latent.name]
    if not isinstance(rv.owner.op, NormalRV):
        raise Refusal(f"{rv.name!r} is {a_kind(rv)}; expected a Normal")
    context.must_be_plain(rv, ())
    if latent.transposed:
        raise Refusal(f"{rv.name!r} has one column for each object; expected one row")
    # A score that is affine in several variables is read once for each.
    own = {hinge.name: hinge for hinge in hinges if hinge.latent == rv.name}
    views = [context.model[name] for view in factors.views for name in view.declared]
    expected = [*views, *(context.model[name] for name in own)]
    others = context.ancestry.strangers(rv, expected)
    if others:
        raise Refusal(
            f"{names(others, 'depends')} on {rv.name!r} otherwise than as a view, or as a hinge "
            "whose score is fourier_features(latent, frequencies) @ coefficients, with frequencies "
            "that are a free variable or a constant array"
        )
    for view in views:
        if rv in context.ancestry.of([scale(view)]):
            raise Refusal(f"the noise of {view.name!r} depends on {rv.name!r}")
    for name in own:
        declared = read_hinge(context.model[name])
        assert declared is not None
        if rv in context.ancestry.of([declared.C]):
            raise Refusal(f"C of {name!r} depends on {rv.name!r}")
    return LabelledLatent(rv.name, factors, tuple(own.values()), context.normal_prior(rv))
