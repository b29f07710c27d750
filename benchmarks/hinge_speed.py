"""Speed of the hinge's steps: against NUTS on the hinge itself, by size, and how a kernel moves.

`python benchmarks/hinge_speed.py [nuts] [size] [kernel]`, all three by default.
"""

import common  # noqa: I001  (before numpy)

import sys
import time

import arviz_stats
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pm_match as pmm
from pm_match.reading import read
from pm_match.views.hinge import fourier_values


def ess(draws) -> float:
    """Least effective sample size of the columns of one chain (draws, ...)."""
    flat = np.reshape(draws, (len(draws), -1))
    return min(float(arviz_stats.ess(column[None])) for column in flat.T)


def against_nuts() -> None:
    """Compare effective draws of 41 coefficients, from 200 objects, scales and NUTS."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 5))
    features = fourier_values(vectors, rng.normal(size=(20, 5)) / np.sqrt(5.0))
    labels = np.sign(vectors[:, 0] * vectors[:, 1] + 0.3 * rng.normal(size=200))
    for title, declare_v in (
        ("precision 1", lambda: 1.0),
        ("a free precision", lambda: pm.Gamma("v", 0.5, 0.5)),
    ):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0.0, tau=declare_v(), shape=41)
            pmm.Hinge("label", features @ beta, observed=labels)
        compare(model, f"200 objects, 41 coefficients of Fourier features with {title}")


def compare(model, title) -> None:
    """Run both on one model."""
    step = pmm.HingeGibbs([model["beta"]], model=model)
    list(common.chain([step], model.initial_point(), 200, 1))
    begin = time.process_time()
    draws = [point["beta"] for point, _ in common.chain([step], model.initial_point(), 8000, 2)]
    ours = time.process_time() - begin
    with model:
        nuts = pm.NUTS()
        # Compiled and warm before the clock starts.
        pm.sample(10, tune=10, chains=1, cores=1, step=nuts, progressbar=False, random_seed=1)
        begin = time.process_time()
        idata = pm.sample(
            2000,
            tune=1000,
            chains=1,
            cores=1,
            step=nuts,
            progressbar=False,
            random_seed=2,
            compute_convergence_checks=False,
        )
        theirs = time.process_time() - begin
    rows = []
    for name, found, seconds in (
        ("HingeGibbs", np.array(draws)[500:], ours),
        ("NUTS", idata["posterior"]["beta"].values[0], theirs),
    ):
        effective = ess(found)
        rows.append([name, len(found), f"{effective:.0f}", f"{seconds:.1f}"])
        rows[-1].append(f"{effective / seconds:.0f}")
    common.print_table(
        f"{title}; CPU seconds with warm-up",
        ["", "draws", "least ESS", "seconds", "ESS a second"],
        rows,
    )


def kernel_model(n_objects, n_factors, n_frequencies, n_classes=None, seed=0, v_prior=(0.5, 0.5)):
    """Declare a kernel machine of given vectors: labels by the product of two coordinates."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_objects, n_factors))
    product = vectors[:, 0] * vectors[:, 1]
    truncation = 10
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=truncation - 1)
        component = pm.Categorical("component", p=weights, shape=n_frequencies)
        precision = pm.Wishart(
            "precision",
            nu=n_factors + 2,
            V=np.eye(n_factors) * n_factors,
            shape=(truncation, n_factors, n_factors),
            initval=np.tile(np.eye(n_factors) * n_factors, (truncation, 1, 1)),
        )
        covariance = pt.linalg.inv(precision)
        mean = pm.MvNormal(
            "mean",
            np.zeros(n_factors),
            chol=pt.linalg.cholesky(covariance / 0.5),
            shape=(truncation, n_factors),
        )
        frequencies = pm.MvNormal(
            "frequencies",
            mean[component],
            chol=pt.linalg.cholesky(covariance)[component],
            shape=(n_frequencies, n_factors),
        )
        v = pm.Gamma("v", *v_prior)
        columns = () if n_classes is None else (n_classes,)
        beta = pm.Normal("beta", 0.0, tau=v, shape=(2 * n_frequencies + 1, *columns))
        if n_classes is None:
            labels = np.sign(product)
        else:
            labels = np.digitize(product, np.quantile(product, np.arange(1, n_classes) / n_classes))
        pmm.Hinge("label", pmm.fourier_features(vectors, frequencies) @ beta, observed=labels)
    return model


