"""Copies a model with other assignments in the place of its own."""

from collections.abc import Mapping

from pymc.model.core import Model
from pymc.pytensorf import toposort_replace
from pytensor.graph.fg import FunctionGraph

from pm_match.reading.ancestry import RV


def with_assignments(
    model: Model,
    whole: Mapping[str, RV],
    potentials: Mapping[str, RV] | None = None,
    places: Mapping[str, RV] | None = None,
    transforms: bool = True,
) -> Model:
    """Copy a model with `whole` assignments, by name, in the places of its own.

    Or of what is observed of them, and of what is missing. `potentials`: graphs of the model's
    variables, by the names that they get; `places`: graphs of `whole` assignments in the places of
    assignments, by the names of these, where they are not themselves; `transforms`: whether free
    variables keep theirs, and their starts.
    """
    terms, places = potentials or {}, whole if places is None else places
    parts = {f"{name}{end}" for name in places for end in ("_observed", "_unobserved")}
    named = [*model.basic_RVs, *model.potentials, *model.deterministics]
    kept = [v for v in named if v.name not in parts and v.name not in places]
    joined = [model[name] for name in places]
    outputs = [*kept, *terms.values(), *whole.values(), *places.values(), *joined]
    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False, copy_orphans=False)
    first, n = len(outputs) - len(joined), len(joined)
    pairs = zip(graph.outputs[first:], graph.outputs[first - n : first], strict=True)
    toposort_replace(graph, [(old, own) for old, own in pairs if old is not own])
    new = Model(coords={}, model=None)
    new.add_coords(model.coords, lengths=model.dim_lengths)
    for v, own in zip(kept, graph.outputs, strict=False):
        _register(model, new, v, own, transforms)
    for name, rv in zip(whole, graph.outputs[len(kept) + len(terms) :], strict=False):
        new.free_RVs.append(rv)
        new.create_value_var(rv, transform=None, default_transform=None)
        initial = model.rvs_to_initial_values.get(model[name]) if name in places else None
        new.set_initval(rv, initial)
        new.add_named_variable(rv, dims=model.named_vars_to_dims.get(name))
    for name, term in zip(terms, graph.outputs[len(kept) :], strict=False):
        term.name = name
        new.potentials.append(term)
        new.add_named_variable(term)
    for v in model.data_vars:
        new.data_vars.append(v)
        new.add_named_variable(v, dims=model.named_vars_to_dims.get(v.name))
    return new


def _register(model: Model, new: Model, old: RV, own: RV, transforms: bool) -> None:
    """Let a variable be in another model what it is in its own."""
    if old in model.basic_RVs:
        free = old in model.free_RVs
        held, kept = new.free_RVs if free else new.observed_RVs, transforms or not free
        new.create_value_var(
            own,
            transform=model.rvs_to_transforms[old] if kept else None,
            default_transform=None,
            value_var=model.rvs_to_values[old] if kept else None,
        )
        if free:
            new.set_initval(own, model.rvs_to_initial_values[old] if kept else None)
    else:
        held = new.potentials if old in model.potentials else new.deterministics
    held.append(own)
    new.add_named_variable(own, dims=model.named_vars_to_dims.get(old.name))
