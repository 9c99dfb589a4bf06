"""What an allocation left in its directory: who claimed it, and its last word."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from remuda.backends.rundir import allocation_dir
from remuda.base.disk.files import write_new
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, NotPrivate
from remuda.wire.carrying import KEEPS
from remuda.wire.exit import ExitRecord
from remuda.wire.process import ProcessId

EVIDENCE = 4000


class Left:
    """The run directories of one state directory."""

    def __init__(self, workloads: Path) -> None:
        self.workloads = workloads
        self._folders: dict[str, str] = {}

    def folder(self, token: str) -> str:
        """Directory of an allocation."""
        found = self._folders.get(token)
        if found is None:
            found = self._folders[token] = str(allocation_dir(self.workloads, token))
        return found

    def has_folder(self, token: str) -> bool:
        """Whether anybody ever prepared it."""
        return Path(self.folder(token)).exists()

    def exit_record(self, token: str) -> ExitRecord | None:
        """Last word of the node program, None while there is none."""
        try:
            return ExitRecord.from_json(_text(f"{self.folder(token)}/exit.json"))
        except (OSError, ValueError):
            return None

    def claim(self, token: str) -> ProcessId | None:
        """Who runs the allocation, pid 0 for one that was cancelled before it ran; None while nobody claimed it.

        Raises:
            BackendUnreachable: there is a claim, and it cannot be read.
        """
        path = f"{self.folder(token)}/claim.json"
        try:
            return ProcessId.from_json(_text(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BackendUnreachable(f"{path} cannot be read: {error}") from error

    def is_buried(self, token: str) -> bool:
        """Whether it was cancelled before it ran."""
        claim = self.claim(token)
        return claim is not None and claim.pid == 0

    def bury(self, token: str) -> ProcessId:
        """Claim the allocation for nobody, so that a job that still comes ends at once; the claim that holds now.

        Raises:
            BackendUnreachable: nothing can be written there now.
        """
        claim = self.claim(token)
        if claim is not None:
            return claim
        return self.take(token, ProcessId(pid=0, start="", boot="", node=os.uname().nodename))

    def take(self, token: str, whose: ProcessId) -> ProcessId:
        """Claim the allocation for a process, unless another has it; the claim that holds now; errors as `bury`."""
        folder = Path(self.folder(token))
        draft = folder / f".claim.{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}"
        try:
            make_private(folder, below=self.workloads)
            write_new(draft, whose.to_json() + "\n")
            os.link(draft, folder / "claim.json")
        except FileExistsError:
            return self.claim(token) or whose
        except (OSError, NotPrivate) as error:
            raise BackendUnreachable(f"{folder} cannot be written: {error}") from error
        finally:
            draft.unlink(missing_ok=True)
        return whose

    def carried(self, token: str) -> dict[str, Any]:
        """What is noted of an allocation that a node with files of its own has, if one has it; errors as `claim`."""
        path = f"{self.folder(token)}/{KEEPS}"
        try:
            found = json.loads(_text(path))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        except OSError as error:  # a node would remove what it has of another's
            raise BackendUnreachable(f"{path} cannot be read: {error}") from error
        return found if isinstance(found, dict) and isinstance(found.get("node"), str) else {}


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - for each of many that end at once
        return file.read()
