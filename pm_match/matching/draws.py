"""What a DataTree of draws holds: assignments, their relevance, and the sets of their clusters."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from pm_match.checks import did_you_mean, identifier, no_such, type_name

PREFIX = "cluster_"
RELEVANCE = "relevance_"
# The attribute of an assignment that names the set of its clusters.
SET = "clusters"
# That of one that has a part of joint labels: what parameters of their combinations are of.
JOINT = "combinations"
# Those that name an assignment's flags of relevance; and the set of clusters that a parameter has
# along a dim (``clusters_of_<dim>``, empty if there is none), or of one of which it is a parameter
# (``clusters_of``: one set, or a list of several).
FLAGS, ROWS_OF = "relevance", "clusters_of"
# That of one of several variables that clusters have one each of: all of them, by cluster.
EACH = "each_cluster"
# That of a computed one that is labels itself: the set of their clusters.
NUMBERS = "numbers_of"
# That of one whose clusters have been given other numbers in every draw.
RENUMBERED = "renumbered"
# What PyMC puts after the name of a variable for its missing values.
MISSING = "_unobserved"
# The label of irrelevant objects.
IRRELEVANT = -1
SAMPLE_DIMS = ("chain", "draw")
# What to do where labels were not recorded.
NOT_RECORDED = (
    "labels were not recorded (record= of sample, labels= of sample_sharded). Where landmarks "
    "were, match_probability, unmatched_probability and diagnose read what was counted, and "
    'group="landmarks" has their labels; record="all" with thin= keeps those of all objects'
)


def assignment_names(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
) -> list[str]:
    """List the assignment variables: whole numbers, called ``cluster_<domain>``.

    Those of draws of `pmm.sample` and `find_matching` may have any name.

    `idata`: what `pm_match.sample` returns, or its posterior; `group`: the group of the DataTree
    that holds the draws.
    """
    variables = read_draws(idata, group).data_vars
    return [
        str(name)
        for name, variable in variables.items()
        if (str(name).startswith(PREFIX) or SET in variable.attrs)
        and variable.dtype.kind in "iu"
        # Where labels are observed in part, PyMC has a variable for those that are not, and one
        # for all.
        and not _is_part(str(name), variables)
    ]


def _is_part(name: str, variables: Collection[Hashable]) -> bool:
    whole = name.removesuffix(MISSING)
    return whole != name and whole in variables


def assignment_sets(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
) -> dict[str | None, list[str]]:
    """List the assignment variables by the set that their clusters are of.

    Only variables of one set can be compared: in a model of documents and words, those of the
    documents of all networks are one set and those of the words another.

    `idata`: what `pm_match.sample` returns, its posterior, or the labels that `partition_estimate`
    gives; `group`: the group of the DataTree that holds the draws. Return names of variables by
    their attribute ``clusters``; those without it are under None, as one set. So attributes are to
    be kept where draws are put together, as `xarray.concat` does unless told to drop them.
    """
    posterior = read_draws(idata, group)
    return by_set({name: posterior[name] for name in assignment_names(posterior)})


def assignment_pairs(
    idata: xr.DataTree | xr.Dataset, group: str = "posterior", *, alone: bool = False
) -> list[tuple[str, str]]:
    """List all pairs of assignments that can be compared; one that is `alone` with itself."""
    found: list[tuple[str, str]] = []
    for names in assignment_sets(idata, group=group).values():
        itself = [(names[0], names[0])] if alone else []
        found += list(combinations(names, 2)) or itself
    return found


def read_draws(idata: Any, group: str) -> xr.Dataset:
    """Return the draws of a group, or those that are given, without a named model's prefix."""
    return _without_prefix(draws_as_they_are(idata, group))


def draws_as_they_are(idata: Any, group: str) -> xr.Dataset:
    """Return the draws of a group, or those that are given, named as in the model."""
    if isinstance(idata, xr.Dataset):
        return idata
    if not isinstance(idata, xr.DataTree):
        raise TypeError(
            f"expected a DataTree or a Dataset of draws; found {type_name(idata)}{_its(idata)}"
        )
    if group not in idata.children and idata.data_vars:
        return idata.to_dataset()  # a group itself
    if group not in idata.children:
        raise KeyError(no_such(f"group {group!r}", sorted(idata.children), group))
    return idata.children[group].to_dataset()


def bare(name: Any) -> str:
    """Leave out what a named model puts before a name."""
    return str(name).rpartition("::")[2]


def _without_prefix(draws: xr.Dataset) -> xr.Dataset:
    """Leave out what ``pm.Model(name=…)`` puts before names, unless it tells variables apart."""
    names = {name: bare(name) for name in draws.data_vars}
    short = list(names.values())
    if short == list(names) or len(set(short)) < len(short):
        return draws
    renamed = draws.rename(names)
    for variable in renamed.data_vars.values():
        for key, value in variable.attrs.items():
            if key in (SET, FLAGS, JOINT, EACH, NUMBERS) or key.startswith(ROWS_OF):
                variable.attrs[key] = bare(value) if isinstance(value, str) else [*map(bare, value)]
    return renamed


