"""Match clusters of tables or networks: ``python -m pm_match FILE FILE … [options]``.

``python -m pm_match warm [MODEL …]`` compiles what the models of the README need, and ends.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pm_match.cli.arguments import arguments_of, as_options, make_parser
from pm_match.cli.warm import warm
from pm_match.find_matching import find_matching
from pm_match.front.cells import InputError
from pm_match.front.prepare import prepare
from pm_match.front.result import MatchResult
from pm_match.front.write import check_folder
from pm_match.reading import UnservedModelError
from pm_match.sampling import sample


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Say what warnings say, and not where in the code."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda said, *_: f"pm-match: warning: {as_options(str(said))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


@_warnings_in_words()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    `argv`: arguments. Default: those of the process. Return the exit status: 0, also if sampling is
    interrupted: what there is of draws is reported. Without any, it exits with status 130, and for
    bad input with status 2, each with a message.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    parser = make_parser()
    if given[:1] == ["warm"]:
        try:
            warm(given[1:])
        except ValueError as error:
            parser.exit(2, f"pm-match: error: {error}\n")
        return 0
    options = parser.parse_args(given)
    try:
        if options.out is not None:
            check_folder(options.out, options.force)
            _make(options.out)
        prepared = prepare(options.files, **arguments_of(options))
        model = prepared.declare()
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.exit(2, f"pm-match: error: {as_options(str(error))}\n")
    print(as_options(str(prepared)), flush=True)
    shown, said = sys.stderr.isatty(), len(prepared.notes)
    try:
        settled = prepared.settled(options.seed, shown, cores=options.cores)
        for note in settled.notes[said:]:
            print(as_options(note), flush=True)
        if settled is not prepared:
            with warnings.catch_warnings(action="ignore"):  # what it says of data has been said
                prepared, model = settled, settled.declare()
        if options.search_only:
            idata = find_matching(model, random_seed=options.seed, progressbar=shown)
        else:
            idata = sample(
                draws=options.draws,
                tune=options.tune,
                chains=options.chains,
                cores=options.cores,
                random_seed=options.seed,
                progressbar=shown,
                compute_convergence_checks=False,  # the result tells
                model=model,
            )
    except UnservedModelError as error:  # links that contradict each other
        parser.exit(2, f"pm-match: error: {as_options(str(error))}\n")
    except KeyboardInterrupt as error:
        parser.exit(130, f"pm-match: interrupted: {str(error) or 'there are no draws yet'}\n")
    settings = {"random_seed": options.seed}
    if not options.search_only:
        settings |= {name: getattr(options, name) for name in ("draws", "tune", "chains")}
    only_best = options.best_chain
    result = MatchResult(idata, model, prepared, only_best=only_best, settings=settings)
    print()
    for line in map(as_options, result.verdict()):
        print(textwrap.fill(line, 79, subsequent_indent="  "))
    print(f"\n{result.clusters.to_string()}\n")
    if not options.search_only:
        for line in as_options(str(result.diagnosis)).splitlines():
            print(textwrap.fill(line, 79, subsequent_indent="  ") if line[:2] == "- " else line)
        print()
    if options.out is None:
        print("Nothing is written: --out DIR names a folder.")
        return 0
    import matplotlib as mpl

    mpl.use("Agg")
    result.write(options.out, top=options.top, force=True)
    print(f"Written to {options.out}.")
    return 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            "--out: expected a folder that can be made and written to; found "
            f"{folder} ({error.strerror})"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
