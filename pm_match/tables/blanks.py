"""Text without any letters, which is a missing value."""

import numpy as np
import pandas as pd


def without_blanks(column: pd.Series) -> pd.Series:
    """Take empty text, and spaces alone, for missing, as empty cells of files are."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    held = column.astype(object)
    blank = np.array([isinstance(own, str) and not own.strip() for own in held], bool)
    if not blank.any():
        return column
    seen = held.mask(blank)
    # pyarrow's categories are called dictionaries.
    if str(column.dtype).startswith("dictionary"):
        return seen.astype("category")
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_categories(pd.Index(held[blank]).unique())
    return seen