def full_name(names: Iterable[Any], name: Any, prefix: str = PREFIX) -> str:
    """Give the variable that a name says: its own, or its domain's, "a" for "cluster_a".

    A domain is known by the name that the user gave it too ("shop 2"), and a network of which only
    one type of objects has assignments by the network's ("a" for "cluster_a_person").

    Raise `KeyError` if there is none, or a network has several; the message lists those that there
    are.
    """
    there = [str(own) for own in names]
    domain = prefix + identifier(str(name))
    for own in (f"{prefix}{name}", name, domain, bare(name)):
        if own in there:
            return own
    similar = [own for own in there if own.startswith(prefix)]
    types = _types_of(domain, similar)
    if len(types) == 1:
        return f"{domain}_{types[0]}"
    if types:
        short = [f"{domain}_{own}".removeprefix(prefix) for own in types]
        raise KeyError(f"{name!r} has several types of objects: say which, of {short}")
    if prefix == PREFIX and not_recorded(there):
        raise KeyError(f"no variable {name!r} among the draws: {NOT_RECORDED}")
    near = did_you_mean(name, [*(own.removeprefix(prefix) for own in similar), *similar])
    raise KeyError(f"no variable {name!r} among the draws; there are {similar or there}{near}")


def _types_of(domain: str, names: Sequence[str]) -> list[str]:
    """List the types of a network's objects: "person", where there is "cluster_firm_person".

    Names that only begin alike are of others: all networks have the same types, so that neither
    "firm_2" nor "firm_2_person" says one of "firm".
    """
    ends = [own.removeprefix(f"{domain}_") for own in names if own.startswith(f"{domain}_")]
    ends = [end for end in ends if end.isidentifier()]
    others = [own for own in names if own.removeprefix(f"{domain}_") not in ends]
    return [end for end in ends if not others or any(own.endswith(f"_{end}") for own in others)]


def titled(draws: Any, titles: Mapping[str, str], group: str = "posterior") -> Any:
    """Call domains by the names that are to be shown, which may be any."""
    posterior = read_draws(draws, group)
    names = {
        f"{prefix}{name}{end}": f"{prefix}{title}{end}"
        for name, title in titles.items()
        for prefix, end in ((PREFIX, ""), (PREFIX, MISSING), (RELEVANCE, ""))
        if f"{prefix}{name}{end}" in posterior
    }
    renamed = posterior.rename(names)
    if isinstance(draws, xr.Dataset):
        return renamed
    tree = draws.copy()
    tree[group] = xr.DataTree(renamed)
    return tree


def not_recorded(names: Iterable[Any]) -> bool:
    """Whether clusters' sizes were recorded in place of labels."""
    there = [str(own) for own in names]
    return any(own.startswith("size_") for own in there) and not any(
        own.startswith(PREFIX) for own in there
    )


def set_title(kind: Any) -> str:
    """Name a set of clusters by the type of objects whose clusters have these weights."""
    return str(kind or "").removeprefix("weights_")


def variable_of(posterior: xr.Dataset, name: str, prefix: str) -> xr.DataArray:
    """Return a variable; names that begin with `prefix` are listed if it is not there."""
    return posterior[full_name(posterior.data_vars, name, prefix)]


def check_dims(sample_dims: Any) -> None:
    """Refuse one name where several are listed: its letters would be read."""
    if isinstance(sample_dims, str):
        raise TypeError(
            f"sample_dims: expected a list of dims, such as [{sample_dims!r}]; "
            f"found {sample_dims!r}"
        )


def sampled(variable: xr.DataArray, sample_dims: Sequence[Hashable], n_dims: int) -> xr.DataArray:
    """Put the sample dims first and check how many others there are."""
    check_dims(sample_dims)
    others = [dim for dim in variable.dims if dim not in sample_dims]
    if len(others) != n_dims or len(others) + len(sample_dims) != variable.ndim:
        expected = "one dim" if n_dims == 1 else f"{n_dims} dims"
        raise ValueError(
            f"variable {variable.name!r}: expected dims {tuple(sample_dims)} and {expected} "
            f"beside; found {variable.dims}"
        )
    return variable.transpose(*sample_dims, *others)


def assignment_of(
    posterior: xr.Dataset, name: str, sample_dims: Sequence[Hashable]
) -> xr.DataArray:
    """Return the labels of an assignment, sample dims first, and check them."""
    variable = sampled(variable_of(posterior, name, PREFIX), sample_dims, 1)
    if variable.dtype.kind not in "iu":
        raise ValueError(
            f"variable {name!r}: expected whole numbers, the clusters of objects; "
            f"found dtype {variable.dtype}"
        )
    empty = [dim for dim in sample_dims if variable.sizes[dim] == 0]
    if empty:
        raise ValueError(
            f"variable {name!r}: expected at least one draw; found dim {empty[0]!r} of length 0"
        )
    return variable


