"""Libraries that a plain install leaves out: what needs one says so before anything starts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from remuda.base.errors import InputError

BATCH: Final = "pip install 'remuda[batch]'"


def need_batch(what: str) -> None:
    """Refuse `what` («a batch job takes») where the extra `batch` is not installed.

    Raises:
        InputError: it is not.
    """
    for module in ("pyarrow", "numpy"):
        if find_spec(module) is None:
            raise InputError(f"{what} {module}, which is not installed", hint=BATCH)
