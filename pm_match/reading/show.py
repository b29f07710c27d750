"""A declared model, told as the PyMC that declares it."""

from __future__ import annotations

from collections.abc import Iterator
from keyword import iskeyword
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions import transforms
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model.core import Model, modelcontext
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.tensor.variable import TensorVariable

from pm_match.checks import check_model, identifier

_INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}
_LONGEST = 160
# What changes shapes or types alone is not told.
_SILENT = (
    "DimShuffle",
    "Cast",
    "SpecifyShape",
    "Unbroadcast",
    "Alloc",
    "TensorFromScalar",
    "ViewOp",
)
# Random variables that are not named as PyMC's distribution.
_DISTRIBUTIONS = {
    "AutoRegressive": "AR",
    "InvGamma": "InverseGamma",
    "NegBinomial": "NegativeBinomial",
    "WeibullBeta": "Weibull",
}
# Names of parameters, in the order of the random variable's inputs; "/" is given as its inverse,
# "+" as what is more than the one before, "-" not at all, and "*" as a list of all that follow.
_PARAMETERS = {
    "AR": "rho sigma init_dist -",
    "AsymmetricLaplace": "b kappa mu",
    "Bernoulli": "p",
    "Beta": "alpha beta",
    "BetaBinomial": "n alpha beta",
    "Binomial": "n p",
    "CAR": "mu W alpha tau -",
    "Categorical": "p",
    "Dirichlet": "a",
    "EulerMaruyama": "init_dist - *sde_pars",
    "ExGaussian": "mu sigma nu",
    "Exponential": "/lam",
    "GARCH11": "omega alpha_1 beta_1 initial_vol - -",
    "Gamma": "alpha /beta",
    "HalfNormal": "- sigma",
    "HalfStudentT": "nu sigma",
    "HyperGeometric": "k +N n",
    "ICAR": "W sigma zero_sum_stdev",
    "Interpolated": "x_points pdf_points -",
    "KroneckerNormal": "mu sigma *covs",
    "LKJCholeskyCov": "n eta sd_dist",
    "LogNormal": "mu sigma",
    "LogitNormal": "mu sigma",
    "MatrixNormal": "mu rowchol colchol",
    "MvNormal": "mu cov",
    "MvStudentT": "nu mu scale",
    "NegativeBinomial": "n p",
    "Normal": "mu sigma",
    "Poisson": "mu",
    "RandomWalk": "init_dist innovation_dist -",
    "Rice": "b sigma",
    "SkewNormal": "mu sigma alpha",
    "SkewStudentT": "a b mu sigma",
    "StickBreakingWeights": "alpha K",
    "StudentT": "nu mu sigma",
    "Triangular": "lower c upper",
    "TruncatedNormal": "mu sigma lower upper",
    "Wald": "mu lam alpha",
    "Wishart": "nu V",
    "ZeroSumNormal": "sigma -",
}
# What is no input of the random variable, unless it is this default.
_MORE: dict[str, list[tuple[str, str, Any]]] = {
    "AR": [("constant", "constant_term", False)],
    "EulerMaruyama": [("dt", "dt", None), ("sde_fn", "sde_fn", None)],
    "ZeroSumNormal": [("n_zerosum_axes", "ndim_supp", 1)],
}
# What these call a precision.
_PRECISION = dict.fromkeys(("HalfStudentT", "SkewStudentT", "StudentT"), "lam")


