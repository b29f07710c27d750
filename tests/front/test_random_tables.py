"""Made-up tables are matched, and everything that a result offers works; or they are refused."""

import pickle

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm

FEW, MANY = 4, 300
MODELS = ("table_clusters", "aligned_clusters", "normal_clusters", "projected_clusters", "mixture")
NAMES = (("north", "south", "east (x)", "a_b"), ("A", "A_new", "Ab", "ü"), ("0", "1", "2", "3"))
COLUMNS = {
    "number": lambda rng, x: x,
    "count": lambda rng, x: rng.poisson(np.exp(x / 3.0)),
    "boolean": lambda rng, x: x > 0.0,
    "category": lambda rng, x: pd.Categorical(_names(["a", "c d", "ü"], x)),
    "text": lambda rng, x: _names(["red", "green", "blue"], x),
    "nullable": lambda rng, x: pd.array(np.where(x > 1.0, None, np.round(3.0 * x)), dtype="Int64"),
    "large": lambda rng, x: 1e12 + 1e9 * x,
    "small": lambda rng, x: 1e-12 * x,
    "skewed": lambda rng, x: np.exp(x),
    "short": lambda rng, x: x.astype(np.float32),
    "constant": lambda rng, x: np.full(len(x), 3.0),
    "day": lambda rng, x: pd.Timestamp("2020-01-01") + pd.to_timedelta(np.round(x), unit="D"),
}  # fmt: skip
INDEXES = {
    "range": range,
    "names": lambda n: [f"object {i}" for i in range(n)],
    "numbers": lambda n: 0.5 * np.arange(n),
    "days": lambda n: pd.date_range("2021-01-01", periods=n),
    "months": lambda n: pd.period_range("2021-01", periods=n, freq="M"),
    "levels": lambda n: pd.MultiIndex.from_arrays([np.arange(n) % 3, range(n)], names=["g", "i"]),
    "repeated": lambda n: np.arange(n) // 2,
}


def _names(names, x):
    return np.array(names, object)[np.abs(x).astype(int) % len(names)]


def made_up(rng, n):
    """Make a table of n rows, of which clusters are seen in most columns."""
    label, columns = rng.integers(rng.integers(1, 6), size=n), {}
    kinds = list(COLUMNS)
    often = np.where(np.isin(kinds, ["number", "count", "text"]), 4.0, 1.0)
    often[-2:] = 0.1
    for j in range(rng.integers(1, 7)):
        kind = rng.choice(kinds, p=often / often.sum())
        own = pd.Series(COLUMNS[kind](rng, 3.0 * rng.normal(size=6)[label] + rng.normal(size=n)))
        if rng.random() < 0.25:
            own = own.mask(rng.random(n) < rng.choice([0.05, 0.3, 0.9]))
        columns[f"c{j}" if rng.random() < 0.8 else f"price ($) {j}"] = own
    table = pd.DataFrame(columns)
    table.index = INDEXES[rng.choice(list(INDEXES), p=[0.3, 0.3, 0.1, 0.1, 0.08, 0.1, 0.02])](n)
    return table


def choices(number):
    """Make the tables of a number, and the options that they are matched with."""
    rng = np.random.default_rng([20241128, number])
    names = NAMES[rng.integers(len(NAMES))][: rng.choice([2, 2, 3, 4])]
    if rng.random() < 0.4:  # of the same columns
        n = rng.integers(3, 40)
        whole = made_up(rng, n * len(names))
        tables = {name: whole[i * n : (i + 1) * n] for i, name in enumerate(names)}
    else:
        tables = {name: made_up(rng, rng.integers(2, 40)) for name in names}
    options = {
        "model": rng.choice([None, None, *MODELS]),
        "standardise": bool(rng.random() < 0.3),
        "search_only": bool(rng.random() < 0.3),
        "chains": int(rng.integers(1, 3)),
    }
    if options["model"] == "mixture" and rng.random() < 0.5:
        options["correlated"] = True
    return tables, options


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] if n >= FEW else []) for n in range(MANY)]
)
def test_matched_or_refused(number, tmp_path):
    tables, options = choices(number)
    quiet = {"cores": 1, "progressbar": False, "random_seed": number}
    why = None
    try:
        result = pmm.match(tables, draws=12, tune=8, **options, **quiet)
    except (ValueError, TypeError) as error:
        why = "expected", str(error)
    except (FloatingPointError, RuntimeError) as error:
        why = "extreme", str(error)
    if why is not None:
        word, message = why
        assert word in message, message
        return
    one, other, *_ = tables
    assert str(result)
    assert result.matches(one, other, top=2)["probability"].between(0.0, 1.0).all()
    probability = np.asarray(result.probability(one, other))
    assert probability.shape == (len(tables[one]), len(tables[other]))
    assert ((probability >= 0.0) & (probability <= 1.0 + 1e-9)).all()
    result.decide(one, other)
    assert len(result.assign(one, tables[one][:2])) == 2
    result.plot()
    result.write(tmp_path / "out")
    assert pickle.loads(pickle.dumps(result)).matches(one, other).equals(result.matches(one, other))
