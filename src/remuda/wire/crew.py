"""What the crew of a pack reads: which node programs it starts on each node of its job.

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

OF_SEATS = frozenset({"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
"""Variables that the crew sets for each task; what the document says of them counts more."""


@dataclass(frozen=True)
class CrewSeat:
    """One task."""

    run_dir: str
    """Its allocation's directory, with its child document."""
    node: int
    """Ordinal of its node in the job; `place` is its number there, `gpu` the first of its `gpus` there."""
    place: int
    gpu: int
    gpus: int


@dataclass(frozen=True)
class CrewSpec:
    """All tasks of one pack."""

    token: str
    run_dir: str
    nodes: int
    host_file: str
    launcher: list[str]
    """How the node program is called."""
    seats: list[CrewSeat]
    meet: bool = True
    """They are ranks, and told where to meet; others are found by their addresses."""

    def to_json(self) -> str:
        """The document as the nodes read it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CrewSpec:
        """Read a document.

        Raises:
            ValueError: it is not one.
        """
        data: Any = json.loads(text)
        try:
            return cls(**{**data, "seats": [CrewSeat(**seat) for seat in data["seats"]]})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not the document of a crew: {error}") from error
