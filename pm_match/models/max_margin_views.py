"""Max-margin multi-view learning with an adaptive kernel, declared."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.transforms import CholeskyCovTransform

from pm_match.checks import check_count, check_counts, check_flag, check_pair, counts_by_name
from pm_match.models.declare import check_all_positive, cluster_weights, real
from pm_match.models.shared_factors import declare_views
from pm_match.tables.order import in_order
from pm_match.tables.paired_views import as_paired_views
from pm_match.views.hinge import Hinge, fourier_features


def max_margin_views(
    views: Mapping[str, Any],
    labels: Any,
    n_factors: int = 20,
    n_frequencies: int = 100,
    *,
    n_private: int | Mapping[str, int] = 1,
    C: float = 1.0,
    n_components: int = 10,
    concentration: float = 1.0,
    column_prior: tuple[float, float] = (1.0, 1.0),
    private_precision: float = 1.0,
    precision_prior: tuple[float, float] = (1.0, 1.0),
    coefficient_prior: tuple[float, float] = (0.5, 0.5),
    intercept: bool = True,
) -> pm.Model:
    r"""Declare the adaptive kernel classifier of Du, He, Du, Zhuang, He & Long (2018).

    Objects are seen in several views i of a latent vector h each shares, and some are labelled: by
    a hinge on random Fourier features of it, whose frequencies follow a mixture of normals, so that
    the kernel is learned.

    .. math::

        h_n \sim N(0, I), \quad u_{in} \sim N(0, I), \quad
        x_{in} \sim N(a_i + W_i h_n + V_i u_{in}, \tau_i^{-1} I) \\
        W_{i \cdot j} \sim N(0, r_{ij}^{-1} I), \quad V_i \sim N(0, \eta^{-1} I), \quad
        r_{ij}, \tau_i \sim \mathrm{Gamma} \\
        c_k \sim \mathrm{GEM}(\alpha), \quad \omega_k \sim N(\mu_{c_k}, \Sigma_{c_k}), \quad
        \beta \sim N(0, v^{-1} I), \quad v \sim \mathrm{Gamma} \\
        p(y_n \mid h_n) \propto \exp\{-2C \max(0, 1 - y_n \beta^\top \phi(h_n))\}

    Components have a normal-inverse-Wishart prior under which frequencies have variances of order
    1/m, so that :math:`\omega^\top h` is of order 1. Priors of views are in units :math:`u_i` of a
    view's own spread, the standard deviation of its values about their columns' means: a view
    in other units says the same. Columns of one view count by their size; `standardise` makes them
    equal.

    Parameters
    ----------
    views : mapping
        From names to tables of the same objects: arrays, data frames, data arrays or sparse
        matrices, row k of all being one object. NaN and masked values are missing; an object that a
        view lacks is a row of NaN.
    labels : array, Series or list, length N
        -1 and +1, booleans, or classes of any kind, numbers or strings. A Series is matched to the
        objects by its index, in any order; what has no index, or one that nobody set where objects
        have names, is in their order. NaN or None is an object that is not labelled. Two classes
        have one score, the second in order being +1; more have a score each, one against the rest.
    n_factors : int, default 20
        m, the dimension of the shared latent vectors.
    n_frequencies : int, default 100
        M; there are 2M + 1 features.
    n_private : int or mapping of str to int, default 1
        Factors that a view has of its own, for all views or by name; there may be none.
    C : float, default 1.0
        The weight of the labels against the views and priors. Choose it by cross-validation, as
        in a support vector machine.
    n_components : int, default 10
        Truncation of the mixture of frequencies.
    concentration : float, default 1.0
        :math:`\alpha`.
    column_prior : (float, float), default (1.0, 1.0)
        Shape and rate of :math:`r_{ij} u_i^2`.
    private_precision : float, default 1.0
        :math:`\eta u_i^2`.
    precision_prior : (float, float), default (1.0, 1.0)
        Shape and rate of :math:`\tau_i u_i^2`, of every view. The default leaves it to the data. A
        prior that holds it says how much features count, against labels and against those of
        other views. Worth a choice by folds: (1e7, 2e7), noise of twice a view's variance, was
        better on few pages of many words; (1e6, 2e5), a fifth of it, where features of one of two
        views are nearly collinear, whose noise else fell until most factors were spent on them.
    coefficient_prior : (float, float), default (0.5, 0.5)
        Shape and rate of v. By default the data determine the scale of scores. If classes can be
        separated in training, scores then grow, :math:`v \ll 1`, until hardly a label violates its
        margin, whatever C. A prior that holds v, such as (5000, 50000) near .1, leaves that to C.
        Choose it with C by cross-validation: .1 was better on digits, 100 (with C of 10 to 40) on
        few pages of many words, the default on sharply bent borders.
    intercept : bool, default True
        Whether views have intercepts :math:`a_i`, normal around the columns' means with standard
        deviation :math:`u_i`. Without, they are to be centred.

    Returns
    -------
    pymc.Model
        With the variables `latent`, `component_weights`, `component`, `component_precision`,
        `component_mean`, `frequencies`, `coefficient_precision`, `coefficients` and `label`; and
        `projection_<view>`, `column_precision_<view>`, `private_<view>`, `private_latent_<view>`,
        `precision_<view>`, `intercept_<view>` and `<view>` for every view. The coordinate "class"
        names the classes, in order.

    Raises
    ------
    TypeError, ValueError
        If a view, the labels or a parameter is not as described; the message says which, what was
        expected, and what was found.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> [variable.name for variable in model.observed_RVs]
    ['a', 'b', 'label']
    """
    tables = as_paired_views(views)
    check_counts(n_factors=n_factors, n_frequencies=n_frequencies)
    check_count("n_components", n_components, 2)
    check_all_positive(C=C, concentration=concentration, private_precision=private_precision)
    for name, prior in (
        ("column_prior", column_prior),
        ("precision_prior", precision_prior),
        ("coefficient_prior", coefficient_prior),
    ):
        check_pair(name, prior, ("shape", "rate"))
    check_flag("intercept", intercept)
    private = counts_by_name("n_private", n_private, tables, 0)
    objects = next(iter(tables.values())).objects
    codes, classes = _read_labels(labels, objects)

    coords: dict[str, Any] = {
        "object": objects,
        "factor": range(n_factors),
        "frequency": range(n_frequencies),
        "kernel_component": range(n_components),
        "fourier": _feature_names(n_frequencies),
        "class": classes,
    }
    with pm.Model(coords=coords, model=None) as model:
        latent = pm.Normal("latent", 0.0, 1.0, dims=("object", "factor"))
        for name, table in tables.items():
            square = table.centre_and_spread()[1] ** 2
            declare_views(
                latent,
                {name: table},
                private,
                noise_prior=(precision_prior[0], precision_prior[1] * square),
                projection_prior=(column_prior[0], column_prior[1] * square),
                private_precision=private_precision / square,
                intercept=bool(intercept),
            )
        frequencies = _declare_frequencies(n_factors, n_components, concentration)
        v = pm.Gamma("coefficient_precision", *map(real, coefficient_prior))
        dims = ("fourier",) if len(classes) == 2 else ("fourier", "class")
        coefficients = pm.Normal("coefficients", 0.0, tau=v, dims=dims)
        score = fourier_features(latent, frequencies) @ coefficients
        Hinge("label", score, C=real(C), observed=codes, dims="object")
    return model


def _declare_frequencies(m: int, n_components: int, concentration: float):
    """Declare frequencies, a mixture of normals whose covariances are of order 1/m."""
    weights = cluster_weights(
        "stick-breaking", n_components, concentration, "component_weights", "kernel_component"
    )
    component = pm.Categorical("component", p=weights, dims="frequency")
    # Inverse-Wishart covariances with mean I / m; means spread as far as what is around them.
    # Shared, as of a constant that is diagonal PyTensor logs that a rewrite fails.
    scale = pytensor.shared(m * np.eye(m), name="component_scale")
    precision = pm.Wishart(
        "component_precision",
        nu=m + 2,
        V=scale,
        shape=(n_components, m, m),
        # PyMC's own refers to V, which is another one in a copy of the model.
        default_transform=CholeskyCovTransform(m),
    )
    # Of an array of matrices, PyMC misreads the inverse itself given as a covariance.
    lower: Any = pt.linalg.cholesky(pt.linalg.inv(precision))
    mean = pm.MvNormal("component_mean", np.zeros(m), chol=lower, shape=(n_components, m))
    return pm.MvNormal(
        "frequencies",
        mu=mean[component],
        chol=lower[component],
        dims=("frequency", "factor"),
    )


def _feature_names(n_frequencies: int) -> list[str]:
    numbers = range(n_frequencies)
    return [f"cos {j}" for j in numbers] + [f"sin {j}" for j in numbers] + ["constant"]


def _read_labels(labels: Any, objects: NDArray) -> tuple[NDArray, NDArray]:
    """Turn labels into the codes of a hinge, NaN where there are none, and the classes."""
    if isinstance(labels, str | bytes | Mapping) or not hasattr(labels, "__len__"):
        raise TypeError(
            "labels: expected an array, Series or list with a label for each object; found an "
            f"object of type {type(labels).__name__}"
        )
    given: Any = labels
    if isinstance(labels, np.ma.MaskedArray):
        # Not by `filled`, for which None is a default.
        given = labels.data.astype(object)
        given[np.ma.getmaskarray(labels)] = None
    if np.ndim(given) != 1 or len(given) != len(objects):
        raise ValueError(
            f"labels: expected one for each of {len(objects)} objects; found shape "
            f"{np.shape(given)}"
        )
    codes, classes = _factorised(pd.Series(list(in_order("labels", given, objects)), dtype=object))
    if len(classes) < 2:
        raise ValueError(
            "labels: expected two or more classes among labelled objects; found "
            f"{classes.tolist() or 'no label'}"
        )
    if len(classes) == 2:
        return np.where(codes < 0, np.nan, 2.0 * codes - 1.0), classes
    return np.where(codes < 0, np.nan, codes), classes


def _factorised(series: pd.Series) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Give every label (N,) the number of its class, -1 where there is none, and the classes."""
    held: Any = series.dropna()
    if held.map(lambda label: isinstance(label, Real | np.bool_)).all():
        values = held.astype(float)
        odd = values[~np.isfinite(values) | (values != np.round(values))]
        if len(odd):
            raise ValueError(f"labels: expected classes; found the number {odd.iloc[0]:g}")
        flags = held.map(lambda label: isinstance(label, bool | np.bool_)).all()
        held = values.astype(bool if flags else np.int64)
    else:
        held = held.map(str)
    codes = np.full(len(series), -1)
    codes[series.notna()], classes = pd.factorize(held, sort=True)
    return codes, np.asarray(classes, None if held.dtype.kind in "bi" else str)
