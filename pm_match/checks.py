"""Checks of what the declared models are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

__all__ = [
    "check_count",
    "check_option",
    "check_pair",
    "check_positive",
    "counts_by_view",
    "link_sets",
]


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, found {value!r}.")


def counts_by_view(name: str, given: Any, views: Collection[str], least: int) -> dict[str, int]:
    """Give numbers of at least `least` by view: one for all of them, or one for each."""
    if not isinstance(given, Mapping):
        check_count(name, given, least)
        return dict.fromkeys(views, int(given))
    for view in given:
        if view not in views:
            raise ValueError(f"{name}: no view {view!r}; the views are {list(views)}.")
    for view in views:
        if view not in given:
            raise ValueError(f"{name}: expected a number for view {view!r}, found none.")
        check_count(f"{name} of view {view!r}", given[view], least)
    return {view: int(given[view]) for view in views}


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive, finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive number, found {value!r}.")


def check_pair(name: str, value: Any, what: tuple[str, str]) -> None:
    """Refuse what is no pair of positive numbers."""
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise ValueError(f"{name} must be ({what[0]}, {what[1]}), found {value!r}.")
    for part, number in zip(what, value, strict=True):
        check_positive(f"{name}'s {part}", number)


def check_option(name: str, value: Any, options: Sequence[str]) -> None:
    """Refuse what is none of the options."""
    if value not in options:
        listed = ", ".join(map(repr, options[:-1]))
        raise ValueError(f"{name} must be {listed} or {options[-1]!r}, found {value!r}.")


def link_sets(links: Any) -> list[Mapping[str, Any]]:
    """Give links as a list of mappings: there may be none, one or several."""
    if links is None:
        return []
    found = [links] if isinstance(links, Mapping) else links
    if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
        raise TypeError(
            "links must be a mapping from names to positions, or a sequence of such mappings, "
            f"found an object of type {type(links).__name__}."
        )
    return list(found)
