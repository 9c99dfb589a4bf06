"""What a node and its head say of carried allocations, whose node shares no directory with the head.

A node asks for the files of a job that Slurm runs there (`Errand`, `Parcel`), and pushes what the allocation writes
(`Push`, then the bytes). Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

HOME_MARK: Final = "__REMUDA_CARRIED__"
"""In a document, in place of the directory that all run directories lie in."""
ADDRESS_MARK: Final = "__REMUDA_ADDRESS__"
"""There, in place of the node's address in the fleet's network."""
PYTHON_MARK: Final = "__REMUDA_PYTHON__"
"""There, in place of the interpreter that the node's client runs with, for servers that the head's own would start."""
MOST_BYTES: Final = 4 << 20
"""Of a push."""
PIECE_BYTES: Final = 1 << 20
"""Of what files are in one."""
MOST_FILE: Final = 128 << 20
"""Bytes of one file that is mirrored: logs are turned at half of it, and larger files stay on their node."""
MOST_FILES: Final = 2000
MOST_IN_ALL: Final = 4 << 30
"""Files of one allocation on the head, and their bytes; a recording has 2 GB at most."""
KEEPS: Final = "carried.json"
"""In an allocation's directory on the head: which node has it."""
SILENT_S: Final = 10.0
"""Of a node that was not heard for so long nothing is known."""
DOCUMENT, SCRIPT, WORK, SECRET = "child.json", "job.sh", "work", "of-secret."
"""Files of an allocation that are the head's, the folder that it works in, and how files of its secrets begin."""
RESULTS: Final = "results.tar"
"""What a task made or changed where it worked, packed when it has ended."""
ALWAYS: Final = ("report.json", "heartbeat", RESULTS, "exit.json")
"""Files that come to the head however many others there are."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_MOST_PARTS = 4
_OF_THE_HEAD: Final = (DOCUMENT, SCRIPT, KEEPS, WORK, "report.key", "slurm.json", "crew.json")


@dataclass(frozen=True)
class Errand:
    """`POST fetch`: a job that has begun on this node asks for its files."""

    token: str = ""
    job: str = ""


@dataclass(frozen=True)
class Parcel:
    """What it needs. Paths are below the directory of all run directories."""

    folder: str = ""
    """Of the allocation."""
    files: dict[str, list[Any]] = field(default_factory=dict)
    """Path -> mode and text."""
    program: str = ""
    """Name of the node program, which is asked for in pieces where it is not there yet."""
    tar: str = ""
    """Name of the packed folder of the command, likewise; empty: it has none."""


@dataclass(frozen=True)
class Wanted:
    """`POST piece`: more of a file that a parcel names."""

    token: str = ""
    name: str = ""
    at: int = 0


@dataclass(frozen=True)
class FilePart:
    """What comes there, as base64; empty at the end."""

    data: str = ""


@dataclass(frozen=True)
class Push:
    """The first line of `POST mirror`. After it come the bytes of its parts, one after the other."""

    token: str = ""
    parts: list[str] = field(default_factory=list)
    """`HOW OFFSET SIZE NAME`: `add` at this offset, `put` a whole file, or `turn`: NAME, which has OFFSET bytes, is
    NAME.1 from now on."""
    done: bool = False
    """The allocation has ended on the node, and all that it wrote is here."""


@dataclass(frozen=True)
class Kept:
    """What the head has now."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Of files that have another size than a part began at: nothing was added."""
    foreign: bool = False
    """The allocation is not this node's, or not any more."""


def is_grown(name: str) -> bool:
    """Whether a file of an allocation grows at its end; the others are replaced whole."""
    return not name.endswith(".json") and not name.endswith("heartbeat")


def is_inside(name: str) -> bool:
    """Whether it is a relative path to a file of an allocation that a node may write."""
    parts = name.split("/")
    if len(parts) > _MOST_PARTS or not all(_PART.fullmatch(part) for part in parts):
        return False
    return parts[0] not in _OF_THE_HEAD and not parts[0].startswith(SECRET)