def show(model: Model | None = None) -> None:
    """Print the declaration of a model, as PyMC.

    It is for reading: large constants are given by their shapes, functions as "…", and parameters
    are those that PyMC made of the ones that were given (a precision of its standard deviation,
    say).

    Parameters
    ----------
    model : pymc.Model, optional
        Such as `MatchResult.model`. Default: the model of the context.

    Examples
    --------
    >>> counts = np.array([[3, 0], [2, 1], [0, 9], [1, 8]])
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster = pm.Categorical("cluster", weights, shape=4)
    ...     rate = pm.Gamma("rate", 1.0, 0.5, shape=(5, 2))
    ...     counted = pm.Poisson("counts", rate[cluster], observed=counts)
    ...
    >>> pmm.show(model)
    with pm.Model(coords={}):
        weights = pm.StickBreakingWeights("weights", alpha=1, K=4)
        cluster = pm.Categorical("cluster", p=weights)
        rate = pm.Gamma("rate", alpha=1, beta=0.5)
        counts = pm.Poisson("counts", mu=rate[cluster], observed=…)
    """
    model = modelcontext(model)
    check_model(model)
    print("\n".join(_lines(model)))


def _lines(model: Model) -> Iterator[str]:
    sizes = {dim: len(own) for dim, own in model.coords.items() if own is not None}
    listed = ", ".join(f"{dim!r}: range({size})" for dim, size in sizes.items())
    named = f"name={model.name!r}, " if model.name else ""
    yield f"with pm.Model({named}coords={{{listed}}}):".replace("'", '"')
    observed = {variable.name for variable in model.observed_RVs}
    # PyMC declares what is observed in part as two variables, and puts them together.
    whole = {rv.name.removesuffix("_observed") for rv in model.observed_RVs}
    whole &= {v.name for v in model.deterministics if f"{v.name}_unobserved" in model.named_vars}
    for name, variable in model.named_vars.items():
        if name.removesuffix("_observed").removesuffix("_unobserved") in whole - {name}:
            continue
        own, said = _as_python(name, model), f'"{model.name_of(name)}"'
        dims = model.named_vars_to_dims.get(name)
        more = [f"dims={_dims(dims)}"] if dims else []
        if name in whole:
            distribution, told = _distribution(model[f"{name}_observed"], model, part=True)
            yield f"    {own} = {distribution}({', '.join([said, *told, *more, 'observed=…'])})"
        elif variable in model.basic_RVs:
            more += _transform(variable, model) + (["observed=…"] if name in observed else [])
            distribution, told = _distribution(variable, model)
            yield f"    {own} = {distribution}({', '.join([said, *told, *more])})"
        elif variable in model.deterministics or variable in model.potentials:
            kind = "Deterministic" if variable in model.deterministics else "Potential"
            inner = ", ".join([said, _expression(variable, model, top=True), *more])
            yield f"    {own} = pm.{kind}({inner})"
        else:
            yield f"    {own} = pm.Data({', '.join([said, '…', *more])})"


def _dims(dims: Any) -> str:
    names = [f'"{dim}"' for dim in dims]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _as_python(name: str, model: Model) -> str:
    """Name a variable as Python can, without the prefix that all have."""
    own = identifier(model.name_of(name))
    return f"{own}_" if iskeyword(own) else own


