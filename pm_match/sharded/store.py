"""Labels of kept draws on disk: a Zarr group, with chunks like the data's."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import xarray as xr
from numpy.typing import NDArray

from pm_match.matching.draws import PREFIX, SAMPLE_DIMS
from pm_match.sharded.data import Piece


def scale(module: str) -> Any:
    """Import what the extra ``pm_match[scale]`` brings: an `ImportError` says so if it does not."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"sample_sharded needs {module!r}, which is not installed: "
            "pip install 'pm_match[scale]'"
        ) from error


class Store:
    """Labels and running sums of kept draws, by assignment, in a Zarr group.

    Every shard writes whole chunks of its own, and writes the same if it is asked again: a draw's
    sum of certainties is written beside that of the draw before, not over it.

    Raise `TypeError` if `path` is none, `FileExistsError` if there is something already, and
    `OSError` if no folder can be made there.
    """

    def __init__(self, path: str | Path):
        if not isinstance(path, str | Path):
            raise TypeError(f"labels: expected the path of a folder; found {path!r}")
        # Workers may work in another folder. What is elsewhere, Zarr looks after.
        self._local = "://" not in str(path)
        self.path = str(Path(path).expanduser().absolute()) if self._local else str(path)
        scale("zarr")
        self._check_free()

    def _check_free(self) -> None:
        if not self._local:
            return
        if os.path.lexists(self.path):
            raise FileExistsError(
                f"labels: expected a folder that does not exist yet; found {self.path!r}. Nothing "
                "was written: give another folder, or remove this one"
            )
        parents = Path(self.path).parents
        above = next((str(own) for own in parents if os.path.lexists(own)), str(parents[-1]))
        try:
            # All that tells whether something can be made there is to make it.
            with TemporaryDirectory(dir=above):
                pass
        except OSError as error:
            raise type(error)(
                error.errno,
                f"labels: expected a folder that can be made; found that nothing can be made in "
                f"{above!r} ({error.strerror})",
            ) from error

    def create(self, pieces: Sequence[Piece], n_draws: int, dims: Mapping[str, str]) -> None:
        """Make the group; `dims` are those of the objects, by assignment.

        Raise `FileExistsError` if somebody else has made something there meanwhile.
        """
        self._check_free()
        group = scale("zarr").open_group(self.path, mode="w-")
        for assignment, dim in dims.items():
            own = [piece for piece in pieces if piece.assignment == assignment]
            n, rows = own[-1].stop, len(own[0])
            group.create_array(
                assignment,
                shape=(1, n_draws, n),
                chunks=(1, 1, rows),
                dtype="int16",
                dimension_names=(*SAMPLE_DIMS, dim),
            )
            group.create_array(
                _sums(assignment),
                shape=(2, n),
                chunks=(1, rows),
                dtype="float32",
                dimension_names=("parity", dim),
            )
            group.create_array(
                certainty_of(assignment),
                shape=(n,),
                chunks=(rows,),
                dtype="float32",
                dimension_names=(dim,),
            )

    def _group(self) -> Any:
        return scale("zarr").open_group(self.path, mode="r+")

    def write(self, piece: Piece, number: int, labels: NDArray, certainty: NDArray) -> None:
        """Write the labels of a chunk in a draw, and add the certainties to those before."""
        group, rows = self._group(), slice(piece.start, piece.stop)
        group[piece.assignment][0, number, rows] = labels
        sums = group[_sums(piece.assignment)]
        before = sums[(number + 1) % 2, rows] if number else 0.0
        sums[number % 2, rows] = before + certainty

    def finish(self, pieces: Sequence[Piece], n_draws: int) -> None:
        """Turn sums over `n_draws` draws into means, and forget draws that were not finished."""
        group, assignments = self._group(), {piece.assignment for piece in pieces}
        for piece in pieces:
            rows = slice(piece.start, piece.stop)
            mean = group[_sums(piece.assignment)][(n_draws - 1) % 2, rows] / n_draws
            group[certainty_of(piece.assignment)][rows] = mean
        for assignment in assignments:
            del group[_sums(assignment)]
        for assignment in assignments:
            labels = group[assignment]
            if labels.shape[1] > n_draws:
                labels.resize((1, n_draws, labels.shape[2]))

    def read(self, n_draws: int) -> xr.Dataset:
        """Open what there is of the first draws: labels, and certainties if they were finished."""
        there = set(self._group().array_keys())
        left = {name for name in there if _sums(name) in there}
        unfinished = {own for name in left for own in (_sums(name), certainty_of(name))}
        # One by one: of some, draws that were not finished may not have been forgotten.
        found = [
            xr.open_zarr(self.path, consolidated=False, drop_variables=there - {name})
            for name in there - unfinished
        ]
        return xr.merge(
            [own.isel(draw=slice(n_draws)) if "draw" in own.dims else own for own in found]
        )


def certainty_of(assignment: str) -> str:
    """Name the mean probability of the likeliest label of an assignment's objects."""
    return f"certainty_{assignment.removeprefix(PREFIX)}"


def _sums(assignment: str) -> str:
    return f"_sums_{assignment}"
