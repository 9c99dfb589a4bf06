"""Items as pandas would give them; the only module that imports pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def check() -> None:
    """See that pandas is there.

    Raises:
        InputError: it is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("the pandas data backend needs pandas", hint="pip install 'remuda[pandas]'") from error
    assert pd is not None


def pandas_items(column: pa.Array | list[Any]) -> list[Any]:
    """Values of a column as a pandas Series holds them: arrays for lists, NaN for missing numbers."""
    import pandas as pd

    series = pd.Series(column) if isinstance(column, list) else column.to_pandas()
    return list(series)
