"""A refusal of Slurm's is told at the field that it speaks of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remuda.backends.slurm.check import _located


class Commands:
    """Slurm's tools that know two accounts."""

    async def ask(self, argv: tuple[str, ...]) -> str:
        return "lab\nlabs\n"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("lba", "did you mean 'lab'? there are lab, labs"), ("lab", "'lab' exists, but not with what else is asked for")],
)
async def test_what_exists_is_not_said_to_be_meant(asked: str, hint: str) -> None:
    client: Any = SimpleNamespace(commands=Commands())
    said = "Invalid account or account/partition combination specified"
    error = await _located(said, [f"--account={asked}"], client)
    assert (error.where, error.hint) == ("backend.account", hint)
