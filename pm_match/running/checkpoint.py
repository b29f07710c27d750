"""What is kept of a run in a folder, so that it can be resumed.

``run.json`` says what was asked for, and of which model; ``starts.npz`` where chains start; and
``chain-0/00000000.npz`` has draws of a chain, from the number in its name on, with all that its
steps had changed after the last of them. A chain's draws end where the next file is missing.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import flatten_steps
from pymc.util import get_random_generator

from pm_match.reading.probe import initial_point, log_densities
from pm_match.running.files import read_values, write, write_values
from pm_match.running.plain_values import packed, unpacked
from pm_match.running.record import Record, unwritable

_FORMAT = 1
# What draws are the same with, to the last bit.
_PACKAGES = ("pm_match", "pymc", "pytensor", "numpy", "scipy", "numba")
# Log densities that differ by more are another model's, not another machine's.
_RTOL, _ATOL = 1e-6, 1e-8
_TITLES = {"variables": "", "log_densities": "the log density at the initial point of "}


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a run."""

    folder: Path
    run: dict[str, Any]  # what is in ``run.json``

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], run: Mapping[str, Any], starts: Any = None
    ) -> Self:
        """Begin a run in a new or empty folder.

        `run`: in the form of JSON; `starts`: where chains start, if that is known
        (see `keep_starts`). Raise `FileExistsError` if there is anything in the folder. Raise
        `OSError` if it cannot be written. Raise `TypeError` if starts are not made of numbers.
        """
        try:
            packed(starts, [])
        except TypeError as error:
            raise TypeError(f"checkpoint: initvals: {error}.") from error
        path = Path(folder)
        found = sorted(own.name for own in path.iterdir()) if path.is_dir() else []
        if "run.json" in found:
            raise FileExistsError(
                f"checkpoint: {str(path)!r} holds a run; pmm.resume({str(path)!r}) goes on with it."
            )
        if found:
            raise FileExistsError(
                f"checkpoint: expected a new or empty folder; found {found[0]!r} in {str(path)!r}."
            )
        made = cls(path, {"format": _FORMAT, "versions": versions(), **run})
        try:
            for number in range(run["chains"]):
                made._chain(number).mkdir(parents=True, exist_ok=True)
            made._write_run()
        except OSError as error:
            raise OSError(unwritable(path, error)) from error
        if starts is not None:
            made.keep_starts(starts)
        return made

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a run.

        Raise `FileNotFoundError` if there is none in the folder. Raise `ValueError` if ``run.json``
        is damaged, or in the format of another version.
        """
        path = Path(folder)
        try:
            run = json.loads((path / "run.json").read_bytes())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{str(path)!r} holds no run that pmm.sample(checkpoint=...) has begun."
            ) from None
        except ValueError as error:
            raise ValueError(f"{str(path / 'run.json')!r} is damaged: {error}.") from error
        found = run.get("format") if isinstance(run, dict) else None
        if found != _FORMAT:
            raise ValueError(
                f"{str(path / 'run.json')!r}: expected format {_FORMAT}; found {found!r}."
            )
        return cls(path, run)

    def extend(self, draws: int) -> None:
        """Ask for more draws.

        Raise `ValueError` if they are fewer than were asked for.
        """
        before = self.run["draws"]
        if draws < before:
            raise ValueError(f"resume: draws: expected at least the run's {before}; found {draws}.")
        if draws > before:
            self.run["draws"] = draws
            self._write_run()

    def check(self, model: Mapping[str, Mapping[str, Any]], steps: Sequence[Any]) -> None:
        """Refuse a model (its `fingerprint`) or steps (their `settings`) that are not the run's.

        Raise `ValueError` if it is not; the message says what differs.
        """
        differences = []
        for what, title in _TITLES.items():
            there, here = self.run["model"][what], model[what]
            for name in {**there, **here}:
                expected, found = there.get(name, "none"), here.get(name, "none")
                if not _same(expected, found):
                    differences.append(f"{title}{name!r}: expected {expected}; found {found}")
        if differences:
            raise ValueError(
                f"the model is not the one of the run in {str(self.folder)!r}: "
                f"{'. '.join(differences[:3])}."
            )
        if steps != self.run["steps"]:
            raise ValueError(
                f"the steps given are not those of the run in {str(self.folder)!r}: expected "
                f"{self.run['steps']}; found {steps}."
            )

    def check_versions(self) -> None:
        """Refuse to go on with other versions of what draws depend on.

        Raise `ValueError` if any differs.
        """
        here, there = versions(), self.run["versions"]
        other = [name for name in here if here[name] != there.get(name)]
        if other:
            raise ValueError(
                f"the run in {str(self.folder)!r} was begun with other versions, so further draws "
                "would differ: expected "
                f"{', '.join(f'{name} {there.get(name)}' for name in other)}; found "
                f"{', '.join(f'{name} {here[name]}' for name in other)}"
            )

    def starts(self) -> Any:
        """Return where chains start; None if that is not known yet.

        Raise `ValueError` if the file is damaged.
        """
        try:
            return unpacked(*read_values(self.folder / "starts.npz"))
        except FileNotFoundError:
            return None

    def keep_starts(self, starts: Any) -> None:
        """Keep where chains start: numbers and arrays by name, for each chain or for all.

        Raise `OSError` if they cannot be written.
        """
        try:
            write_values(self.folder / "starts.npz", starts)
        except OSError as error:
            raise OSError(unwritable(self.folder, error)) from error

    def check_draws(self) -> list[int]:
        """Count every chain's draws on disk, tuning included (see `Record.check`)."""
        return [self._record(number, 0).check() for number in range(self.run["chains"])]

    def written(self, number: int) -> tuple[int, int]:
        """Return how many draws of a chain its files say that there are, and were to be."""
        files = sorted(self._chain(number).glob("*.npz"))
        if not files:
            return 0, 1
        last = read_values(files[-1])[0]["dict"]
        return int(files[-1].stem) + last["n_draws"], last["total"]

    @property
    def ended(self) -> bool:
        """Whether all chains have all draws that were asked for."""
        return all(n == total for n, total in map(self.written, range(self.run["chains"])))

    def record(self, rng: np.random.Generator, total: int) -> Record:
        """Return the record of the chain that has the generator `rng`, one of those of the seed."""
        spawned = _seed_sequence(rng).spawn_key[-1]
        return self._record(spawned - self.run["seed"]["n_children_spawned"], total)

    def _record(self, number: int, total: int) -> Record:
        return Record(self._chain(number), total, self.run["every"])

    def _chain(self, number: int) -> Path:
        return self.folder / f"chain-{number}"

    def _write_run(self) -> None:
        write(self.folder / "run.json", json.dumps(self.run, indent=1).encode())


