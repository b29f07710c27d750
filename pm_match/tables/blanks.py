"""Text without any letters, which is a missing value."""

import pandas as pd


def without_blanks(column: pd.Series) -> pd.Series:
    """Take empty text, and spaces alone, for missing, as empty cells of files are."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    held = column.astype(object)
    try:
        different = held.unique()
    except TypeError:  # lists, say: no text
        return column
    blanks = [own for own in different if isinstance(own, str) and not own.strip()]
    if not blanks:
        return column
    seen = held.mask(held.isin(blanks))
    # pyarrow's categories are called dictionaries.
    if str(column.dtype).startswith("dictionary"):
        return seen.astype("category")
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_categories(blanks)
    return seen
