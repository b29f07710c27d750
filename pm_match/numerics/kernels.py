"""How every compiled kernel of the package is made: cached on disk, safe after an edit.

Numba's cache looks only at the file of the function that it compiled. A sweep has the code of
every evidence term compiled into it, so its cache must also be thrown away when *their* files
change: the stamp used here covers all of the package's kernels. What is compiled for a term from
elsewhere is not kept on disk, because nobody would notice when that term changed.

Kernels are compiled without numba's runtime for memory (`_nrt`): they cannot allocate, and they do
not count references, which cost several times the arithmetic of an inner loop over small arrays.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile

_ROOT = Path(__file__).parents[1]
_KERNELS = (
    "numerics/*.py",
    "clusters/*.py",
    "features/*.py",
    "networks/*.py",
    "normal/*.py",
    "views/*/*.py",
    "matching/pooled.py",
    "matching/reallocate.py",
)
_FILES = [file for pattern in _KERNELS for file in _ROOT.glob(pattern)]
_STAMP = (
    max(file.stat().st_mtime_ns for file in _FILES),
    sum(file.stat().st_size for file in _FILES),
)
# Sums keep their order (no reassociation), so that draws are the same bit for bit wherever the
# same machine runs them; multiply and add may fuse.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "_nrt": False}
_PART = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINED = _PART | {"forceinline": True}


class _PackageCache(IndexDataCacheFile):
    """Numba's cache files of one kernel, for signatures whose types are the package's own."""

    def save(self, key, data):
        if not _foreign(key[0]):
            super().save(key, data)

    def _load_index(self):
        try:
            return super()._load_index()
        except (AttributeError, ImportError, EOFError):
            # Written for something that is no longer there.
            return {}


def _foreign(kind: Any) -> bool:
    """Whether a type, or a type inside it, is a named tuple from outside the package."""
    if hasattr(kind, "instance_class"):
        return kind.instance_class.__module__.partition(".")[0] != __package__.partition(".")[0]
    inside = kind if isinstance(kind, tuple) else getattr(kind, "types", ())
    return any(_foreign(part) for part in inside)


def entry(function: Callable) -> Any:
    """Compile a kernel that Python calls, with a cache on disk that knows the whole package."""
    return _cached(function, _OPTIONS)


def threaded(function: Callable) -> Any:
    """Compile a kernel as `entry` does, which lets other threads run meanwhile."""
    return _cached(function, _OPTIONS | {"nogil": True})


def _cached(function: Callable, options: dict[str, Any]) -> Any:
    dispatcher = njit(cache=True, **options)(function)
    try:
        old = dispatcher._cache._cache_file
        name = old._index_name.removesuffix(".nbi")
        dispatcher._cache._cache_file = _PackageCache(old._cache_path, name, _STAMP)
    except AttributeError:
        # A numba whose cache is built otherwise: rather none than one that can go stale.
        return njit(**options)(function)
    return dispatcher


def part(function: Callable) -> Any:
    """Compile a function that only kernels call: no wrapper for Python, slow to make."""
    return njit(**_PART)(function)


def reducing(function: Callable) -> Any:
    """Compile a part whose order of operations does not matter, so that it may be vectorised."""
    return njit(**{**_PART, "fastmath": {"nnan", "nsz", "reassoc"}})(function)


def inlined(function: Callable) -> Any:
    """Compile a part into its callers.

    For inner loops: a term is some twenty arrays, and to hand those over in a call costs more than
    the arithmetic.
    """
    return njit(**INLINED)(function)
