"""Kinds of evidence: what a data type has to provide, and the registry of those that there are.

A *kind* recognises which observed variables of a declared model are its own, and makes of them a
record of *evidence*, from which the core makes the terms that its kernel scores objects by. The
core asks kinds for all it has to know of data, and knows none of them by name.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_match.reading.ancestry import RV
from pm_match.reading.context import Context

if TYPE_CHECKING:
    import xarray as xr
    from pymc.model.core import Model

    from pm_match.reading.clusterings import ClusteringCandidate
    from pm_match.reading.densities import DensityCheck
    from pm_match.reading.parts import Component, Part, Point

# Where packages that add a kind say so.
ENTRY_POINTS = "pm_match.kinds"


class Candidate(Protocol):
    """What looks like evidence of a kind, by ancestry: to be held against declared densities."""

    @property
    def checked(self) -> list[RV]:
        """The random variables whose declared densities `verified` asks for."""

    def verified(
        self, context: Context, clusterings: Sequence["ClusteringCandidate"], check: "DensityCheck"
    ) -> "Evidence":
        """Hold it against the declared densities.

        Parameters
        ----------
        context : Context
        clusterings : sequence of ClusteringCandidate
            All of the component, as evidence numbers them.
        check : DensityCheck

        Raises
        ------
        Refusal
            If a declared density is another one.
        """


class Evidence:
    """What a kind has read: its data, and the priors of what it integrates out.

    A record that is made once and never changed; what follows a chain is its `state`. Subclasses
    are frozen dataclasses, most often with `eq=False`.
    """

    # The name of its kind.
    kind: ClassVar[str]

    # -- what every kind provides -----------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The free variables that it integrates out, and draws with the clusters."""
        raise NotImplementedError

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The numbers of the component's clusterings that it is evidence for."""
        raise NotImplementedError

    def state(self, site: Any, access: Any) -> Any:
        """Make the state of the evidence for the units of a `clusters.evidence.Site`.

        Parameters
        ----------
        site : Site
        access : object
            What `access` has made.

        Returns
        -------
        EvidenceState
        """
        raise NotImplementedError

    def access(self, model: "Model") -> Any:
        """Make what reads and writes its variables in points, shared by all states."""
        raise NotImplementedError

    # -- what it may provide ----------------------------------------------------------------------

    @property
    def hyperpriors(self) -> list[str]:
        """Those of `names` whose priors may have free hyperparameters, which are ours to draw.

        Its state then has a `log_factor`.
        """
        return []

    @property
    def relabelled(self) -> list[str]:
        """Variables that mean something else when clusters or factors take other names.

        Convergence is not judged by these.
        """
        return self.names

    @property
    def handed_on(self) -> list[str]:
        """Variables whose values a search hands to the chain that starts where it ended."""
        return []

    @property
    def conditioned_on(self) -> list[str]:
        """Those of `names` that prediction asks draws of, rather than integrate them out."""
        return []

    @property
    def searchable(self) -> bool:
        """Whether a search for clusters makes sense: not where the data are free variables."""
        return True

    def dispersed(self, rng: np.random.Generator, start: "Point") -> dict[str, NDArray]:
        """Draw values to start a chain from that favour no matching, by variable."""
        return {}

    def annotate(self, posterior: "xr.DataTree") -> None:
        """Say in the attributes of recorded draws what they are."""


class Kind:
    """A data type: how it is recognised in a declared model, and what else it can do.

    Subclass it, and `register` an instance.
    """

    name: ClassVar[str]
    # The distributions of its observed variables, for messages.
    expects: ClassVar[tuple[str, ...]] = ()
    # Step classes of its own. Each says by its `order` when it takes its turn.
    steps: tuple[type, ...] = ()

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether an observed variable over assignments looks like the kind's own."""
        return False

    def candidates(
        self,
        context: Context,
        clusterings: Sequence["ClusteringCandidate"],
        values: Sequence[RV],
    ) -> Sequence[Candidate]:
        """Find evidence among the variables of a component that the kind has claimed.

        Raises
        ------
        Refusal
            If a variable is not what it looks like.
        """
        return []

    def relevance(self, context: Context, values: Sequence[RV]) -> dict[RV, RV]:
        """Find the relevance flags of assignments that enter the kind's own variables."""
        return {}

    def ties(self, context: Context, rv: RV) -> set[RV]:
        """Give variables that clusterings have to share a component for: by default none."""
        return set()

    def axes(self, context: Context, rv: RV, assignment: RV) -> set[Any] | None:
        """Say what the labels of an assignment number in a variable, if the kind can tell.

        Assignments over constant weights share a set of clusters if they number the same thing.
        """
        return None

    def parts(self, context: Context) -> tuple[list["Part"], dict[str, str]]:
        """Find what is no partition with evidence, and by variable what is refused, and why."""
        return [], {}

    def search(self, component: "Component") -> Callable | None:
        """Choose the search for a component whose evidence is all of this kind.

        Returns
        -------
        callable or None
            Takes a `search.chain.Chain`, the component's number and a generator, and leaves the
            chain at a mode. None for the search that serves every kind: sweeps, moves of groups.
        """
        return None

    def predictor(self, model: "Model", evidence: Evidence, state: Any) -> Any:
        """Make what predicts new objects from draws, a `prediction.predictor.Predictor`.

        None, the default, if the kind predicts nothing: new objects are then refused in words.
        """
        return None


def kind_of(evidence: Evidence) -> Kind:
    """Return the kind that has read some evidence."""
    return next(kind for kind in kinds() if kind.name == evidence.kind)


_KINDS: list[Kind] = []
_loaded = False


def register_kind(kind: Kind) -> None:
    """Let models be served whose data are of a `kind`.

    The kind that was registered last is asked first, so that one may take over what another one
    claims too. A kind of the same name is replaced. A package can register its kinds by an entry
    point of the group ``pm_match.kinds`` that names such an object, or a subclass of `Kind`.

    Parameters
    ----------
    kind : Kind

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(kind, Kind):
        raise TypeError(f"kind: expected an instance of pm_match.Kind; found {kind!r}")
    _KINDS[:] = [kind, *(other for other in _KINDS if other.name != kind.name)]
    for reset in _RESETS:
        reset()


# What depends on which kinds there are, and is made anew when there is another one.
_RESETS: list[Callable[[], None]] = []


def on_registration(reset: Callable[[], None]) -> None:
    """Have a function called whenever a kind is registered."""
    _RESETS.append(reset)


def kinds() -> list[Kind]:
    """Return all kinds, the one that is asked first before the others."""
    global _loaded
    if not _loaded:
        _loaded = True
        for entry in entry_points(group=ENTRY_POINTS):
            found = entry.load()
            register_kind(found() if isinstance(found, type) else found)
    return list(_KINDS)