def _distribution(
    variable: TensorVariable, model: Model, part: bool = False
) -> tuple[str, list[str]]:
    """Name a distribution as PyMC does, or this package, and tell its parameters.

    `part`: whether the variable is the observed part of another one, which is told in its place.
    """
    node = variable.owner
    op = node.op
    name = type(op).__name__.removesuffix("RV").removeprefix("_")
    name = _DISTRIBUTIONS.get(name, name)
    try:
        given = op.dist_params(node)
    except Exception:  # of symbolic variables without a signature
        given = [own for own in node.inputs if not isinstance(own.type, RandomType | NoneTypeT)]
    if part and name == "PartialObserved":
        return _distribution(node.inputs[0], model)
    given = [_of_all(own) for own in given] if part else given
    if name in ("Mixture", "Hurdle"):
        return _mixture(name, *given, model=model)
    if name == "Truncated":
        lower, upper = (_expression(own, model) for own in node.inputs[-2:])
        return "pm.Truncated", [_expression(_base(variable), model), lower, upper]
    for of_functions in ("CustomDist", "Simulator"):
        if name.startswith(of_functions):  # and then as the variable
            listed = [_expression(own, model) for own in given]
            return f"pm.{of_functions}", ["…", *listed]
    names = _PARAMETERS.get(name, "").split()
    told: list[str] = []
    if names and names[-1].startswith("*"):
        label, given, rest = names.pop()[1:], given[: len(names)], given[len(names) :]
        told.append(f"{label}=[{', '.join(_expression(own, model) for own in rest)}]")
    for number, own in enumerate(given):
        label = names[number] if len(names) == len(given) else ""
        if label == "-":
            continue
        inverse, more = label.startswith("/"), label.startswith("+")
        label = label.lstrip("/+")
        if label == "sigma" and (precision := _precision(own)) is not None:
            label, own = _PRECISION.get(name, "tau"), precision
        if name == "Wishart" and own.owner is not None and _name(own.owner.op) == "Cholesky":
            own = own.owner.inputs[0]
        text = _expression(own, model, inverse=inverse)
        if more:
            text = f"({told[-1].partition('=')[2]} + {text})"
        told.append(f"{label}={text}" if label else text)
    for label, attribute, default in _MORE.get(name, ()):
        own = getattr(op, attribute)
        if own != default:
            told.append(f"{label}={'…' if callable(own) else own}")
    return f"{'pm' if hasattr(pm, name) else 'pmm'}.{name}", told


def _mixture(
    name: str, weights: Any, *parts: TensorVariable, model: Model
) -> tuple[str, list[str]]:
    """Tell a mixture; one with zeros as the distribution that is inflated by them, or a hurdle."""
    joined = weights.owner is not None and _name(weights.owner.op) in ("MakeVector", "Join")
    if joined and len(parts) == 2 and _is_zero(parts[0]):
        of = _base(parts[1]) if name == "Hurdle" else parts[1]
        own, told = _distribution(of, model)
        whole = f"{'Hurdle' if name == 'Hurdle' else 'ZeroInflated'}{own.partition('.')[2]}"
        if hasattr(pm, whole):
            return f"pm.{whole}", [f"psi={_expression(weights.owner.inputs[-1], model)}", *told]
    listed = ", ".join(_expression(own, model) for own in parts)
    listed = listed if len(parts) == 1 else f"[{listed}]"
    return f"pm.{name}", [f"w={_expression(weights, model)}", f"comp_dists={listed}"]


def _is_zero(variable: TensorVariable) -> bool:
    """Whether a variable is 0 with certainty."""
    if _name(variable.owner.op) != "DiracDeltaRV":
        return False
    value = _constant(variable.owner.inputs[-1])
    return value is not None and not value.any()


def _base(variable: TensorVariable) -> TensorVariable:
    """Give what a variable is truncated from; one that is not truncated as it is."""
    node = variable.owner
    if not hasattr(node.op, "base_rv_op"):
        return variable
    return node.op.base_rv_op.make_node(*node.inputs[:-2]).default_output()


def _transform(variable: TensorVariable, model: Model) -> list[str]:
    """Tell a transform that is not PyMC's default, which may leave out a part of the values."""
    own = model.rvs_to_transforms.get(variable)
    last = getattr(own, "transform_list", [own])[-1]
    default = transforms._default_transform(variable.owner.op, variable)
    if last is None or type(last) is type(default):
        return []
    named = (name for name in transforms.__all__ if getattr(transforms, name) is last)
    return [f"transform={next(named, type(last).__name__)}"]


def _precision(sigma: Any) -> Any:
    """Give the precision that PyMC made a standard deviation of: abs(tau) ** -0.5 * sign(tau)."""
    parts: list[Any] = []
    for name in ("mul", "pow", "abs"):
        sigma = _seen_through(sigma)
        if sigma.owner is None or _name(sigma.owner.op) != name:
            return None
        sigma, *others = sigma.owner.inputs
        parts += others
    sign, power = _seen_through(parts[0]), _constant(parts[-1])
    if len(parts) > 2 or sign.owner is None or _name(sign.owner.op) != "sign":
        return None
    return sigma if np.all(power == -0.5) else None


