"""Files that are there as a whole or not at all, and hold no code."""

import io
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.running.plain_values import packed


class DamagedError(ValueError):
    """A file that was written once and cannot be read now."""


def write(path: Path, content: bytes) -> None:
    """Write a file: whoever reads it, whenever, finds this or what was there before.

    Raise `OSError` if it cannot be written; what was there before is left as it was.
    """
    # Of the process's own: one that was killed may leave another that has not noticed.
    elsewhere = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(elsewhere, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(elsewhere, path)
    except BaseException:
        elsewhere.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        # The name is on disk once the folder is.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_values(path: Path, value: Any) -> None:
    """Write a value made of numbers, strings, lists, dicts, arrays and states (see `packed`).

    Arrays are numbered; JSON, kept as bytes in one more array, says what they are.
    """
    arrays: list[NDArray] = []
    contents = json.dumps(packed(value, arrays)).encode()
    named: dict[str, Any] = {str(number): own for number, own in enumerate(arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, **named, contents=np.frombuffer(contents, np.uint8))
    write(path, buffer.getvalue())


def read_values(path: Path) -> tuple[Any, list[NDArray]]:
    """Read what `write_values` wrote: what `unpacked` takes.

    Raise `FileNotFoundError` if there is none. Raise `DamagedError` if it is not whole. Raise
    `ValueError` if it holds what was not written there: pickled objects are not looked at.
    """
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        contents = json.loads(arrays.pop("contents").tobytes())
        return contents, [arrays[str(number)] for number in range(len(arrays))]
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise DamagedError(f"{str(path)!r} is damaged: {error}") from error
    except ValueError as error:
        # NumPy takes whatever it does not know for a pickle.
        if not content.startswith(b"PK"):
            raise DamagedError(f"{str(path)!r} is damaged: it is not an archive") from error
        raise ValueError(
            f"{str(path)!r} is not a file of pm_match, and is not read: {error}"
        ) from error
