"""What a diagnosis holds, and how it is shown."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` finds. Printed, it is a table and advice.

    Attributes
    ----------
    table : DataFrame
        One row a quantity: ``mean``, ``sd``, ``r_hat``, ``ess_bulk``, ``ess_tail`` and ``note``.
    chains : DataFrame
        One row for each chain: its ``group`` (chains of a group found the same matching), mean
        ``log_joint``, ``within`` (the distance that a chain of the same law would have from it) and
        the means of the moves' statistics, as far as they were recorded.
    distance : DataFrame, shape (n_chains, n_chains)
        Distances of the chains' co-clustering probabilities, from 0 (the same) to 1.
    filled : float
        Share of draws that use all clusters there are; NaN if their number was not recorded.
    not_agreed : list of str
        Quantities whose R-hat says that the chains are not of one law.
    convergence : list of str
        What is wrong with the chains, and what to do about it.
    truncation : list of str
        The same of the number of clusters.
    """

    table: pd.DataFrame
    chains: pd.DataFrame
    distance: pd.DataFrame
    filled: float
    not_agreed: list[str] = field(default_factory=list)
    convergence: list[str] = field(default_factory=list)
    truncation: list[str] = field(default_factory=list)

    @property
    def disagree(self) -> bool:
        """Whether chains found different matchings."""
        return self.chains["group"].nunique() > 1

    @property
    def advice(self) -> list[str]:
        """All advice; empty if nothing is wrong."""
        return [*self.convergence, *self.truncation]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to advise."""
        return not self.advice

    @property
    def words(self) -> str:
        """The advice as text, one item a line."""
        found = self.advice or ["No sign that the chains have not found the posterior."]
        return "\n".join(f"- {item}" for item in found)

    def __str__(self) -> str:
        table = self.table.to_string(formatters=_FORMATS, na_rep="-")
        chains = self.chains.to_string(float_format="{:.3g}".format, formatters=_CHAIN_FORMATS)
        return f"{table}\n\n{chains}\n\n{self.words}"

    __repr__ = __str__

    def tables_html(self) -> str:
        """Give the tables of quantities and of chains as HTML."""
        table = self.table.to_html(formatters=_FORMATS, na_rep="-")
        chains = self.chains.to_html(float_format="{:.3g}".format, formatters=_CHAIN_FORMATS)
        return table + chains

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(item[2:])}</li>" for item in self.words.split("\n"))
        return f"{self.tables_html()}<ul>{items}</ul>"


def _format(spec: str) -> Callable[[float], str]:
    return lambda value: "-" if np.isnan(value) else format(value, spec)


_FORMATS: Any = {
    "mean": _format(".4g"),
    "sd": _format(".4g"),
    "r_hat": _format(".3f"),
    "ess_bulk": _format(".0f"),
    "ess_tail": _format(".0f"),
}
_CHAIN_FORMATS: Any = {"log_joint": "{:.1f}".format}
