"""Jobs of this user that carry a token, found by their names alone: whoever submitted them, and from whatever home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import Life, Stray, is_token
from remuda.backends.rundir import home_of
from remuda.backends.slurm.arrays import BATCHES, batch_uid
from remuda.backends.slurm.parsing.parse import FIELD, RECORD, read_time
from remuda.backends.slurm.parsing.states import STATES, read_state
from remuda.backends.slurm.render import SCRIPT
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from remuda.backends.slurm.client import SlurmClient

FORMAT = RECORD + FIELD.join(("%i", "%K", "%T", "%N", "%V", "%j", "%o"))
"""For `squeue -o`. The command, which is last, is where the job's script lies: in the home that submitted it."""


async def list_all(client: SlurmClient) -> list[Stray]:
    """All that pends or runs under a token: one squeue, whatever the number.

    Raises:
        BackendUnreachable: no answer, or one that cannot be read.
        Rejected: a job's state is a word that this version does not know.
    """
    return parse(await client.commands.ask(("squeue", "-h", "-r", "-u", str(os.getuid()), "-o", FORMAT)))


def parse(text: str) -> list[Stray]:
    """Read what squeue prints with `FORMAT`; jobs of other names are left out. Pure, but for the links of batches.

    Raises:
        BackendUnreachable: it is not that.
        Rejected: an unknown state.
    """
    head, *records = text.split(RECORD)
    if head.strip():
        raise BackendUnreachable(f"the answer of squeue could not be read: {' '.join(head.split())[:120]!r}")
    return [stray for record in records if (stray := _stray(record.removesuffix("\n"))) is not None]


def _stray(record: str) -> Stray | None:
    fields = record.split(FIELD, 6)
    if len(fields) != 7:
        raise BackendUnreachable(f"the answer of squeue could not be read: {' '.join(record.split())[:120]!r}")
    job_id, index, state, nodes, submitted, name, command = fields
    token = _token(name, index, command)
    if not token:
        return None
    word, _ = read_state(state)
    life = STATES[word].life
    if life is Life.ENDED:
        return None
    return Stray(token, job_id, life, word, nodes, read_time(submitted), _home(command, token))


def _token(name: str, index: str, command: str) -> str:
    """The allocation's token: the job's name, which in an array has `a` in place of the index; empty if it is none.

    Of the runs of one command, which are an array of name `b`, links beside the script tell; where they have gone, the
    run has no name any more, but is still found by what is returned.
    """
    parts = name.rsplit(".", 4)
    if len(parts) == 5 and parts[2] == "a" and index.isdigit():
        name = ".".join((*parts[:2], index, *parts[3:]))
    elif len(parts) == 5 and parts[2] == "b" and index.isdigit():
        own = _linked(command, index)
        workload = own.parent.parent.name if own is not None else parts[0]
        name = ".".join((workload, parts[1], "0", parts[3], batch_uid(parts[4], int(index))))
    return name if is_token(name) else ""


def _linked(command: str, index: str) -> Path | None:
    """The directory of the allocation that is a task of an array of runs; None where its link has gone."""
    folder = Path(command).parent
    try:
        return (folder / index).readlink() if folder.parent.name == BATCHES else None
    except OSError:
        return None


def _home(command: str, token: str) -> str:
    """The state directory that the job's script lies in; tasks of an array share the script of a task `a`."""
    script = Path(command)
    linked = _linked(command, token.rpartition("-")[2])
    if linked is not None:
        return home_of(linked, token)
    if script.name != SCRIPT or len(script.parents) < 4:
        return ""
    folder = script.parent
    group, dash, index = folder.parent.name.rpartition("-")
    if index == "a":
        own = token.rsplit(".", 4)[2]
        folder = folder.parent.parent / f"{group}{dash}{own}" / folder.name
    return home_of(folder, token)
