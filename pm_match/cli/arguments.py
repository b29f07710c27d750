"""The command line's arguments and its help."""

from __future__ import annotations

import argparse
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pm_match.front.cells import InputError
from pm_match.front.columns import USES

# What messages say, and how it is said here.
_SPELLED = (
    (r"columns=\{('[^']*'|\"[^\"]*\"): 'ignore'\}", r"--ignore \1"),
    (r"columns=\{('[^']*'|\"[^\"]*\"): '(\w+)'\}", r"--columns \1=\2"),
    (r"^columns: no column", "--ignore, --columns: no column"),
    (
        r"^columns: expected a list for networks.*",
        "--ignore, --columns: expected none, as these are networks",
    ),
    (r"^(id|links|dispersion|power|correlated): ", r"--\1: "),
    (r"^cannot_link: ", "--cannot-link: "),
    (r"types=\['(\w+)'\]", r"--types \1"),
    (r"types=\['(\w+)', '(\w+)'\]", r"--types \1,\2"),
    (r"types=\[…\]", "--types"),
    (r"model='relational_clusters'", "--edges"),
    (r"(family|absent)=['\"]([\w-]+)['\"]", r"--\1 \2"),
    (r"\bdispersion=([\d.]+)", r"--dispersion \1"),
    (r"exposure='degree'", "--degree-correction"),
    (r"self_loops=True", "--self-loops"),
    (r"^(\w+: no) option 'power'.*", r"\1 --power"),
    (r"^(\w+: no) option 'correlated'.*", r"\1 --correlated or --no-correlated"),
    (r"(symmetric|force|correlated)=True", r"--\1"),
    (r"correlated=False", "--no-correlated"),
    # All files have the same --id.
    (r" \(where ids have names of their own, [^)]*\)", ""),
    (r"\bid=('[^']*')", r"--id \1"),
    (r"\(links=\)", "(--links)"),
    (r"(\(days since one day for all tables): .*?\.dt\.days[^)]*\)", r"\1)"),
    (r"`columns`", "--columns"),
    # Of verdicts, and of the diagnosis.
    (r"\(find_matching\)", "(--chains)"),
    (
        r"take clusters of the best chain \(best_chain\)",
        "report the best chain alone (--best-chain)",
    ),
    (r"(tune for longer)", r"\1 (--tune)"),
    (r"(Sample longer, with more tune)", r"\1 (--draws, --tune)"),
    (r"(take \d+ or more|times as many draws)", r"\1 (--draws)"),
    (r"Compare four", r"Compare four (--chains)"),
    (r"declare more", "allow more (--clusters)"),
    (r"Declare more clusters", "Allow more (--clusters)"),
    (r": partition_estimate\(.*\) divides more", ""),
    (r"Without relevance,", "With --no-relevance,"),
)

_DESCRIPTION = """\
Match clusters across data sets that share no keys: which objects of one are like which objects of
another, found by posterior sampling. Each FILE is one data set, named after the file: a table of
objects by features, or a network of rows by columns (documents by words, people by people).
"""

