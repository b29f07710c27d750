"""The distribution `Hinge`: labels under the pseudo-likelihood of a support vector machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.utils import normalize_size_param


class _LabelsRV(SymbolicRandomVariable):
    """The ops behind `Hinge`: scores and C to labels."""

    _print_name = ("Hinge", "\\operatorname{Hinge}")

    @classmethod
    def rv_op(cls, score, C, *, size=None, rng=None):
        """Draw labels."""
        score, C = pt.as_tensor(score), pt.as_tensor(C)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        if rv_size_is_none(size):
            size = implicit_size_from_params(score, C, ndims_params=cls.ndims_params)
        next_rng, labels = cls._drawn(score, C, size=size, rng=rng, return_next_rng=True)
        return cls(inputs=[rng, size, score, C], outputs=[next_rng, labels])(rng, size, score, C)


class HingeRV(_LabelsRV):
    """With two classes: a score to a label."""

    name = "hinge"
    extended_signature = "[rng],[size],(),()->[rng],()"

    @staticmethod
    def _drawn(score, C, **options):
        next_rng, upper = pt.random.bernoulli(pt.sigmoid(_log_odds(score, C)), **options)
        return next_rng, 2 * pt.cast(upper, "int64") - 1


class OneAgainstRestRV(_LabelsRV):
    """With several classes: a row of scores to a class, from 0."""

    name = "one_against_rest"
    extended_signature = "[rng],[size],(k),()->[rng],()"

    @staticmethod
    def _drawn(score, C, **options):
        probability = pt.special.softmax(_log_odds(score, C[..., None]), axis=-1)
        next_rng, codes = pt.random.categorical(probability, **options)
        return next_rng, pt.cast(codes, "int64")


def _log_odds(score, C):
    """Log pseudo-likelihood of the label +1, less that of -1."""
    return 2.0 * C * (pt.maximum(0.0, 1.0 + score) - pt.maximum(0.0, 1.0 - score))


class _OneAgainstRest(pm.Discrete):
    """What `Hinge` is when there is a score for every class."""

    rv_type = OneAgainstRestRV
    rv_op = OneAgainstRestRV.rv_op

    @classmethod
    def dist(cls, score, C=1.0, **kwargs):
        return super().dist([pt.as_tensor(score), pt.as_tensor(C)], **kwargs)

    def support_point(rv: Any, size: Any, score: Any, C: Any) -> Any:
        return pt.zeros_like(rv)

    def logp(value: Any, score: Any, C: Any) -> Any:
        n_classes = score.shape[-1]
        own = pt.eq(pt.arange(n_classes), value[..., None])
        loss = pt.maximum(0.0, 1.0 - pt.switch(own, score, -score)).sum(axis=-1)
        known = (value >= -1) & (value < n_classes)
        logp = pt.switch(pt.eq(value, -1), 0.0, -2.0 * C * loss)
        return check_parameters(pt.switch(known, logp, -np.inf), C > 0, msg="C > 0")


class Hinge(pm.Discrete):
    r"""Labels under a hinge: the pseudo-likelihood of a support vector machine.

    .. math::

        L(y \mid f) = \prod_n \exp\{-2 C \max(0, 1 - y_n f_n)\}

    Its mode under a normal prior is a support vector machine (Polson & Scott 2011, "Data
    augmentation for support vector machines"). With a matrix of scores, one column for each class,
    classes are one against the rest: the product over the columns, the label +1 in that of the
    object's class and -1 in all others.

    Parameters
    ----------
    name : str
    score : tensor_like, shape (N,) or (N, n_classes)
        What the sign of the label is decided by.
    C : float or scalar tensor, default 1
        Weight of the data against the prior. It may be a random variable, but the
        pseudo-likelihood has no normaliser: what a posterior says about C is what these products
        say, which fall with C.
    observed : array, shape (N,), optional
        With a score: -1 and +1, or booleans (True is +1); NaN, None, NA or masked entries are
        unlabelled objects. With a column for each class: whole numbers from 0; -1 and the same
        entries are unlabelled. Unlabelled objects add nothing to the log probability, and are not
        imputed. A `pm.Data` has the codes that the variable has: whole numbers, 0 (of classes -1)
        for the unlabelled.
    dims, ...
        As of any distribution of PyMC.

    Raises
    ------
    ValueError
        If C is not positive, `score` has other than one or two dimensions, or labels are neither of
        the above, or not as many as scores.
    TypeError
        If labels are not numbers or booleans.

    Notes
    -----
    Random draws are of the pseudo-likelihood normalised over the labels: with one score, +1 and -1
    have probabilities proportional to exp{-2 C max(0, 1 - f)} and exp{-2 C max(0, 1 + f)}; with
    several, class k has a probability proportional to its product over the columns. A draw of data
    therefore is not from a joint distribution that the posterior belongs to: the normaliser, which
    depends on f, is in the one and not in the other.

    Examples
    --------
    >>> x = np.array([[-1.0, 0.2], [0.9, -0.1], [1.2, 0.3]])
    >>> with pm.Model() as model:
    ...     coefficients = pm.Normal("coefficients", 0.0, 1.0, shape=2)
    ...     label = pmm.Hinge("label", x @ coefficients, observed=[False, True, True])
    ...
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['HingeGibbs']
    """

    rv_type = HingeRV
    rv_op = HingeRV.rv_op

    def __new__(cls, name: str, score: Any, C: Any = 1.0, *, observed: Any = None, **kwargs: Any):
        """Declare the labels in the model on the stack."""
        score, C = _parameters(f"Hinge {name!r}", score, C)
        if observed is not None:
            observed = _codes(f"Hinge {name!r}", observed, score)
        if score.ndim == 2:
            return _OneAgainstRest(name, score, C, observed=observed, **kwargs)
        return super().__new__(cls, name, score, C, observed=observed, **kwargs)

    @classmethod
    def dist(cls, score: Any, C: Any = 1.0, **kwargs: Any):
        """Make a variable that belongs to no model, as `pm.Distribution.dist` does."""
        score, C = _parameters("Hinge", score, C)
        if score.ndim == 2:
            return _OneAgainstRest.dist(score, C, **kwargs)
        return super().dist([score, C], **kwargs)

    def support_point(rv: Any, size: Any, score: Any, C: Any) -> Any:  # noqa: D102
        return pt.ones_like(rv)

    def logp(value: Any, score: Any, C: Any) -> Any:  # noqa: D102
        # An unlabelled object has the sign 0.
        sign = pt.cast(value, score.dtype)
        loss = pt.abs(sign) * pt.maximum(0.0, 1.0 - sign * score)
        logp = pt.switch(pt.abs(value) <= 1, -2.0 * C * loss, -np.inf)
        return check_parameters(logp, C > 0, msg="C > 0")


def _parameters(where: str, score: Any, C: Any):
    """Check the score and C."""
    score, C = pt.as_tensor(score), pt.as_tensor(C)
    if score.dtype != "float64":
        score = pt.cast(score, "float64")
    if score.ndim not in (1, 2):
        raise ValueError(
            f"{where}: expected a score for every object, or a row of scores for the classes; "
            f"found {score.ndim} dimensions."
        )
    if score.ndim == 2 and score.type.shape[1] == 1:
        raise ValueError(
            f"{where}: expected a column of scores for each of two or more classes; found one. "
            "With one score, pass a vector: score[:, 0]."
        )
    if C.ndim != 0:
        raise ValueError(f"{where}: expected one C; found {C.ndim} dimensions")
    if isinstance(C, Constant) and not (np.isfinite(C.data) and C.data > 0):
        raise ValueError(f"{where}: expected C to be positive and finite; found {C.data}")
    return score, pt.cast(C, "float64")


def _codes(where: str, observed: Any, score: Any) -> Any:
    """Turn labels as users give them into codes."""
    classes = score.ndim == 2
    if isinstance(observed, Variable):
        dtype = getattr(observed.type, "dtype", None)
        if dtype not in ("int8", "int16", "int32", "int64"):
            raise TypeError(
                f"{where}: expected a pm.Data of labels to hold whole numbers; found {dtype}"
            )
        if isinstance(observed, Constant | SharedVariable):
            held = observed.data if isinstance(observed, Constant) else observed.get_value()
            _check_codes(where, np.asarray(held), score)
        return observed
    masked = np.ma.isMaskedArray(observed)
    # NumPy makes numbers of a list of booleans and NaN.
    dtype = None if hasattr(observed, "dtype") else object
    given = np.ma.getdata(observed) if masked else np.asarray(observed, dtype=dtype)
    # First what is missing, which makes arrays of objects of the others.
    missing = np.asarray(pd.isna(given))
    if masked:
        missing = missing | np.ma.getmaskarray(observed)
    held = given[~missing]
    if held.size and all(isinstance(label, bool | np.bool_) for label in held):
        known = held.astype(np.int64) if classes else 2 * held.astype(np.int64) - 1
    else:
        try:
            if any(isinstance(label, str | bytes) for label in held):
                raise TypeError("strings")
            values = held.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{where}: expected labels "
                + ("0, 1, ... (codes of classes)" if classes else "-1 and +1, or booleans")
                + f"; found dtype {given.dtype}"
            ) from error
        if not classes and (values == 0).any():
            raise ValueError(
                f"{where}: expected labels -1 and +1; found 0. Pass booleans (y == 1), and NaN for "
                "objects without a label."
            )
        wrong = ~(np.isfinite(values) & (values == np.round(values)))
        if wrong.any():
            raise ValueError(
                f"{where}: expected whole numbers; found {values[wrong][0]} as a label"
            )
        known = values.astype(np.int64)
    codes = np.full(given.shape, -1 if classes else 0)
    codes[~missing] = known
    _check_codes(where, codes, score)
    return codes


def _check_codes(where: str, codes: NDArray, score: Any) -> None:
    """Refuse codes that are not labels, or not one for each score."""
    if codes.ndim != 1:
        raise ValueError(
            f"{where}: expected one label for each object; found an array of shape {codes.shape}"
        )
    n_scores = score.type.shape[0]
    if n_scores is not None and n_scores != len(codes):
        raise ValueError(
            f"{where}: expected {n_scores} labels, one for each score; found {len(codes)}."
        )
    classes = score.ndim == 2
    n_classes = score.type.shape[1] if classes else None
    if classes:
        wrong = (codes < -1) | (codes >= (np.inf if n_classes is None else n_classes))
        expected = f"0 to {n_classes - 1}" if n_classes else "whole numbers from 0"
        expected += ", or -1 for unlabelled objects"
    else:
        wrong = np.abs(codes) > 1
        expected = "-1 and +1"
    if wrong.any():
        raise ValueError(f"{where}: expected labels {expected}; found {codes[wrong][0]}.")


class HingeParts(NamedTuple):
    """What `read_hinge` finds."""

    score: Variable  # (N,) or (N, n_classes)
    C: Variable
    classes: bool  # whether there is a score for every class


def read_hinge(rv: Variable) -> HingeParts | None:
    """Read a declared hinge back from its variable, in any copy of the model.

    Return None if `rv` is anything but a `Hinge`.
    """
    node = rv.owner
    if node is None or not isinstance(node.op, HingeRV | OneAgainstRestRV):
        return None
    score, C = node.op.dist_params(node)
    return HingeParts(score, C, isinstance(node.op, OneAgainstRestRV))
