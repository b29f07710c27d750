"""From `import` to the first draw: every model of the README, with empty caches and with full ones.

One process a row; the first has cache folders of its own, which are empty. Times are of the wall,
CPU time in brackets: a busy machine shows in their difference. Declaring the data is not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import common

_DATA = {
    "projected_clusters, 2 x 200 x 50": """
domains = pmm.datasets.synthetic(random_seed=0)
declare = lambda: pmm.models.projected_clusters(domains, n_factors=5)
""",
    "table_clusters, 2 x 40 x 4": """
rng = np.random.default_rng(0)
centres = rng.normal(0.0, 3.0, (3, 4))
tables = {name: centres[rng.integers(3, size=40)] + rng.normal(size=(40, 4)) for name in "ab"}
declare = lambda: pmm.models.table_clusters(tables)
""",
    "aligned_clusters, 3 x 100 x 64": """
domains = pmm.datasets.rotated_digits(n_objects=100, random_seed=0)
declare = lambda: pmm.models.aligned_clusters(domains, n_components=10)
""",
    "relational_clusters, 2 x 120 x 120": """
networks = pmm.datasets.synthetic_networks(random_seed=0).networks
declare = lambda: pmm.models.relational_clusters(networks)
""",
    "max_margin_views, 200 x 2": """
rng = np.random.default_rng(0)
x = rng.uniform(-1.0, 1.0, (200, 2))
labels = np.where(x[:, 0] * x[:, 1] > 0.0, 1, -1)
declare = lambda: pmm.models.max_margin_views({"view": x}, labels)
""",
    "mixture, 300 x 4 of mixed kinds": """
rng = np.random.default_rng(0)
label = rng.integers(3, size=300)
table = pd.DataFrame({
    "visits": rng.poisson(np.array([2.0, 8.0, 20.0])[label]),
    "member": rng.random(300) < np.array([0.1, 0.5, 0.9])[label],
    "plan": pd.Categorical(np.array(["a", "b", "c"])[(label + (rng.random(300) < 0.2)) % 3]),
    "weight": rng.normal(np.array([0.0, 3.0, 6.0])[label]),
})
declare = lambda: pmm.models.mixture(table, n_clusters=10)
""",
    "any likelihood, 180 Student-t": """
values = np.concatenate([np.random.default_rng(0).standard_t(4, 90) + m for m in (-4.0, 3.0)])
def declare():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(4)), shape=180)
        centre, scale = pm.Normal("centre", 0.0, 5.0, shape=4), pm.HalfNormal("scale", 2.0, shape=4)
        pm.StudentT("x", nu=4.0, mu=centre[cluster], sigma=scale[cluster], observed=values)
    return model
""",
}
_RUN = """
import json, time
def now():
    return time.perf_counter(), time.process_time()
marks = [now()]
import numpy as np, pandas as pd, pymc as pm
marks.append(now())
import pm_match as pmm
marks.append(now())
{data}
began = now()
model = declare()
quiet = dict(draws=1, tune=0, chains=1, cores=1, random_seed=0, model=model, quiet=True,
             progressbar=False, compute_convergence_checks=False)
pmm.sample(init="dispersed", **quiet)
first = now()
pmm.sample(init="search", **quiet)
searched = now()
spans = [(marks[0], marks[1]), (marks[1], marks[2]), (began, first), (first, searched)]
print(json.dumps([[b - a for a, b in zip(*span)] for span in spans]))
"""


def measured(data: str, folder: str) -> list[list[float]]:
    """Run a model in a process of its own, with its caches in a folder."""
    environment = {
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
        # Python keeps what it compiles too, as it does for users.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUN.replace("{data}", data)],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose names begin so")
    options = parser.parse_args()
    rows: list[list[Any]] = []
    for name, data in _DATA.items():
        if not name.startswith(options.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("empty", "full"):
                spans = measured(data, folder)
                told = (f"{wall:.1f} ({cpu:.1f})" for wall, cpu in spans)
                rows.append([name if caches == "empty" else "", caches, *told])
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["model", "caches", "import pymc", "pm_match", "first draw", "search and draw"]
    common.print_table("seconds of the wall (of the CPU) to the first draw", header, rows)


if __name__ == "__main__":
    main()
