"""Which steps serve a model."""

from collections.abc import Sequence
from typing import Any

from pymc.model.core import Model, modelcontext
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep

from pm_match.clusters.cluster_gibbs import ClusterGibbs
from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.clusters.step import PartitionStep
from pm_match.progress import said, silent
from pm_match.reading import read
from pm_match.reading.kinds import on_registration, registered
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import without_c


def step_classes() -> list[Any]:
    """Return the classes of our steps, those of all kinds, in the order of an iteration."""
    found = [
        HyperparameterGibbs,
        ClusterGibbs,
        *(step for own in registered() for step in own.steps),
    ]
    return sorted(dict.fromkeys(found), key=lambda step: step.order)


def register() -> None:
    """Let a plain `pm.sample()` inside `with model:` choose our steps, for what they recognise.

    PyMC takes the first of equally competent steps, and its own claim any Categorical: ours come
    first, and decline every variable that is not part of a recognised model.
    """
    ours = step_classes()
    before = {*ours, *_offered}
    STEP_METHODS[:] = [*ours, *(step for step in STEP_METHODS if step not in before)]
    _offered[:] = ours


# What PyMC has of ours: the steps of a kind that is replaced go.
_offered: list[Any] = []


@without_c()
def steps(
    model: Model | None = None, *, given: Sequence[Any] = (), progressbar: bool = True
) -> list[BlockedStep]:
    """Make the steps that serve a model.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    given : sequence of steps, optional
        Steps that exist already: the variables they hold are left out. What a step of another class
        than ours holds is its own to write: ours leave it alone.
    progressbar : bool, default True
        Whether to say that kernels are compiled, which takes long on first use only.

    Returns
    -------
    list of BlockedStep
        To be passed as `step=` to `pm.sample`. PyMC's own steps take the other
        variables.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve, or a step would have to write what
        a given one holds.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['ProjectionMAP', 'ClusterGibbs']
    """
    with silent(not progressbar), said():
        return _made(modelcontext(model), given)


def _made(model: Model, given: Sequence[Any]) -> list[BlockedStep]:
    structure = read(model)
    if structure.empty:
        # What PyMC would misread is not left to it.
        misread = structure.refusals.keys() & {data.name for data in model.data_vars}
        own_steps = "" if misread else " pm.sample() samples it with PyMC's own steps."
        raise UnservedModelError(
            f"pm_match has no step for this model: {structure.explain()}.{own_steps}"
        )
    held = [(step, {model.values_to_rvs[v].name for v in step.vars}) for step in given]
    taken = set().union(*(own for _, own in held))
    # Ours draw from conditionals, before and after whatever others of ours do.
    kept = set().union(*(own for step, own in held if not _ours(step)))
    made: list[BlockedStep] = []
    for kind in step_classes():
        for part in kind.parts(structure):
            names = kind.served(part)
            left = [name for name in names if name not in taken]
            if left and len(left) < len(names) and not kind.one_by_one:
                raise UnservedModelError(
                    f"{kind.__name__} draws {names} together, and a given step holds "
                    f"{sorted(set(names) - set(left))}: give a step for all of them or for none."
                )
            if left:
                settings = kind.keeping(structure, part, kept)
                made.append(kind([model[name] for name in left], model=model, **settings))
    # Now, and not by every process that samples, in what it takes for time to sample.
    for step in made:
        for kernel, signature in step.kernels():
            kernel.compile(signature)
    return made


def _ours(step: Any) -> bool:
    return all(isinstance(own, PartitionStep) for own in getattr(step, "methods", [step]))


on_registration(register)
