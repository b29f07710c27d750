"""Match clusters of tables or networks: ``python -m pm_match FILE FILE … [options]``.

``python -m pm_match warm [MODEL …]`` compiles what the models of the README need, and ends.
"""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import time
from collections.abc import Sequence

from pm_match.cli.arguments import kind_of_files, make_parser
from pm_match.cli.networks import Networks
from pm_match.cli.output import netcdf_engine as _netcdf_engine
from pm_match.cli.output import write_draws
from pm_match.cli.tables import Tables
from pm_match.cli.warm import warm
from pm_match.front.cells import InputError
from pm_match.matching import best_chain, diagnose, log_joint_rhat
from pm_match.plots import plot_log_joint, plot_trace
from pm_match.sampling import sample

_AGREE = 1.05  # R-hat above which chains are said to differ


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.

    Returns
    -------
    int
        Exit status: 0, also if sampling is interrupted: what there is of draws is reported. Without
        any, it exits with status 130, and for bad input with status 2, each with a message.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    parser = make_parser()
    if given[:1] == ["warm"]:
        try:
            warm(given[1:])
        except InputError as error:
            parser.exit(2, f"pm_match: error: {error}\n")
        return 0
    options = parser.parse_args(given)
    try:
        _need_examples()
        work = (Networks if kind_of_files(options) == "networks" else Tables)(options)
        out = options.out
        out.mkdir(parents=True, exist_ok=True)
    except (InputError, OSError) as error:
        parser.exit(2, f"pm_match: error: {error}\n")
    try:
        model = work.declare()
    except (ValueError, TypeError) as error:
        parser.exit(2, f"pm_match: error: {error}\n")

    print("\n".join(work.words))
    import matplotlib as mpl

    mpl.use("Agg")
    start = time.perf_counter()
    try:
        idata = sample(
            draws=options.draws,
            tune=options.tune,
            chains=options.chains,
            cores=options.cores,
            random_seed=options.seed,
            progressbar=sys.stderr.isatty(),
            compute_convergence_checks=False,  # the summary below tells
            model=model,
        )
    except KeyboardInterrupt as error:
        parser.exit(130, f"pm_match: interrupted: {error}\n")
    seconds = time.perf_counter() - start
    write_draws(idata, out / "draws.nc")

    rhat, found = log_joint_rhat(idata), diagnose(idata)
    kept = best_chain(idata) if options.best_chain else idata
    summary, figures = work.report(kept, out, found)
    figures |= {"trace": plot_trace(idata), "log_joint": plot_log_joint(idata)}
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=150)

    print(summary)
    print("\nMean log joint of each chain\n")
    means = idata["sample_stats"]["log_joint"].mean("draw").to_series()
    print(means.to_string(float_format="{:.1f}".format, header=False))
    print(f"\nR-hat of the log joint  {rhat:.3f}   (chains agree when below {_AGREE})")
    if options.best_chain:
        print(f"reported                chain {int(kept['posterior']['chain'].item())}, the best")
    elif found.chains["group"].nunique() > 1:
        print("reported                the average of chains that differ: consider --best-chain")
    print()
    for line in found.words.splitlines():
        print(textwrap.fill(line, 79, subsequent_indent="  "))
    print()
    print(f"sampling                {seconds:.1f} s")
    print(f"written to              {out}")
    return 0


def _need_examples() -> None:
    missing = [] if importlib.util.find_spec("matplotlib") else ["matplotlib"]
    if _netcdf_engine() is None:
        missing.append("h5netcdf with h5py")
    if missing:
        raise InputError(f'{" and ".join(missing)} not installed: pip install "pm_match[examples]"')


if __name__ == "__main__":
    sys.exit(main())
