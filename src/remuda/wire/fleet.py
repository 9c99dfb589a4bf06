"""What a machine that joins a fleet and its head say to each other, one JSON object a request. Standard library only.

Answers are levels, never orders: what shall be so now. One that is lost, or heard twice, does no harm.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Callable, TypeVar

T = TypeVar("T")
PATH = "/fleet/v1"
BEAT_S = 2.0
"""Between two beats of a node."""
MOST_BYTES = 65536
"""Of a request."""
_MOST_LETTERS = 512
_MOST_LISTED = 64


@dataclass(frozen=True)
class Joining:
    """`POST join`: who wants to be a node. Its key is its own secret: asked twice, it is one node."""

    name: str = ""
    key: str = ""
    uid: int = -1
    at: float = 0.0
    """Seconds since the epoch on its clock."""
    slurm: str = ""
    """Version of its slurmd, `22.05.8`."""
    remuda: str = ""
    address: str = ""
    """Of the machine, as the head reaches it."""
    cpus: int = 0
    memory: int = 0
    """MiB."""
    gpus: str = ""
    """`TYPE:COUNT` or `COUNT`; empty without a GPU."""
    stays: bool = False
    """Its user wants it in the fleet, although it was to leave."""


@dataclass(frozen=True)
class Joined:
    """What a node is given. `munge_key` (base64) lets its holder submit work as this user: it is kept 0600."""

    munge_key: str = ""
    slurm_conf: str = ""
    fleet: dict[str, Any] = field(default_factory=dict)
    """`fleet.conf.FleetConf`."""
    proof: list[str] = field(default_factory=list)
    """A file of the head's state directory, and what is in it: a node that reads that there shares the directory."""


@dataclass(frozen=True)
class Beat:
    """`POST beat`: a node lives, and what is the matter with it."""

    at: float = 0.0
    address: str = ""
    gpus: str = ""
    remuda: str = ""
    free_bytes: int = 0
    """Of the disk that its state directory is on."""
    shares: bool = True
    """It sees the head's state directory."""
    problems: list[str] = field(default_factory=list)
    """A sentence each."""


@dataclass(frozen=True)
class Levels:
    """What shall be so on a node now."""

    leaving: bool = False
    """It gets nothing new, and goes when nothing runs there."""
    is_empty: bool = False
    """Nothing runs there."""
    conf: str = ""
    """Digest of what `Joined` has now: another one than the node's, and it asks to join with its key."""
    objects: list[str] = field(default_factory=list)
    """What its store shall have."""


@dataclass(frozen=True)
class Leaving:
    """`POST leave`: drain it."""

    force: bool = False
    """What runs there is given up."""
    gone: bool = False
    """Its daemons have ended: forget it."""


def to_json(message: Any) -> str:
    """One message as text."""
    return json.dumps(asdict(message))


def told(kind: Callable[[], T], text: str | bytes) -> T:
    """Read a message that a stranger may have written; what newer versions add is left out.

    Raises:
        ValueError: it is no such message, or one of its values has another type or is too long.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - callers catch ValueError
    usual = kind()
    given = {one.name: data[one.name] for one in fields(usual) if one.name in data}  # type: ignore[arg-type]
    for name, value in given.items():
        _check(name, value, getattr(usual, name))
    return type(usual)(**given)


def _check(name: str, value: object, usual: object) -> None:
    wanted = (int, float) if isinstance(usual, float) else (type(usual),)
    if type(value) not in wanted:
        raise ValueError(f"{name!r} is of another type")
    listed = value if isinstance(value, list) else [value]
    if len(listed) > _MOST_LISTED or (isinstance(value, list) and not all(isinstance(one, str) for one in listed)):
        raise ValueError(f"{name!r} has too much in it, or something else than words")
    if isinstance(usual, (str, list)) and name not in _LONG and any(len(str(one)) > _MOST_LETTERS for one in listed):
        raise ValueError(f"{name!r} is too long")


_LONG = ("munge_key", "slurm_conf", "data")
