"""Libraries that a plain install leaves out: what needs one says so before anything starts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from remuda.base.errors import InputError

BATCH: Final = "pip install 'remuda[batch]'"
ACCURACY: Final = "pip install 'remuda[accuracy]'"


def need_batch(what: str) -> None:
    """Refuse `what` («a batch job takes») where the extra `batch` is not installed.

    Raises:
        InputError: it is not.
    """
    _need(what, ("pyarrow", "numpy"), BATCH)


def need_accuracy(what: str) -> None:
    """Refuse `what` («a benchmark of answers takes») where the extra `accuracy` is not installed.

    Raises:
        InputError: it is not.
    """
    _need(what, ("lm_eval", "pyarrow", "numpy"), ACCURACY)


def _need(what: str, modules: tuple[str, ...], hint: str) -> None:
    for module in modules:
        if find_spec(module) is None:
            raise InputError(f"{what} {module}, which is not installed", hint=hint)
