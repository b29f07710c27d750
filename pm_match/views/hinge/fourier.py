"""Random Fourier features: a vector seen through waves, whose frequencies are the kernel."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pm_match.numerics.sines import sines


def fourier_features(latent: Any, frequencies: Any) -> TensorVariable:
    r"""Random Fourier features of vectors, with a constant, as an expression of PyTensor.

    .. math::

        \phi(h) = M^{-1/2} (\cos \omega_1^T h, …, \cos \omega_M^T h,
                            \sin \omega_1^T h, …, \sin \omega_M^T h), 1

    Inner products of features approximate the stationary kernel whose spectral density the
    frequencies are draws of (Rahimi & Recht 2007, "Random features for large-scale kernel
    machines").

    Parameters
    ----------
    latent : tensor_like, shape (N, m)
    frequencies : tensor_like, shape (M, m)

    Returns
    -------
    TensorVariable, shape (N, 2M + 1)

    Raises
    ------
    ValueError
        If either is not a matrix.

    Examples
    --------
    >>> features = pmm.fourier_features(np.ones((5, 2)), np.zeros((3, 2)))
    >>> features.eval().shape
    (5, 7)
    """
    latent, frequencies = pt.as_tensor(latent), pt.as_tensor(frequencies)
    for name, given in (("latent", latent), ("frequencies", frequencies)):
        if given.ndim != 2:
            raise ValueError(
                f"fourier_features: expected {name} to be a matrix; found {given.ndim} dimensions"
            )
    angles = latent @ frequencies.T
    root = pt.sqrt(pt.cast(frequencies.shape[0], angles.dtype))
    found = pt.concatenate([pt.cos(angles), pt.sin(angles)], axis=1) / root
    return pt.concatenate([found, pt.ones((latent.shape[0], 1), dtype=found.dtype)], axis=1)


def fourier_values(
    latent: NDArray[np.float64], frequencies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Evaluate `fourier_features` of arrays (N, m) and (M, m): an array (N, 2M + 1)."""
    m = len(frequencies)
    features = np.empty((len(latent), 2 * m + 1))
    fill_waves(latent, frequencies, features[:, :-1])
    features[:, -1] = 1.0
    return features


def waves(angles: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the cosines and sines of angles (N, M)."""
    sine, cosine = np.empty_like(angles), np.empty_like(angles)
    sines(angles, sine, cosine)
    return cosine, sine


def fill_waves(
    latent: NDArray[np.float64], frequencies: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Fill `out` (N, 2M) with the cosines, then the sines, of `fourier_features`."""
    m = len(frequencies)
    cosine, sine = waves(latent @ frequencies.T)
    root = m**-0.5
    np.multiply(cosine, root, out=out[:, :m])
    np.multiply(sine, root, out=out[:, m:])


def turn_coefficients(
    coefficients: NDArray[np.float64], angles: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Turn coefficients (2M + 1, K) so that vectors moved by c score what they scored before.

    A wave's cosine and sine, seen from elsewhere, are the same two turned by the angle
    :math:`\omega_j^T c`; `angles` (M,) are these.
    """
    m = len(angles)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    one, other = coefficients[:m], coefficients[m : 2 * m]
    turned = coefficients.copy()
    turned[:m] = cosine * one - sine * other
    turned[m : 2 * m] = sine * one + cosine * other
    return turned
