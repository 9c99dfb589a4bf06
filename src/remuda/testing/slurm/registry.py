"""Which bed of this machine has which slot, so that several at once never share a port, an address or a bridge.

A slot is a file in a private folder under `/tmp` that names the bed's directory. It is taken under a lock, and free
again when the directory no longer holds a bed of that slot.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.disk.private import check_private, make_private
from remuda.base.errors import NotPrivate, Unavailable
from remuda.testing.slurm.config import SLOTS, BedLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BED_FILE = "bed.json"


def registry() -> Path:
    """The folder of slots, private to the user.

    Raises:
        NotPrivate: somebody else made it, or can write it.
    """
    folder = Path("/tmp") / f"remuda-slurm-{os.getuid()}"  # noqa: S108 - all beds have to find it; it is looked at
    return make_private(folder, instead="ask whoever made it, or root, to remove it")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; others wait. It ends with the process that holds it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def taken() -> dict[int, Path]:
    """Directories of the beds that were registered, by slot; some may be gone."""
    found = {}
    for slot in range(SLOTS):
        with suppress(OSError):
            found[slot] = Path((registry() / f"slot-{slot}").read_text().strip())
    return found


def layout_in(root: Path) -> BedLayout | None:
    """The layout of the bed in a directory; None where there is no bed, or one that others could have written."""
    try:
        check_private(root)
        return BedLayout.from_json(root, json.loads((root / BED_FILE).read_text()))
    except (OSError, ValueError, NotPrivate):
        return None


def take(make: Callable[[int], BedLayout]) -> BedLayout:
    """Take the first free slot and write the bed file of the layout that `make` builds for it.

    Raises:
        Unavailable: none is free.
    """
    with locked(registry() / "lock"):
        used = taken()
        for slot in range(SLOTS):
            if slot in used and _is_held(slot, used[slot]):
                continue
            layout = make(slot)
            if _is_free(layout):
                (registry() / f"slot-{slot}").write_text(f"{layout.root}\n")
                (layout.root / BED_FILE).write_text(json.dumps(layout.to_json(), indent=1))
                return layout
    raise Unavailable(f"all {SLOTS} slots for Slurm beds on this machine are taken", hint="take one down")


def give_back(slot: int, root: Path) -> None:
    """Free a slot, if it is this bed's."""
    with locked(registry() / "lock"):
        if taken().get(slot) == root:
            (registry() / f"slot-{slot}").unlink(missing_ok=True)


def _is_held(slot: int, root: Path) -> bool:
    layout = layout_in(root)
    return layout is not None and layout.slot == slot


def _is_free(layout: BedLayout) -> bool:
    if Path(f"/sys/class/net/{layout.bridge}").exists():
        return False
    return all(_can_bind(port) for port in layout.ports)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - a test of the port; nothing listens
        except OSError:
            return False
    return True
