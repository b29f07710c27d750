"""The distribution `BlockNetwork`: from a declaration to a variable of the op."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pm_match.checks import check_count, check_option
from pm_match.networks.checks import (
    check_axes,
    check_density,
    check_dims,
    check_exposure,
    check_order,
    check_relevance,
    check_shape,
)
from pm_match.networks.data import FAMILIES, Family, Network, as_network, count_cells
from pm_match.networks.op import BlockNetworkRV

_DEFAULT_MAX_EDGES = 100_000


class BlockNetwork(pm.Distribution):
    r"""A network whose cells depend on the clusters of their objects: a stochastic block model.

    .. math::

        x_{ij} \sim F(\theta_{z_i, z'_j}) \text{ if } r_i r'_j = 1, \text{ else } F(\phi)

    F is Bernoulli, Poisson (with the rate multiplied by exposures :math:`e_i f_j`), negative
    binomial (that of PyMC, with :math:`n = e_i f_j` and :math:`p = \theta`) or normal. The matrix
    is never built: log probability, gradient and draws are linear in its stored cells, its objects,
    and the blocks.

    Parameters
    ----------
    name : str
        Name of the variable.
    axes : sequence of TensorVariable
        Integer assignments, one vector for each axis. The same variable twice is a one-mode
        network (people by people). Three or more axes have different variables.
    density : tensor_like, or a pair of them
        Probabilities or rates, one dimension for each axis. For the negative binomial family p,
        the nearer to 0 the larger the counts: their mean is n (1 - p) / p, their variance 1 / p
        times that. For the normal family the mean and the precision. A symmetric network uses its
        upper triangle: ``density[k, l]`` with k <= l.
    noise : tensor_like scalar, or a pair of them, optional
        What the cells of irrelevant objects have in place of the density.
    relevance : sequence of TensorVariable or None, optional
        For each axis a vector of 0 and 1, or None if all its objects are relevant. One entry, or
        the same twice, in a one-mode network.
    family : {"bernoulli", "poisson", "negative-binomial", "normal"}, default "bernoulli"
    symmetric : bool, default False
        Whether a one-mode network is undirected.
    self_loops : bool, default False
        Whether the diagonal of a one-mode network is data.
    exposure : sequence of array or None, or "degree", optional
        For the families of counts: a constant vector for each axis (None for ones), a Series being
        matched by the objects' names where the observed network has some. Negative
        binomial counts of one mean are the more overdispersed the smaller their exposure is.
        "degree" takes the sums of rows and columns, so that the product is row degree × column
        degree / total; in a symmetric network degrees count both ends, and the total is twice that
        of the edges.
    absent : {"zero", "unknown"}, default "zero"
        What cells are that a sparse matrix or a table does not list.
    columns : sequence of str, optional
        Columns of an observed DataFrame in long form. See `as_network`.
    max_edges : int, optional
        Number of rows of a random draw: draws are padded, so that they can be stacked, and a draw
        with more edges is an error. Where the known cells are listed, or the family is normal,
        draws have all known cells. By default 4 times the stored cells, at least 100,000, and no
        more than there are cells.
    dims : sequence of str, optional
        Names of the matrix's axes: dims of the model, of as many objects. For checks and for the
        labels in a long form; the variable itself has other dims, as its value is a table.
    observed : optional
        Sparse matrix, dense array (NaN or masked for unknown), DataFrame, DataArray, or a table
        ``(index, values)``. See `as_network`. Without it the network is a free variable.

    Notes
    -----
    The value of the variable is a table: an index column for each axis, then the value. Rows whose
    indices are -1 are padding. Cells of a symmetric network have i <= j. The log probability is
    -inf off the support, but does not look for cells listed twice, or unknown cells that are
    listed: `observed` is checked for them, once.

    Examples
    --------
    >>> ratings = np.array([[3, 0, 1], [2, 0, 0]])  # of two users by three films
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=3)
    ...     user = pm.Categorical("cluster_user", weights, shape=2)
    ...     film = pm.Categorical("cluster_film", weights, shape=3)
    ...     rate = pm.Gamma("rate", 1.0, 1.0, shape=(4, 4))
    ...     network = pmm.BlockNetwork(
    ...         "ratings", axes=[user, film], density=rate, family="poisson", observed=ratings
    ...     )
    ...
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['ClusterGibbs']
    """

    rv_type = BlockNetworkRV

    def __new__(
        cls,
        name: str,
        axes: Sequence[Any],
        density: Any,
        noise: Any = None,
        relevance: Sequence[Any] | None = None,
        family: Family = "bernoulli",
        symmetric: bool = False,
        self_loops: bool = False,
        exposure: Any = None,
        absent: Literal["zero", "unknown"] = "zero",
        columns: Sequence[str] | None = None,
        max_edges: int | None = None,
        dims: Sequence[str] | None = None,
        observed: Any = None,
        **kwargs: Any,
    ):
        """Declare the network in the model on the stack."""
        where = f"BlockNetwork {name!r}"
        axes, one_mode = check_axes(where, axes, symmetric, self_loops)
        shape, labels = check_dims(where, axes, dims)
        network = None
        if observed is not None:
            network = as_network(
                name,
                observed,
                shape=None if None in shape else shape,  # type: ignore[arg-type]
                absent=absent,
                family=family,
                symmetric=symmetric,
                self_loops=self_loops,
                one_mode=one_mode,
                columns=columns,
                labels=labels if columns is not None else None,
            )
            check_order(where, network, dims, labels)
        elif columns is not None or absent != "zero":
            raise ValueError(
                f"{where}: expected `observed`, as `columns` and `absent` say how to read it; "
                "found none"
            )
        return super().__new__(
            cls,
            name,
            axes,
            density,
            noise=noise,
            relevance=relevance,
            family=family,
            symmetric=symmetric,
            self_loops=self_loops,
            exposure=exposure,
            max_edges=max_edges,
            network=network,
            variable=name,
            observed=None if network is None else network.table,
            **kwargs,
        )

    @classmethod
    def dist(
        cls,
        axes: Sequence[Any],
        density: Any,
        noise: Any = None,
        relevance: Sequence[Any] | None = None,
        family: Family = "bernoulli",
        symmetric: bool = False,
        self_loops: bool = False,
        exposure: Any = None,
        max_edges: int | None = None,
        network: Network | None = None,
        variable: str = "network",
        rng: Variable | None = None,
        return_next_rng: bool = False,
        **kwargs: Any,
    ):
        """Make a variable outside of a model; `network` says which cells are known.

        Parameters are those of the class. `variable` is the name in messages.
        """
        # PyMC passes the shape of the observed table, which says nothing about draws.
        kwargs.pop("shape", None)
        where = f"BlockNetwork {variable!r}"
        if kwargs:
            raise TypeError(f"{where}: expected no other arguments; found {list(kwargs)}")
        check_option(f"{where}: family", family, FAMILIES)
        axes, one_mode = check_axes(where, axes, symmetric, self_loops)
        shape = check_shape(where, axes, network)
        density = check_density(where, density, family, axes)
        relevance, noise = check_relevance(where, relevance, noise, family, axes, shape, one_mode)
        exposure = check_exposure(where, exposure, family, shape, symmetric, network)
        n_cells = count_cells(shape, one_mode, symmetric, self_loops)
        if network is None:
            absent, cells = "zero", np.empty((0, len(axes)), np.int64)
        else:
            absent = network.absent
            cells = network.unknown if absent == "zero" else network.index
        op = BlockNetworkRV(
            variable=variable,
            family=family,
            n_axes=len(axes),
            one_mode=one_mode,
            symmetric=bool(symmetric),
            self_loops=bool(self_loops),
            absent=absent,
            relevance=[r is not None for r in relevance],
            exposure=[e is not None for e in exposure],
            max_edges=_number_of_rows(where, max_edges, network, n_cells),
        )
        once = slice(0, 1) if one_mode else slice(None)
        inputs = [
            *density,
            *noise,
            *axes[once],
            *(r for r in relevance[once] if r is not None),
            *(pt.constant(e) for e in exposure if e is not None),
            pt.constant(cells),
        ]
        if rng is None:
            rng = pt.random.shared_rng(seed=None)
        next_rng, rv = op(*inputs, rng=rng, return_next_rng=True)
        return (next_rng, rv) if return_next_rng else rv


def _number_of_rows(where, max_edges, network, n_cells) -> int:
    """Give the number of rows of a draw."""
    if max_edges is not None:
        check_count(f"{where}: max_edges", max_edges)
    n_stored, n_unknown = (0, 0) if network is None else (len(network.index), len(network.unknown))
    if network is not None and network.absent == "unknown":
        return n_stored
    if max_edges is None:
        max_edges = max(4 * n_stored, _DEFAULT_MAX_EDGES)
    return min(int(max_edges), n_cells - n_unknown)
