"""Libraries that a plain install leaves out: what needs one says so before anything starts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from remuda.base.errors import InputError

BATCH: Final = "pip install 'remuda[batch]'"


def need_pyarrow(what: str) -> None:
    """Refuse what cannot be done without pyarrow, where that is not installed.

    Args:
        what: as the beginning of a sentence: `batch jobs need`.

    Raises:
        InputError: it is not.
    """
    if find_spec("pyarrow") is None:
        raise InputError(f"{what} pyarrow, which is not installed", hint=BATCH)
