"""Coarsened data: densities that count to a power, so that small misfits tell nothing apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model, modelcontext
from pytensor.graph.basic import Constant, equal_computations

from pm_match.checks import check_power
from pm_match.reading.ancestry import RV, Refusal, itself
from pm_match.reading.context import Context


def coarsen(name: str, variable: Any, power: float) -> pt.TensorVariable:
    r"""Declare that the density of an observed variable counts to a power.

    .. math:: p(x_n \mid \theta)^\zeta, \qquad 0 < \zeta \le 1

    No cluster is exactly normal, and with enough objects a mixture finds out: it spends clusters on
    what the shape of one leaves over. With :math:`\zeta < 1` every object is worth
    :math:`\zeta` of one, so that only larger misfits are worth another cluster, and match
    probabilities are less sure of themselves (J. Miller & D. Dunson 2019, "Robust Bayesian
    inference via coarsening", JASA 114, whose power posterior this is).

    It adds ``pm.Potential(name, (power - 1) * pm.logp(variable, data))``, entry by entry; written
    so by hand, it is recognised as well.

    Parameters
    ----------
    name : str
        Of the potential.
    variable : variable or str
        An observed variable of the model of the context; where some of its values are missing, what
        is observed of it is meant.
    power : float
        :math:`\zeta`, above 0 and at most 1.

    Returns
    -------
    TensorVariable
        The potential.

    Raises
    ------
    TypeError
        If the variable is not observed.
    ValueError
        If the power is not a number in (0, 1].

    Examples
    --------
    >>> counts = np.array([[3, 0], [2, 1], [0, 9], [1, 8]])
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster = pm.Categorical("cluster", weights, shape=4)
    ...     rate = pm.Gamma("rate", 1.0, 0.5, shape=(5, 2))
    ...     counted = pm.Poisson("counts", rate[cluster], observed=counts)
    ...     coarse = pmm.coarsen("coarsened", "counts", 0.5)
    ...
    >>> [variable.name for variable in model.potentials]
    ['coarsened']
    """
    model = modelcontext(None)
    rv = model[variable] if isinstance(variable, str) else variable
    # Where something is missing, PyMC puts this and what is observed together.
    if rv in model.deterministics and f"{rv.name}_unobserved" in model.named_vars:
        rv = model[f"{rv.name}_observed"]
    if rv not in model.observed_RVs:
        raise TypeError(
            f"coarsen {name!r}: expected an observed variable of the model; found {variable!r}"
        )
    check_power(f"coarsen {name!r}: power", power)
    return pm.Potential(name, _change(model, rv, np.float64(power) - 1.0))


def coarsened(context: Context, potential: RV) -> tuple[RV, float] | None:
    """Return the observed variable whose density a potential brings to a power, and the power.

    None of all other potentials and variables.
    """
    if potential not in context.model.potentials:
        return None
    parents = context.ancestry.parents
    for rv in context.model.observed_RVs:
        if parents[rv] == parents[potential]:
            power = read_power(context.model, potential, rv)
            if power is not None:
                return rv, power
    return None


def powers(context: Context, variables: Sequence[RV]) -> dict[RV, tuple[RV, float]]:
    """Find the potentials among some variables, and the powers, by what they coarsen."""
    found: dict[RV, tuple[RV, float]] = {}
    for potential in (v for v in variables if v in context.model.potentials):
        rv, power = context.once(coarsened, potential)
        if rv in found:
            raise Refusal(f"{rv.name!r} is coarsened twice; expected one power")
        found[rv] = potential, power
    return found


def coarsenings(model: Model, variables: Sequence[RV]) -> list[RV]:
    """List the potentials that bring densities of some observed variables to powers."""
    return [
        potential
        for potential in model.potentials
        if any(read_power(model, potential, rv) is not None for rv in variables)
    ]


def _change(model: Model, rv: RV, factor: Any) -> Any:
    """Return what a power adds to the log density of a variable."""
    return factor * pm.logp(rv, model.rvs_to_values[rv])


def read_power(model: Model, potential: RV, rv: RV) -> float | None:
    """Return the power to which a potential brings the density of an observed variable.

    None if it is anything else. Whether it is what it seems is settled by its graph, operation by
    operation.
    """
    whole = itself(potential)
    for factor in [] if whole.owner is None else whole.owner.inputs:
        while factor.owner is not None and len(factor.owner.inputs) == 1:
            (factor,) = factor.owner.inputs
        if isinstance(factor, Constant) and np.size(factor.data) == 1:
            # Of the type that PyTensor has chosen.
            (number,) = np.ravel(factor.data)
            power = float(number) + 1.0
            if 0.0 < power <= 1.0 and equal_computations([whole], [_change(model, rv, number)]):
                return power
    return None