_EPILOG = """\
tables: FILE.csv
  Separated by commas (semicolons, tabs, bars), a header line, a row for each object, a column for
  each feature: numbers, or text that stands for categories. The first column holds the objects'
  labels if its header is empty, or if it is text and differs in every row; --id names another.
  Otherwise objects are numbered from 1. Empty cells (also NA, NaN and NULL) are missing values.
  Columns with one value, and those that only name objects, are left out; of a few objects, not
  where another table has such values. It prints which columns are used, and how.

networks: FILE.mtx, FILE.mtx.gz, FILE.npz, or with --edges FILE.csv
  MatrixMarket (rows and columns are numbered from 1), sparse matrices as scipy.sparse.save_npz
  writes them (numbered from 0), or edge lists: comma-separated, a header line, one row an edge,
  with the row's label, the column's label, and perhaps a value:
      document,word,count
      d1,ball,2
      d1,goal,1
  Objects without any edge are in no edge list; a matrix can have them. Rows of all networks share
  clusters, and so do columns. If rows and columns are the same objects, say --one-mode, or
  --symmetric if edges have no direction; with --one-mode, a MatrixMarket header can say so too.
  Edge lists may have three and more types of objects: --types user,film,tag. Values are 0 or 1, or
  counts, or with --family normal any numbers of mean 0 and variance about 1. Edges that are listed
  several times are counted. Objects that fit no cluster are irrelevant, unless --no-relevance.

the links
  LINKS.csv says which objects are known to share a cluster. Its header names domains (files
  without .csv); each row has the labels of linked objects, at least two; leave the others empty:
      upright,half
      img17,img203
      img4,img11
  For networks the header has network and type, such as english_word,german_word; every object is
  then relevant, as with --no-relevance.

what comes out, in DIR
  clusters.csv            every object: domain (or network and type), object, cluster in the point
                          estimate (0 is the largest, and -1 none), and how sure that is: its
                          probability of being in any cluster (relevance), its mean probability of
                          sharing it with the others there (confidence), and more
  cluster_sizes.csv       objects in each cluster and domain (or type, cluster and network)
  draws.nc                all draws, as netCDF: xarray.open_datatree("draws.nc")
  report.html             all of this on a page that opens in a browser, with a diagnosis
  trace.png               the chains, draw by draw
  log_joint.png           the chains side by side: those far below the best are in other modes
  alluvial.png            the clusters of each data set, and which have a counterpart
  for tables
  match_A_B.csv           P(same cluster) of each object of A (rows) and of B (columns)
  match_probability.png   the match probabilities, objects ordered by cluster
  clusters.png            what sets the clusters apart: their mean profiles
  for networks
  match_A_B_TYPE.csv      each object of A with its most likely partners in B: object, partner,
                          probability; if there is one network, its own partners
  networks.png            the networks ordered by relevance and cluster, if they are matrices

examples
  pm-match upright.csv half.csv --links links.csv --seed 1 --out result
  pm-match english.mtx german.mtx --types document,word --seed 1 --out result
  pm-match firm1.csv firm2.csv --edges --symmetric --types person --out result

  pm-match warm [MODEL ...] compiles the kernels of common models, so that the first run
  need not: for container images and test machines
"""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="pm-match",
        usage="%(prog)s [options] FILE [FILE ...]",  # all of them take a screen
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pm_match {version('pm_match')}")
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a file for each data set"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the results (default: none is written)"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a result that is already in DIR"
    )
    parser.add_argument("--links", type=Path, metavar="LINKS.csv", help="objects known to match")
    parser.add_argument(
        "--cannot-link", type=Path, metavar="APART.csv", help="objects known not to match"
    )
    parser.add_argument(
        "--top",
        type=_at_least(1),
        metavar="K",
        help="write only the K most likely partners of each object (default: all in tables of up "
        "to four million pairs, 10 in others and in networks)",
    )
    parser.add_argument(
        "--clusters",
        type=_at_least(2),
        metavar="J",
        help="the most clusters of each type of objects (default: 25; table_clusters and "
        "normal_clusters 12)",
    )
    _add_tables(parser.add_argument_group("tables"))
    _add_networks(parser.add_argument_group("networks"))
    _add_sampling(parser.add_argument_group("the sampling"))
    return parser


def _add_tables(group: Any) -> None:
    group.add_argument("--id", metavar="COLUMN", help="the column with the objects' names")
    group.add_argument(
        "--ignore",
        type=lambda text: [name.strip() for name in text.split(",")],
        metavar="COLUMN,…",
        help="columns to leave out",
    )
    group.add_argument(
        "--columns",
        type=_uses,
        metavar="COLUMN=USE,…",
        help=f"what columns hold, where it cannot be seen: {', '.join(USES)}",
    )
    group.add_argument(
        "--model",
        choices=(
            "table_clusters",
            "normal_clusters",
            "aligned_clusters",
            "mixture",
            "projected_clusters",
        ),
        help="default: mixture if the tables have columns in common, which match their objects, "
        "and otherwise table_clusters, which matches shapes; with any of the following options "
        "projected_clusters",
    )
    group.add_argument(
        "--power",
        type=float,
        metavar="P",
        help="to which densities count: below 1, clusters split less easily (--model mixture, "
        "table_clusters and aligned_clusters; default: 1, aligned_clusters 0.8)",
    )
    group.add_argument(
        "--correlated",
        action=argparse.BooleanOptionalAction,
        help="columns of numbers are normal together, with one covariance within clusters (--model "
        "mixture; default: what describes them better)",
    )
    group.add_argument(
        "--standardise",
        "--standardize",
        action="store_true",
        help="give each feature mean 0 and variance 1",
    )
    group.add_argument(
        "--factors", type=_at_least(1), metavar="K", help="latent dimensions (default: 5)"
    )
    group.add_argument(
        "--projection",
        choices=("map", "normal"),
        help="map: maximise projections (match probabilities are then near 0 or 1); normal: sample "
        "them under a normal prior (default: map)",
    )


