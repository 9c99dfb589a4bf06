"""Programs of ours in the background: one outlives who started it, and what it says goes on in its log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Detached:
    """A program that is started.

    Args:
        module: its name.
        home: its state directory, in which it works.
        log: file that it goes on with; mode 0600, as programs and their arguments are named in it.
    """

    def __init__(self, module: str, home: Path, log: Path) -> None:
        # It must not carry the mark by which a task's processes are ended.
        env = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_TASK")}
        env.pop("REMUDA_TOKEN", None)
        env["REMUDA_HOME"] = str(home)  # it may be relative, and the program works elsewhere
        self._log = log
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            os.fchmod(descriptor, 0o600)  # one of an earlier version is open to all
            self._begin = file.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env, cwd=home,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it lives no more."""
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The last line of its log since it was started, without time, level and name of the logger: for a sentence."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            lines = file.read().decode(errors="replace").strip().splitlines()
        if not lines and not os.statvfs(self._log.parent).f_bavail:
            return f"no space is left for {self._log.parent}"
        return re.sub(r"^[\d-]+ [\d:,]+ [A-Z]+ +[\w.]+: ", "", lines[-1]) if lines else "it said nothing"