def seed_state(random_seed: Any) -> dict[str, Any]:
    """Return what makes the seed again: arguments of `numpy.random.SeedSequence`.

    Raise `ValueError` if the seed is a generator of another kind than NumPy's own choice.
    """
    rng = get_random_generator(random_seed)
    if not isinstance(rng.bit_generator, np.random.PCG64):
        raise ValueError(
            "checkpoint: expected a number as random_seed, or a generator of "
            f"numpy.random.default_rng; found {type(rng.bit_generator).__name__}."
        )
    state = _seed_sequence(rng).state
    plain = {name: state[name] for name in ("pool_size", "n_children_spawned")}
    entropy: Any = state["entropy"]
    entropy = int(entropy) if np.ndim(entropy) == 0 else [*map(int, entropy)]
    return plain | {"entropy": entropy, "spawn_key": [*map(int, state["spawn_key"])]}


def _seed_sequence(rng: np.random.Generator) -> np.random.SeedSequence:
    own = rng.bit_generator.seed_seq
    assert isinstance(own, np.random.SeedSequence)
    return own


def fingerprint(model: Model) -> dict[str, dict[str, Any]]:
    """Describe a model: its variables, and their log densities at its initial point."""
    point = initial_point(model)
    own = [*model.basic_RVs, *model.potentials]
    return {
        "variables": {
            name: f"{value.dtype} of shape {value.shape}" for name, value in point.items()
        },
        "log_densities": {
            rv.name: float(np.sum(found)) for rv, found in log_densities(model, own)(point).items()
        },
    }


def settings(steps: Sequence[Any]) -> list[dict[str, Any]]:
    """Describe steps: what they are, what they draw, and what they were told."""
    found = []
    for step in (own for given in steps for own in flatten_steps(given)):
        state = step.sampling_state
        told = {
            own.name: getattr(state, own.name)
            for own in fields(state)
            if own.metadata.get("frozen")
        }
        told |= getattr(step, "settings", dict)()
        plain = {
            name: own for name, own in told.items() if isinstance(own, bool | int | float | str)
        }
        found.append(
            {"step": type(step).__name__, "draws": [v.name for v in step.vars], "settings": plain}
        )
    return found


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return bool(np.isclose(expected, found, _RTOL, _ATOL, equal_nan=True))
    return expected == found


def versions() -> dict[str, str]:
    """Return the versions of the packages that draws depend on."""
    return {name: version(name) for name in _PACKAGES}