def started(model, seed=0):
    """Start from `initial_points`' frequencies."""
    (part,) = read(model).parts
    values = part.start(np.random.default_rng(seed), model.initial_point())
    point = model.initial_point()
    point["frequencies"] = values["frequencies"]
    return point


def by_size() -> None:
    """Time one step by the number of objects and of classes."""
    rows = []
    for n_objects, n_classes in ((175, None), (175, 3), (1000, None), (10_000, None)):
        model = kernel_model(n_objects, 20, 100, n_classes)
        row = [n_objects, n_classes or 2]
        point = started(model)
        for step in (
            pmm.FrequencyMetropolis([model["frequencies"]], model=model),
            pmm.HingeGibbs([model["beta"]], model=model),
        ):
            step.setup_chain(np.random.default_rng(1), 0, 0)
            for _ in range(10):
                point, _ = step.step(point)
            seconds = common.cpu_seconds(lambda s=step, p=point: s.step(p), 20)
            row.append(f"{1e3 * seconds:.1f}")
        rows.append(row)
    common.print_table(
        "20 factors, 100 frequencies: milliseconds a step",
        ["objects", "classes", "FrequencyMetropolis", "HingeGibbs"],
        rows,
    )


def adaptation() -> None:
    """Compare how frequencies move: coefficients integrated out, and given; alone, and together."""
    compare_moves(
        kernel_model(175, 20, 100),
        "175 objects, 20 factors, 100 frequencies",
        {"integrated": {}, "given coefficients": {"method": "hmc"}},
        1000,
    )
    compare_moves(
        kernel_model(1000, 20, 100, n_classes=10, v_prior=(5e3, 5e4)),
        "1000 objects of 10 classes, 20 factors, 100 frequencies, precision near .1",
        {"one by one": {}, "and all at once": {"n_leapfrog": 5}},
        400,
    )


def compare_moves(model, title, settings, n) -> None:
    """Run steps with different settings; a fifth of the iterations tunes."""
    rows = []
    for name, own in settings.items():
        point = started(model)
        first = point["frequencies"]
        steps = [
            pmm.FrequencyMetropolis([model["frequencies"]], model=model, **own),
            *(s for s in pmm.steps(model) if not isinstance(s, pmm.FrequencyMetropolis)),
        ]
        for number, step in enumerate(steps):
            step.setup_chain(np.random.default_rng([3, number]), n // 5, n)
        begin = time.process_time()
        draws, shares = np.empty((n, *first.shape)), []
        for i in range(n):
            if i == n // 5:
                for step in steps:
                    step.stop_tuning()
            for step in steps:
                point, (stats,) = step.step(point)
                if "accepted_joint" in stats:
                    shares.append([stats["accepted_narrow"], stats["accepted_joint"]])
            draws[i] = point["frequencies"]
        seconds = time.process_time() - begin
        half = draws[n // 2 :].reshape(n - n // 2, -1)[:, ::20]
        effective = np.median([float(arviz_stats.ess(column[None])) for column in half.T])
        after = np.corrcoef(first.ravel(), draws[-1].ravel())[0, 1]
        narrow, joint = np.mean(shares[n // 2 :], axis=0)
        norm = np.sqrt(np.square(draws[-1]).sum(1).mean())
        rows.append([name, f"{1e3 * seconds / n:.1f}", f"{after:.2f}"])
        rows[-1] += [f"{narrow:.2f}", f"{joint:.2f}"]
        rows[-1] += [f"{effective:.0f}", f"{effective / seconds * 2.0:.2f}", f"{norm:.2f}"]
    common.print_table(
        f"{title}, {n} iterations; ESS, and what is accepted, are of the second half",
        [
            "method",
            "ms an iteration",
            "correlation with start",
            "narrow moves accepted",
            "joint moves accepted",
            "median ESS of a frequency",
            "ESS a second",
            "norm",
        ],
        rows,
    )


if __name__ == "__main__":
    parts = {"nuts": against_nuts, "size": by_size, "kernel": adaptation}
    for name in sys.argv[1:] or parts:
        parts[name]()
