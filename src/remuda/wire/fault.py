"""A line, or a check, that tells of a fault: what was seen, and whose fault that speaks for.

Python 3.9, standard library only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from remuda.wire.fields import known

#: Whose fault it is. Only `node` and `ambiguous` reach the ledger of nodes.
NODE = "node"
"""The machine or its GPU is broken."""
NODE_BUSY = "node-busy"
"""Something that was left behind holds the GPU."""
TRANSIENT = "transient"
"""Network, another rank, a passing fault of the file system."""
RESOURCE = "resource"
"""Out of memory or disk."""
AMBIGUOUS = "ambiguous"
"""A bug of the program, or bad hardware: the repeat with another program on the same GPU decides."""
APPLICATION = "application"
"""The user's program."""
INFO = "info"
"""Worth showing, no fault."""
KINDS = (NODE, NODE_BUSY, TRANSIENT, RESOURCE, AMBIGUOUS, APPLICATION, INFO)
MAX_LINE = 300


@dataclass(frozen=True)
class Fault:
    """One piece of evidence."""

    kind: str
    """One of `KINDS`."""
    name: str
    """Of the pattern or check, e.g. `xid-79`, `cuda-214`, `gpu-missing`."""
    line: str = ""
    """What was seen, at most `MAX_LINE` characters."""
    device: str = ""
    """The GPU (PCI address, UUID or index), where it is named."""
    at: float = 0.0
    """Seconds since the epoch on the node's clock."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Fault:
        """Read it; fields of newer versions are ignored.

        Raises:
            ValueError: not a fault.
        """
        try:
            fault = cls(**known(cls, data))
        except (TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error
        if fault.kind not in KINDS:
            raise ValueError(f"{fault.kind!r} is not a kind of fault")
        return fault