class OnDisk:
    """Labels (draws, objects) that are read when they are asked for: whole draws, or objects."""

    def __init__(self, rows: Any):
        self._rows, (*self._n_draws, n_objects) = rows, rows.shape
        self.shape, self.size = (int(np.prod(self._n_draws)), n_objects), rows.size

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, tuple):
            draws, objects = key
            return np.asarray(self._rows[..., objects]).reshape(len(self), -1)[draws]
        if isinstance(key, slice):
            draws = range(*key.indices(len(self)))
            return np.array([self[draw] for draw in draws]).reshape(len(draws), -1)
        return np.asarray(self._rows[np.unravel_index(range(len(self))[key], self._n_draws)])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[draw] for draw in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._rows, dtype).reshape(self.shape)

    @cached_property
    def _span(self) -> tuple[int, int]:
        least, largest = zip(*((int(own.min()), int(own.max())) for own in self), strict=True)
        return min(least), max(largest)

    def min(self) -> int:
        """Return the least label of all draws."""
        return self._span[0]

    def max(self) -> int:
        """Return the largest label of all draws."""
        return self._span[1]


def stacked(assignment: xr.DataArray) -> Any:
    """Labels of shape (draws, objects): an array, or `OnDisk` if they are Dask's."""
    if assignment.chunks is not None:
        return OnDisk(assignment.data)
    *n_draws, n_objects = assignment.shape
    return assignment.to_numpy().reshape(int(np.prod(n_draws)), n_objects)


def weights_dim(
    posterior: xr.Dataset, title: str | None, sample_dims: Sequence[Hashable]
) -> str | None:
    """Name the dim of a set's weights, if they are among the draws: `title` may be their sticks."""
    if title not in posterior.data_vars:
        return None
    weights = posterior[title]
    others = [str(dim) for dim in weights.dims if dim not in sample_dims]
    if len(others) != 1 or not np.allclose(weights.sum(others), 1.0):
        return None
    return others[0]


def coords_along(variable: xr.DataArray, dim: Hashable) -> dict[Hashable, Any]:
    """All coordinates along `dim` and no other dim, such as labels and true clusters."""
    return {name: coord for name, coord in variable.coords.items() if coord.dims == (dim,)}


def by_set(variables: Mapping[Any, xr.DataArray]) -> dict[str | None, list[Any]]:
    """Group variables' names by the set that their clusters are of, in the order given."""
    sets: dict[str | None, list[Any]] = {}
    for name, variable in variables.items():
        sets.setdefault(variable.attrs.get(SET), []).append(name)
    return sets


def check_labels(labels: Any) -> None:
    """Refuse draws where labels of objects are expected, one each: raise `TypeError`."""
    draws = [name for name in getattr(labels, "dims", ()) if name in SAMPLE_DIMS]
    if isinstance(labels, xr.DataTree) or draws:
        raise TypeError(
            "labels: expected one label of each object, as partition_estimate(idata) gives them; "
            "found draws"
        )


def relevance_of(
    posterior: xr.Dataset,
    assignment: xr.DataArray,
    name: str | None,
    sample_dims: Sequence[Hashable],
) -> np.ndarray | None:
    """Which objects are relevant, shape (draws, objects); None for all."""
    if name == "auto":
        own = str(assignment.name)
        usual = RELEVANCE + own.removeprefix(PREFIX) if own.startswith(PREFIX) else None
        declared = assignment.attrs.get(FLAGS)
        name = next((one for one in (declared, usual) if one in posterior.data_vars), None)
        if name is None and declared is not None:
            raise KeyError(
                f"variable {own!r}: expected {declared!r} beside it, which says which of its "
                f"objects are relevant; found {sorted(map(str, posterior.data_vars))}"
            )
    if name is None:
        return None
    variable = sampled(variable_of(posterior, name, RELEVANCE), sample_dims, 1)
    dims = variable.dims[-1], assignment.dims[-1]
    # Without dims in the model, the two have the same objects under names of their own.
    unnamed = any(f"{v.name}_dim_0" in map(bare, dims) for v in (variable, assignment))
    if variable.shape != assignment.shape or (dims[0] != dims[1] and not unnamed):
        raise ValueError(
            f"variable {name!r}: expected the dims of {assignment.name!r}, {assignment.dims}; "
            f"found {variable.dims}"
        )
    flags = np.asarray(stacked(variable))
    strange = flags[(flags != 0) & (flags != 1)]
    if len(strange):
        raise ValueError(
            f"variable {name!r}: expected 0 (irrelevant) or 1 (relevant) everywhere; found "
            f"{strange[0]}"
        )
    return flags != 0


def needs_tree(idata: Any) -> None:
    """Refuse what cannot hold other groups beside the draws."""
    if not isinstance(idata, xr.DataTree):
        raise TypeError(
            f"expected a DataTree, as sample returns it; found {type(idata).__name__}{_its(idata)}"
        )


def _its(value: Any) -> str:
    """Say where the result of a match has its draws."""
    return ", whose draws are its idata" if hasattr(value, "idata") else ""


def log_joint_of(idata: xr.DataTree) -> xr.DataArray:
    """Read the log joint, summed over partitions if the model has several."""
    found = read_draws(idata, "sample_stats")
    if "log_joint" not in found:
        needs_tree(idata)
    log_joint = found["log_joint"]
    return log_joint.sum([dim for dim in log_joint.dims if dim not in ("chain", "draw")])
