"""Where remuda keeps what it keeps: one state directory, known names inside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StatePaths:
    """The state directory and its fixed inhabitants. Nothing here touches the disk but `prepare`."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file, unless a database URL is set."""
        return self.root / "remuda.db"

    @property
    def socket(self) -> Path:
        """The host's unix socket, mode 0600.

        A socket path may have 107 bytes at most, so a deep state directory gets a short one under the runtime
        directory, named after the state directory.
        """
        direct = self.root / "host.sock"
        if len(os.fsencode(str(direct))) <= 100:
            return direct
        import hashlib

        tag = hashlib.sha256(os.fsencode(str(self.root.resolve()))).hexdigest()[:16]
        runtime = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - the folder below it is 0700
        return Path(runtime) / f"remuda-{os.getuid()}-{tag}" / "host.sock"

    @property
    def host_lock(self) -> Path:
        """What the host of this machine locks. Each machine has its own: a network home carries locks to all others.

        Whether another machine's host is in charge is the lease's to say, which also knows who has it.
        """
        return self.socket.with_name(f"host.{os.uname().nodename}.lock")

    @property
    def host_log(self) -> Path:
        """What the host prints."""
        return self.root / "host.log"

    @property
    def host_file(self) -> Path:
        """JSON of the running host: pid, report address; nodes re-read it to find a restarted host."""
        return self.root / "host.json"

    @property
    def report_secret(self) -> Path:
        """What the keys are made of with which allocations report; it stays the same from host to host."""
        return self.root / "report.secret"

    @property
    def ports(self) -> Path:
        """Lock files of ports handed out on this machine (not shared between machines)."""
        return Path("/tmp") / f"remuda-ports-{os.getuid()}"  # noqa: S108 - created 0700, checked

    @property
    def workloads(self) -> Path:
        """One run directory per workload."""
        return self.root / "workloads"

    @property
    def jobs(self) -> Path:
        """One directory per batch job: checkpoint, log, progress."""
        return self.root / "jobs"

    def workload(self, name: str) -> Path:
        """The run directory of one workload."""
        return self.workloads / name

    def prepare(self) -> None:
        """Create the directories, private to the user."""
        for folder in (self.root, self.workloads, self.jobs, self.socket.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def state_paths() -> StatePaths:
    """The state directory in force: `REMUDA_HOME`, `DOMYN_SWARM_HOME`, else `~/.remuda`."""
    from remuda.base.settings import setting

    home = setting("HOME")
    return StatePaths(Path(home).expanduser().absolute() if home else Path.home() / ".remuda")
