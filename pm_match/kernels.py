"""How every compiled kernel of the package is made: cached on disk, safe after an edit.

Numba's cache looks only at the file of the function that it compiled. A sweep has the code of
every evidence term compiled into it, so its cache must also be thrown away when *their* files
change: the stamp used here covers all of the package's kernels.

Kernels are compiled without numba's runtime for memory (`_nrt`): they cannot allocate, and they do not
count references, which cost several times the arithmetic of an inner loop over small arrays.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

_ROOT = Path(__file__).parent
_FILES = [*_ROOT.glob("*.py"), *_ROOT.glob("partition/*.py"), *_ROOT.glob("evidence/*.py")]
_STAMP = (
    max(file.stat().st_mtime_ns for file in _FILES),
    sum(file.stat().st_size for file in _FILES),
)
# Sums keep their order (no reassociation), so that draws are the same bit for bit wherever the same
# machine runs them; multiply and add may fuse.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "_nrt": False}
_PART = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINED = _PART | {"forceinline": True}


def entry(function: Callable) -> Any:
    """Compile a kernel that Python calls, with a cache on disk that knows the whole package."""
    dispatcher = njit(cache=True, **_OPTIONS)(function)
    cache_file = getattr(dispatcher._cache, "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _STAMP
    return dispatcher


def part(function: Callable) -> Any:
    """Compile a function that only kernels call: no wrapper for Python, which takes long to make."""
    return njit(**_PART)(function)


def inlined(function: Callable) -> Any:
    """Compile a part into its callers.

    For inner loops: a term is some twenty arrays, and to hand those over in a call costs more than the
    arithmetic.
    """
    return njit(**INLINED)(function)
