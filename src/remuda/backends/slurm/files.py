"""What node programs of jobs leave in the directories of allocations, read again only when it has changed."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from remuda.backends.base import pack_token
from remuda.backends.left import EVIDENCE, Left
from remuda.backends.reportkey import report_key
from remuda.backends.slurm.arrays import BATCHES, batch_of, files_of
from remuda.backends.slurm.render import CREW, NODE_LOG, RESTARTS
from remuda.backends.tail import last_text
from remuda.base.disk.files import write_atomic, write_new
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, NotPrivate
from remuda.wire.process import ProcessId
from remuda.wire.report import KEY_FILE, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.backends.base import Rendered
    from remuda.backends.slurm.arrays import Call

T = TypeVar("T")


class RunDirectories(Left):
    """The run directories of one state directory."""

    def __init__(self, workloads: Path) -> None:
        super().__init__(workloads)
        self._reports: dict[str, tuple[int, Report | None]] = {}
        self._restarts: dict[str, tuple[int, int | None]] = {}

    def prepare(self, items: Sequence[Rendered], call: Call) -> None:
        """Write the files of allocations that are about to be submitted by `call`.

        Raises:
            BackendUnreachable: that is not possible now.
        """
        written: set[str] = set()
        try:
            for item in items:
                folder = Path(self.folder(item.token))
                make_private(folder, below=self.workloads)
                self._write(folder / KEY_FILE, report_key(self.workloads, item.token), folder)
                for name, text in files_of(item, call).items():
                    if name not in written:
                        self._write(Path(name), text, folder)
                written |= {name for name in item.files if item.pack}
                if item.together is not None and call.is_batch:
                    written |= item.together.files.keys()
                    if item.together.link is not None:
                        _link(*item.together.link)
        except (OSError, NotPrivate) as error:
            raise BackendUnreachable(f"cannot write the files of {items[0].token}: {error}") from error

    def _write(self, path: Path, text: str, folder: Path) -> None:
        if path.parent == folder and not path.exists():
            # Nobody reads it before it is submitted.
            write_new(path, text)
            return
        make_private(path.parent, below=self.workloads)
        write_atomic(path, text, mode=0o600, sync=False)

    def report(self, token: str) -> tuple[Report | None, bool]:
        """Newest report of the node program, and whether the file system failed to tell it."""
        try:
            return _fresh(f"{self.folder(token)}/report.json", token, self._reports, Report.from_json), False
        except FileNotFoundError:
            return None, False
        except OSError:
            return None, True

    def restarts(self, token: str) -> int:
        """How often Slurm had put the job back into its queue when its script last began."""
        with suppress(OSError):
            return _fresh(f"{self.folder(token)}/{RESTARTS}", token, self._restarts, int) or 0
        return 0

    def has_claim(self, token: str) -> bool:
        """Whether a node program ever began it."""
        return os.path.exists(f"{self.folder(token)}/claim.json")  # noqa: PTH110 - at every poll

    def claimed_at(self, token: str) -> float:
        """When a node program began it, by the file system's clock; 0 where none did, or that cannot be told."""
        try:
            return os.stat(f"{self.folder(token)}/claim.json").st_mtime  # noqa: PTH116 - beside the others
        except OSError:
            return 0.0

    def bury_all(self, tokens: Sequence[str]) -> list[ProcessId | BackendUnreachable]:
        """`bury` for many, and what went wrong in its place: one file that is linked into all their directories."""
        nobody = ProcessId(pid=0, start="", boot="", node=os.uname().nodename)
        draft = f"{self.workloads}/.claim.{nobody.node}.{os.getpid()}.{threading.get_ident()}"
        found: list[ProcessId | BackendUnreachable] = []
        try:
            is_whole = _is_written(draft, nobody.to_json() + "\n")
            for token in tokens if is_whole else ():
                try:
                    os.link(draft, f"{self.folder(token)}/claim.json")
                    found.append(nobody)
                except OSError:  # it is claimed, or has no directory, or that is on another file system
                    found.append(self._buried(token))
        finally:
            with suppress(OSError):
                os.unlink(draft)  # noqa: PTH108 - beside `link`
        return found if is_whole else [self._buried(token) for token in tokens]

    def _buried(self, token: str) -> ProcessId | BackendUnreachable:
        try:
            return self.bury(token)
        except BackendUnreachable as error:
            return error

    def evidence(self, token: str) -> str:
        """The end of what the task, or where that said nothing its job script, has printed."""
        folder = Path(self.folder(token))
        own = last_text(folder / "child.log", EVIDENCE) or last_text(folder / NODE_LOG, EVIDENCE)
        return own or self.said_by_slurm(token)

    def said_by_slurm(self, token: str) -> str:
        """The end of what its job script and Slurm itself have printed."""
        told = pack_token(token) if self.is_packed(token) else token
        return last_text(Path(self.folder(told)) / NODE_LOG, EVIDENCE)

    def is_packed(self, token: str) -> bool:
        """Whether it shares its job with others, as tasks of a pack do."""
        return os.path.exists(f"{self.folder(pack_token(token))}/{CREW}")  # noqa: PTH110 - beside the others

    def forget(self, tokens: set[str]) -> None:
        """Drop what is cached of allocations other than `tokens`."""
        for known in (self._reports, self._restarts, self._folders):
            for token in known.keys() - tokens:
                del known[token]


def leave_batch(workloads: Path, uid: str) -> None:
    """Forget a workload's part in what the runs of one command share; the last one takes the rest with it."""
    batch = batch_of(uid)
    for folder in workloads.glob(f"{BATCHES}/{batch[0]}-*") if batch is not None else ():
        with suppress(OSError):
            (folder / str(batch[1] if batch else 0)).unlink(missing_ok=True)
            if not any(entry.is_symlink() for entry in folder.iterdir()):
                shutil.rmtree(folder)


def _is_written(path: str, text: str) -> bool:
    """Whether a new file could be written whole; never into one that was there, which may be linked from elsewhere."""
    try:
        Path(path).unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return False
    return True


def _link(name: str, target: str) -> None:
    if os.path.islink(name) and os.readlink(name) == target:  # noqa: PTH114, PTH115 - for each of many
        return
    draft = f"{name}.{os.uname().nodename}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(draft)  # noqa: PTH108
    os.symlink(target, draft)  # noqa: PTH211
    os.replace(draft, name)  # noqa: PTH105


def _fresh(path: str, token: str, known: dict[str, tuple[int, T | None]], read: Callable[[str], T]) -> T | None:
    """What `read` makes of a file, remembered for as long as the file does not change; None while that fails.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - at every poll, for every task
    before = known.get(token)
    if before is not None and before[0] == changed:
        return before[1]
    try:
        made = read(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        return before[1] if before is not None else None
    known[token] = (changed, made)
    return made
