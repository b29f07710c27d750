"""The kernel that random frequencies make, and how sure one is of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import no_such
from pm_match.matching.draws import SAMPLE_DIMS, read_draws, sampled
from pm_match.matching.interval_levels import interval_levels
from pm_match.plots.canvas import SMALL, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How the two axes are drawn, apart in line and in shade.
_STYLES = (("most", "0.1", "-"), ("least", "0.55", "--"))


def plot_kernel(
    idata: xr.DataTree | xr.Dataset,
    *,
    frequencies: str = "frequencies",
    longest: float | None = None,
    ci_prob: float | None = None,
    num_draws: int = 200,
    figsize: tuple[float, float] = (7.6, 3.4),
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> Figure:
    r"""Draw the spectral density of a learned kernel, and the kernel itself.

    Random Fourier features of frequencies :math:`\omega_1, \dots, \omega_M` have the kernel

    .. math:: k(\delta) = \frac{1}{M} \sum_j \cos(\omega_j^\top \delta),

    by Bochner's theorem the Fourier transform of the frequencies' distribution. Both are drawn
    along two axes of the latent space: that on which the frequencies of a draw spread most, where
    the kernel falls off first, and that on which they spread least. A latent space that turns from
    draw to draw takes its axes with it.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns for a model with frequencies, or its posterior.
    frequencies : str
        The variable of frequencies (frequency, factor).
    longest : float, optional
        How far the kernel is drawn. Default: to where it has fallen off along the first axis.
    ci_prob : float, optional
        The probability of the equal-tailed intervals over draws. Default: ArviZ's
        ``rcParams["stats.ci_prob"]``.
    num_draws : int
        How many draws are used, evenly spaced.
    figsize : tuple of float
        Width and height in inches.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.

    Returns
    -------
    Figure
        Means over draws and pointwise intervals.

    Raises
    ------
    KeyError
        If there is no such variable.
    ValueError
        If it is not a table, or a number is not positive.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> idata = pmm.sample(10, tune=10, chains=2, cores=1, model=model, random_seed=1, quiet=True)
    >>> figure = pmm.plots.plot_kernel(idata)
    """
    plt = pyplot()
    if num_draws < 1 or (longest is not None and not longest > 0):
        raise ValueError(f"expected num_draws and longest above 0; found {num_draws} and {longest}")
    levels = interval_levels(ci_prob)
    omega = _frequencies(read_draws(idata, group), frequencies, sample_dims, num_draws)
    along = projected(omega)
    reach = longest or 4.0 / max(float(np.sqrt(np.mean(along[:, 0] ** 2))), 1e-12)
    distance = np.linspace(0.0, reach, 120)
    width = np.quantile(np.abs(along[:, 0]), 0.99)
    grid = np.linspace(-1.2 * width, 1.2 * width, 161)

    figure, axes = plt.subplots(1, 2, figsize=figsize, layout="constrained")
    for place, (name, colour, line) in enumerate(_STYLES[: along.shape[1]]):
        own = along[:, place]
        for axis, x, curves in (
            (axes[0], grid, spectral_density(own, grid)),
            (axes[1], distance, kernel_values(own, distance)),
        ):
            low, high = np.quantile(curves, levels, axis=0)
            axis.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
            label = f"{name} spread"
            axis.plot(x, curves.mean(axis=0), color=colour, ls=line, lw=1.4, label=label)
    axes[1].axhline(0.0, color="0.8", lw=0.8, zorder=0)
    axes[0].set(xlabel="frequency", ylabel="spectral density", label="spectral density")
    axes[1].set(xlabel="distance in the latent space", ylabel="kernel", label="kernel")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=SMALL, loc="upper left")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def projected(omega: NDArray) -> NDArray[np.float64]:
    """Give the frequencies of every draw along the axes of their most and least spread.

    `omega` (n_draws, n_frequencies, n_factors). Return (n_draws, 2, n_frequencies), or
    (n_draws, 1, n_frequencies) of one factor. The spread is about 0: a frequency and its negative
    have the same kernel.
    """
    _, vectors = np.linalg.eigh(np.einsum("sfa,sfb->sab", omega, omega))
    ends = [-1, 0] if omega.shape[2] > 1 else [-1]
    return np.einsum("sfa,sap->spf", omega, vectors[:, :, ends])


def kernel_values(along: NDArray, distance: NDArray) -> NDArray[np.float64]:
    """Compute the kernel of frequencies (n_draws, n_frequencies) at distances (n_points,).

    Return (n_draws, n_points).
    """
    return np.stack([np.cos(np.outer(distance, own)).mean(axis=1) for own in along])


def spectral_density(along: NDArray, grid: NDArray) -> NDArray[np.float64]:
    """Smooth the distribution of frequencies (n_draws, n_frequencies) and their negatives.

    Return (n_draws, n_points): densities at the grid's points, by Gaussian kernels of Silverman's
    width.
    """
    curves = []
    for own in along:
        both = np.concatenate([own, -own])
        width = max(1.06 * both.std() * len(own) ** -0.2, 1e-12)
        z = (grid[:, None] - both) / width
        curves.append(np.exp(-0.5 * z**2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))
    return np.stack(curves)


def _frequencies(
    posterior: xr.Dataset, name: str, sample_dims: Sequence[Hashable], num_draws: int
) -> NDArray[np.float64]:
    """Read frequencies, shape (n_draws, n_frequencies, n_factors)."""
    if name not in posterior:
        raise KeyError(no_such(f"variable {name!r}", sorted(map(str, posterior.data_vars)), name))
    own = sampled(posterior[name], sample_dims, 2)
    flat = own.to_numpy().reshape(-1, *own.shape[-2:])
    return flat[np.unique(np.linspace(0, len(flat) - 1, num_draws).round().astype(int))]
