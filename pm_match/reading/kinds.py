"""Kinds of evidence: what a data type has to provide, and the registry of those that there are.

A *kind* recognises which observed variables of a declared model are its own, and makes of them a
record of *evidence*, from which the core makes the terms that its kernel scores objects by. The
core asks kinds for all it has to know of data, and knows none of them by name.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from pymc.model.core import Model

from pm_match.checks import lacking, warn
from pm_match.reading.ancestry import RV
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Component, Part

# Where packages that add a kind say so.
ENTRY_POINTS = "pm_match.kinds"


class Candidate(Protocol):
    """What looks like evidence of a kind, by ancestry: to be held against declared densities."""

    @property
    def covered(self) -> list[RV]:
        """The claimed variables that it is evidence of."""

    @property
    def checked(self) -> list[RV]:
        """The random variables whose declared densities `verified` asks for."""

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Evidence:
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


class Kind:
    """A data type: how it is recognised in a declared model, and what else it can do.

    Subclass it, and `register` an instance. A class, or a static method, may stand in the place of
    a method, as in ``state = SpectraState``.

    Examples
    --------
    >>> class Spectra(pmm.Kind):  # docs/extending.md has a complete one
    ...     name = "spectra"
    ...
    >>> pmm.register_kind(Spectra())
    """

    name: ClassVar[str]
    # Whether it is asked after all others, and of what they refuse: of potentials too.
    last: ClassVar[bool] = False
    # Whether its variables may be coarsened: the potentials that say so are its, too.
    potentials: ClassVar[bool] = False
    # Whether its search is for components with evidence of other kinds too.
    searches_all: ClassVar[bool] = False
    # Whether its search leaves alone which cluster has which name: labels may be known then.
    searches_known: ClassVar[bool] = False
    # Step classes of its own. Each says by its `order` when it takes its turn.
    steps: tuple[type, ...] = ()

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether a variable over assignments, observed or free, looks like the kind's own."""
        return False

    def why_not(self, context: Context, rv: RV) -> str | None:
        """Say why a variable is not claimed, if it looks much like the kind's own."""
        return None

    def candidates(
        self,
        context: Context,
        clusterings: Sequence[ClusteringCandidate],
        values: Sequence[RV],
    ) -> Sequence[Candidate]:
        """Find evidence among the variables of a component that the kind has claimed.

        Raises
        ------
        Refusal
            If a variable is not what it looks like.
        """
        return []

    def access(self, evidence: Any, model: Model, /) -> Any:
        """Make what reads and writes the variables of some evidence in points.

        All states of the evidence share it; it is not to keep the model.
        """
        raise lacking(self, "access")

    def state(self, evidence: Any, site: Any, access: Any, /) -> Any:
        """Make the state of some evidence for the units of a site.

        Parameters
        ----------
        evidence : Evidence
        site : clusters.evidence.Site
        access : object
            What `access` has made.

        Returns
        -------
        clusters.evidence.EvidenceState
        """
        raise lacking(self, "state")

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

    def parts(self, context: Context) -> tuple[list[Part], dict[str, str]]:
        """Find what is no partition with evidence, and by variable what is refused, and why."""
        return [], {}

    def search(self, component: Component) -> Callable | None:
        """Choose the search for a component whose evidence is all of this kind.

        Returns
        -------
        callable or None
            Takes a `search.chain.Chain`, the component's number and a generator, and leaves the
            chain at a mode. None for the search that serves every kind: sweeps, moves of groups.
        """
        return None

    def predictor(self, model: Model, evidence: Any, state: Any, /) -> Any:
        """Make what predicts new objects from draws, a `prediction.predictor.Predictor`.

        None, the default, if the kind predicts nothing: new objects are then refused in words.
        """
        return None

    def sharded(self, model: Model, evidence: Any, component: Component, /) -> Any:
        """Make what draws from sums over chunks of rows, or by passes over them.

        That is a `sharded.evidence.ShardedEvidence`.

        None, the default, if the kind cannot: `sample_sharded` then refuses it in words.
        """
        return None


_KINDS: list[Kind] = []
# Entry points are loaded when the first model is read: their packages may be what imports this one.
_loaded = False


def register_kind(kind: Kind) -> None:
    """Let models be served whose data are of a `kind`.

    The kind that was registered last is asked first, so that one may take over what another one
    claims too. A kind of the same name is replaced, unless it is one of the package's own. A
    package can register its kinds by an entry point of the group ``pm_match.kinds`` that names such
    an object, or a subclass of `Kind`.

    Parameters
    ----------
    kind : Kind

    Raises
    ------
    TypeError
        If it is none, or lacks its name.
    ValueError
        If its name is that of one of the package's own.

    Examples
    --------
    >>> class Spectra(pmm.Kind):  # docs/extending.md has a complete one
    ...     name = "spectra"
    ...
    >>> pmm.register_kind(Spectra())
    """
    if not isinstance(kind, Kind):
        raise TypeError(f"kind: expected an instance of pm_match.Kind; found {kind!r}")
    if not isinstance(getattr(kind, "name", None), str):
        raise TypeError(f"{type(kind).__name__}: expected a `name`; found none")
    taken = next((type(own) for own in _KINDS if own.name == kind.name), type(kind))
    if taken is not type(kind) and taken.__module__.startswith("pm_match."):
        raise ValueError(
            f"{type(kind).__name__}: expected a `name` that no kind of the package has; found "
            f"{kind.name!r}, the name of {taken.__name__}"
        )
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
            try:
                found = entry.load()
                register_kind(found() if isinstance(found, type) else found)
            except Exception as error:
                # One package that is broken must not keep all others from being served.
                warn(
                    f"the kind {entry.name!r} could not be loaded from its entry point "
                    f"{entry.value!r}: {error!r}"
                )
    return registered()


def registered() -> list[Kind]:
    """Return the kinds that are registered, whether or not entry points have been looked at."""
    return sorted(_KINDS, key=lambda kind: kind.last)


def kind_of(evidence: Evidence) -> Kind:
    """Return the kind that has read some evidence."""
    for kind in kinds():
        if kind.name == evidence.kind:
            return kind
    raise LookupError(
        f"{type(evidence).__name__}: expected its `kind` to be the name of a registered kind, "
        f"{[kind.name for kind in kinds()]}; found {evidence.kind!r}"
    )
