"""Where a result comes from: fingerprints of the data, and what they were matched with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pm_match.front.prepared import PreparedData


def fingerprint(data: Any) -> str:
    """Give 16 digits that other data, other labels or another order do not have.

    `data`: as `PreparedData.data` has them.
    """
    digest = hashlib.sha256()
    if isinstance(data, pd.DataFrame):
        digest.update("\x1f".join(map(str, data.columns)).encode())
        # Cells and index as text: a category is the same whichever type holds it.
        digest.update(data.to_csv(float_format="%.17g").encode())
    else:
        for part in (np.asarray(data.shape), data.index, data.values):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def provenance(prepared: PreparedData, settings: Mapping[str, Any]) -> dict[str, str]:
    """Say what was matched, and with what, line by line.

    `settings`: what else draws depend on: seed, numbers of draws and chains.
    """
    said = {}
    for name, own in prepared.data.items():
        size = " × ".join(f"{n:,}" for n in own.shape)
        said[f"Data of {prepared.titles[name]}"] = f"{size}, fingerprint {fingerprint(own)}"
    options = {"model": prepared.model, **prepared.options}
    for what in ("links", "cannot_link", "clusters", "classes"):
        own = getattr(prepared, what)
        if own:
            options[what] = f"of {len(own)}"
    said["Model"] = ", ".join(f"{name} = {value}" for name, value in options.items())
    if settings:
        said["Sampling"] = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return said