def _add_networks(group: Any) -> None:
    group.add_argument("--edges", action="store_true", help=".csv files are edge lists")
    group.add_argument(
        "--types",
        type=_types,
        metavar="ROW,COLUMN",
        help="names of the types of objects, one if all are of one type (default: the header of "
        "edge lists, or row,column)",
    )
    group.add_argument(
        "--one-mode", action="store_true", help="rows and columns are the same objects"
    )
    group.add_argument(
        "--symmetric", action="store_true", help="the same, and edges have no direction"
    )
    group.add_argument(
        "--self-loops", action="store_true", help="use edges from an object to itself"
    )
    group.add_argument(
        "--absent",
        choices=("zero", "unknown"),
        help="the value of cells that are not in the file (default: zero)",
    )
    group.add_argument(
        "--family",
        choices=("bernoulli", "poisson", "negative-binomial", "edges", "normal"),
        help="what values are: 0 or 1, counts, counts that vary more, counts of which it matters "
        "only whether there are any, numbers (default: by the values, and for counts by searches)",
    )
    group.add_argument(
        "--dispersion",
        type=float,
        metavar="N",
        help="how little counts vary (--family negative-binomial): their variance is mean + "
        "mean² / N (default: 1)",
    )
    group.add_argument(
        "--degree-correction",
        action="store_true",
        help="let objects of one cluster differ in how many edges they have (--family poisson "
        "or negative-binomial)",
    )
    group.add_argument("--no-relevance", action="store_true", help="every object is in a cluster")
    group.add_argument(
        "--weights",
        choices=("stick-breaking", "dirichlet", "uniform"),
        help="prior on the sizes of clusters; with dirichlet and uniform there are --clusters of "
        "them (default: stick-breaking)",
    )


def _add_sampling(group: Any) -> None:
    group.add_argument(
        "--search-only",
        action="store_true",
        help="stop at the best matching that searches find: much faster, without probabilities",
    )
    group.add_argument("--seed", type=_at_least(0), help="the same seed gives the same draws")
    group.add_argument(
        "--draws", type=_at_least(1), default=1000, help="draws of each chain (default: 1000)"
    )
    group.add_argument(
        "--tune",
        type=_at_least(0),
        default=1000,
        help="warm-up iterations of each chain, not kept (default: 1000)",
    )
    group.add_argument(
        "--chains", type=_at_least(1), default=4, help="number of chains (default: 4)"
    )
    group.add_argument(
        "--best-chain",
        action="store_true",
        help="report only the chain with the highest log joint, as the papers do (default: if "
        "chains disagree, its clusters, and probabilities of all chains)",
    )
    group.add_argument("--cores", type=_at_least(1), help="chains run at a time (default: as PyMC)")


def arguments_of(options: argparse.Namespace) -> dict[str, Any]:
    """Give what `pm_match.prepare` takes: what was said, and nothing else."""
    projected = options.factors or options.projection or options.standardise
    if projected and options.model not in (None, "projected_clusters"):
        raise InputError(
            "expected --model projected_clusters with --factors, --projection and --standardise; "
            f"found {options.model}"
        )
    if options.edges and (projected or options.model not in (None, "relational_clusters")):
        raise InputError(
            "expected --edges without --factors, --projection, --standardise and --model: "
            "edges are matched by relational_clusters"
        )
    said = {
        "links": options.links,
        "cannot_link": options.cannot_link,
        "id": options.id,
        "columns": (options.columns or {}) | dict.fromkeys(options.ignore or (), "ignore") or None,
        "model": "relational_clusters" if options.edges else options.model,
        "n_clusters": options.clusters,
        "n_factors": options.factors,
        "projection": options.projection,
        "power": options.power,
        "correlated": options.correlated,
        "standardise": options.standardise or None,
        "types": options.types,
        "one_mode": options.one_mode or None,
        "symmetric": options.symmetric or None,
        "self_loops": options.self_loops or None,
        "absent": options.absent,
        "family": options.family,
        "dispersion": options.dispersion,
        "exposure": "degree" if options.degree_correction else None,
        "relevance": False if options.no_relevance else None,
        "weights": options.weights,
    }
    if projected:
        said["model"] = "projected_clusters"
    return {name: value for name, value in said.items() if value is not None}


def as_options(message: str) -> str:
    """Spell a message of `pm_match.prepare` as the command line does."""
    for argument, option in _SPELLED:
        message = re.sub(argument, option, message)
    return message


def _at_least(low: int) -> Any:
    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(
                f"expected a whole number, at least {low}; found {text!r}"
            )
        return value

    return whole_number


def _uses(text: str) -> dict[str, str]:
    """Read what columns hold: names may have any signs but commas."""
    found = {}
    for part in text.split(","):
        name, _, use = (own.strip() for own in part.rpartition("="))
        if not name or use not in USES:
            raise argparse.ArgumentTypeError(
                f"expected columns with what they hold, such as COLUMN={USES[0]}, with commas "
                f"between them, of {', '.join(USES)}; found {part.strip()!r}"
            )
        found[name] = use
    return found


def _types(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name.isidentifier():
            raise argparse.ArgumentTypeError(
                "expected names with commas between them (letters, digits and underscores, not "
                f"starting with a digit); found {name!r}"
            )
    return names