def _expression(variable: Any, model: Model, top: bool = False, inverse: bool = False) -> str:
    """Tell how a variable is computed of those that have names."""
    if inverse:
        own = _seen_through(variable)
        if own.owner is not None and _name(own.owner.op) == "reciprocal":
            return _expression(own.owner.inputs[0], model)
        return f"1 / {_expression(variable, model)}"
    if not top and variable.name in model.named_vars:
        return _as_python(str(variable.name), model)
    value = _constant(variable)
    if value is not None:
        return f"{float(value):.6g}" if value.ndim == 0 else f"array{value.shape}"
    if isinstance(variable, Constant):
        return "…"
    if variable.owner is None:
        return str(variable.name or "…")
    op, inputs = variable.owner.op, variable.owner.inputs
    if isinstance(op, RandomVariable | SymbolicRandomVariable):
        name, told = _distribution(variable, model)
        return f"{name}.dist({', '.join(told)})"
    name = _name(op)
    if isinstance(op, DimShuffle) and op.is_transpose:
        order = op.new_order
        how = "T" if order == tuple(range(len(order)))[::-1] else f"transpose{order}"
        return f"{_expression(inputs[0], model)}.{how}"
    if name in _SILENT or name.startswith(("cast", "convert")):
        return _expression(inputs[0], model)
    if name == "second":  # a shape, and what has it
        return _expression(inputs[1], model)
    if "Subtensor" in name and not name.startswith(("Inc", "Set", "AdvancedInc")):
        first, *places = inputs
        # Slices, and whole numbers of views, are not told.
        at = [_expression(own, model) for own in places if not isinstance(own.type, SliceType)]
        return f"{_expression(first, model)}[{', '.join(at) or '…'}]"
    args = [_expression(own, model) for own in inputs]
    text = _call(name, args)
    if len(text) <= _LONGEST:
        return text
    # So much is no longer readable: of what it is, then, as PyMC tells it.
    others = [own for own in model.named_vars.values() if own is not variable]
    used = [own for own in ancestors([variable], blockers=others) if own in others]
    named = [_as_python(str(own.name), model) for own in used]
    return f"f({', '.join(dict.fromkeys(named))})"


def _call(name: str, args: list[str]) -> str:
    if name == "MakeVector":
        return f"[{', '.join(args)}]"
    if name in _INFIX and len(args) == 1:  # of all entries
        return f"{'prod' if name == 'mul' else 'sum'}({args[0]})"
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(args)})"
    if name in ("Dot", "Matmul", "BatchedDot"):
        return f"({' @ '.join(args)})"
    called = {"MatrixInverse": "inv", "sqr": "square", "neg": "-"}.get(name, name)
    return f"-{args[0]}" if called == "-" else f"{called}({', '.join(args)})"


def _name(op: Any) -> str:
    """Name what an operation does."""
    inner = getattr(op, "core_op", op)
    scalar = getattr(inner, "scalar_op", None)
    return type(inner).__name__ if scalar is None else type(scalar).__name__.lower()


def _of_all(parameter: Any) -> Any:
    """Give a parameter of all entries for that of some, which PyMC takes out of it."""
    own = _seen_through(parameter)
    taken = own.owner is not None and "Subtensor" in _name(own.owner.op)
    return own.owner.inputs[0] if taken else parameter


def _seen_through(variable: Any) -> Any:
    """Leave out what only changes shapes and types."""
    while variable.owner is not None and _name(variable.owner.op) in _SILENT:
        variable = variable.owner.inputs[0]
    return variable


def _constant(variable: Any) -> np.ndarray | None:
    """Give a constant's numbers, seen through what only changes its shape."""
    variable = _seen_through(variable)
    if not isinstance(variable, Constant) or not isinstance(variable.data, np.ndarray):
        return None
    value = np.asarray(variable.data)
    return value.reshape(()) if value.size == 1 else value
