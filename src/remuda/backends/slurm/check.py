"""Whether Slurm would take a job as it is, asked before anything is recorded."""

from __future__ import annotations

import os
import pwd
import tempfile
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError, RemudaError
from remuda.base.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.backends.base import Rendered
    from remuda.backends.slurm.client import SlurmClient

_FIELDS: Final = (
    ("invalid partition", "backend.partition"),
    ("required partition", "backend.partition"),
    ("partition configuration", "backend.partition"),
    ("invalid qos", "backend.qos"),
    ("invalid account", "backend.account"),
    ("time limit", "backend.time_limit"),
    ("feature", "backend.preamble"),
)
"""Part of Slurm's refusal -> field that it speaks of."""


async def check(calls: Sequence[Rendered], client: SlurmClient) -> None:
    """Ask whether Slurm would take jobs: `sbatch --test-only` with the very words and script that are sent.

    Silence, and what may pass by itself, is no refusal here.

    Raises:
        InputError: Slurm refuses one for good; `where` is the field it speaks of.
    """
    for call in calls:
        if call.argv[0] != "sbatch":
            continue  # what runs beside the host
        with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as script:
            script.write(call.files[call.argv[-1]])
            script.flush()
            words = [word for word in call.argv[1:-1] if word not in ("--hold", "--parsable")]
            try:
                said = await client.refusal(("sbatch", "--test-only", *words, script.name))
            except RemudaError:
                return
        if said:
            raise await _located(said, words, client)


async def _located(said: str, words: Sequence[str], client: SlurmClient) -> InputError:
    """The refusal at the field it speaks of, with what there is instead."""
    where = next((field for part, field in _FIELDS if part in said.lower()), "")
    if "node name" in said.lower():
        where = "backend.node_list" if _value(words, "--nodelist=") else "backend.exclude_nodes"
    hint = ""
    if where == "backend.partition":
        hint = await _known(("sinfo", "-h", "-o", "%R"), _value(words, "--partition="), client)
    elif where in ("backend.account", "backend.qos"):
        fields = where.removeprefix("backend.")
        asked = ("sacctmgr", "-nP", "show", "assoc", "where", f"user={user()}", f"format={fields}")
        hint = await _known(asked, _value(words, f"--{fields}="), client)
    return InputError(said, hint=hint, where=where)


def _value(words: Sequence[str], option: str) -> str:
    return next((word.removeprefix(option) for word in words if word.startswith(option)), "")


async def _known(argv: tuple[str, ...], wrong: str, client: SlurmClient) -> str:
    """What there is instead, nearest first; empty where that cannot be asked."""
    names = await listed(argv, client)
    if wrong in names:
        return f"{wrong!r} exists, but not with what else is asked for"
    return f"{did_you_mean(wrong, names)} there are {', '.join(names[:20])}".strip() if names else ""


async def listed(argv: tuple[str, ...], client: SlurmClient) -> list[str]:
    """The names that a command of Slurm prints; none where it cannot be asked."""
    try:
        text = await client.commands.ask(argv)
    except RemudaError:
        return []
    return sorted({name for line in text.splitlines() for name in line.strip().split(",") if name})


def user() -> str:
    """Name of the user, as Slurm's accounting has it."""
    return pwd.getpwuid(os.getuid()).pw_name
