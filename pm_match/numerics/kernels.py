"""How every compiled kernel of the package is made: cached on disk, safe after an edit.

Numba's cache looks only at the file of the function that it compiled, into which others may be
compiled: its helpers in other files. Here a cache is thrown away when any file changes that it can
have been compiled from. Those are the files of `numerics` and `clusters`, which all rooms use, and
of the function's own room; or, for a function from elsewhere, of its own package (or its file, if
that is in none) and all of this one. What a package from elsewhere compiles in from a third one, or
a file in no package from its neighbours, is not watched.

Kernels are compiled without numba's runtime for memory (`_nrt`): they cannot allocate, and they do
not count references, which cost several times the arithmetic of an inner loop over small arrays.
"""

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

from pm_match.numerics.numba_internals import KernelCompiler, PartCompiler, for_any_number, keep

_ROOT = Path(__file__).parents[1]
# What every room may have compiled into its kernels.
_SHARED = ("numerics", "clusters")
# Sums keep their order (no reassociation), so that draws are the same bit for bit wherever the
# same machine runs them; multiply and add may fuse.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract"},
    "_nrt": False,
    "pipeline_class": KernelCompiler,
}
_UNWRAPPED = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PART = _UNWRAPPED | {"pipeline_class": PartCompiler}


def entry(function: Callable) -> Any:
    """Compile a kernel that Python calls, with a cache on disk that knows what it is made of."""
    return _cached(function, _OPTIONS)


def threaded(function: Callable) -> Any:
    """Compile a kernel as `entry` does, which lets other threads run meanwhile."""
    return _cached(function, _OPTIONS | {"nogil": True})


def addressed(function: Callable, *modules: str) -> Any:
    """Compile a part that kernels call by its address, with a cache on disk as that of `entry`.

    Files of the named `modules` are watched besides those of the function.
    """
    return _cached(function, _UNWRAPPED, *modules)


def part(function: Callable) -> Any:
    """Compile a function that only kernels call: into each of them, and not on its own."""
    return for_any_number(njit(**PART)(function))


def reducing(function: Callable) -> Any:
    """Compile a part whose order of operations does not matter, so that it may be vectorised."""
    options = PART | {"fastmath": {"nnan", "nsz", "reassoc"}}
    return for_any_number(njit(**options)(function))


def template(function: Callable) -> Any:
    """Compile a part that is given other parts: into each caller, with these in their places."""
    return njit(**PART, inline="always")(function)


def inlined(function: Callable) -> Any:
    """Compile a part into its callers: for what inner loops of a few dozen numbers call."""
    return for_any_number(njit(**PART, forceinline=True)(function))


def watched(module: str) -> list[Path]:
    """Folders and files that functions of a module can be compiled from; none if not known."""
    package, *inside = module.split(".")
    if package == _ROOT.name:
        rooms = [_ROOT / room for room in dict.fromkeys((*_SHARED, *inside[:1]))]
        return [room if room.is_dir() else room.with_suffix(".py") for room in rooms]
    found = sys.modules.get(package)
    own = getattr(found, "__path__", None) or [getattr(found, "__file__", None)]
    # What is defined in a script has other types in every process.
    if package == "__main__" or None in own:
        return []
    return [_ROOT, *map(Path, own)]


def _digest(place: Path) -> str:
    """Digest of the Python files in a folder, or of a file; nothing if there are none."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    contents = [file.read_bytes() for file in files]
    return hashlib.sha256(b"\0".join(contents)).hexdigest() if contents else ""


_digest_of_ours = cache(_digest)


def stamp(*modules: str) -> tuple[str, ...]:
    """Digest the files that functions of some modules can be compiled from, if they are known."""
    found = []
    for module in modules:
        places = watched(module)
        digests = [(_digest_of_ours if p.is_relative_to(_ROOT) else _digest)(p) for p in places]
        if not all(digests) or not digests:
            return ()
        found += digests
    return tuple(found)


def _cached(function: Callable, options: dict[str, Any], *modules: str) -> Any:
    dispatcher = njit(**options)(function)
    try:
        present = stamp(function.__module__, *modules)
    except OSError:
        present = ()
    if present:
        keep(dispatcher, function, present)
    return dispatcher
