"""Where remuda keeps what it keeps: one state directory, known names inside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from remuda.base.disk.private import check_above, check_private, make_private, told_above
from remuda.base.errors import InputError

_RUNTIME = "set XDG_RUNTIME_DIR to a directory of your own, or REMUDA_HOME to a shorter path"


def is_path(text: str) -> bool:
    """Whether it is the path of a file or folder: a word alone is a name, of a program, a model or an image."""
    return text.startswith(("/", "./", "../", "~/"))


def in_registry(image: str) -> bool:
    """Whether it is the name of an image in a registry: no file, and no other URI."""
    name = image.removeprefix("docker://")
    return "://" not in name and not is_path(name) and not name.endswith((".sif", ".sqsh", ".img"))


def from_here(text: str, cwd: str) -> str:
    """A path that starts where the command was typed, absolute; a name as it is."""
    return str(Path(cwd) / Path(text).expanduser()) if is_path(text) else text


@dataclass(frozen=True)
class StatePaths:
    """The state directory and its fixed inhabitants. Only `check`, `told`, `prepare` and `folder` touch the disk."""

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
    def report_port(self) -> Path:
        """Where the last host took reports: the next one does so there again, as pods are told once."""
        return self.root / "report.port"

    @property
    def report_secret(self) -> Path:
        """What the keys are made of with which allocations report; it stays the same from host to host."""
        return self.root / "report.secret"

    @property
    def ports(self) -> Path:
        """Lock files of ports handed out on this machine (not shared between machines)."""
        return Path("/tmp") / f"remuda-ports-{os.getuid()}"  # noqa: S108 - created 0700, checked

    @property
    def own_ports(self) -> Path:
        """Where `ports` are, a folder for each machine, if somebody else has made that."""
        return self.root / "ports"

    @property
    def node(self) -> Path:
        """What nodes run: the program beside each allocation."""
        return self.root / "node"

    @property
    def workloads(self) -> Path:
        """One run directory per workload."""
        return self.root / "workloads"

    @property
    def jobs(self) -> Path:
        """One directory per batch job: checkpoint, log, progress."""
        return self.root / "jobs"

    @property
    def recordings(self) -> Path:
        """One directory per recording of this machine's GPUs."""
        return self.root / "recordings"

    @property
    def fleet(self) -> Path:
        """What the head of a fleet keeps: who may join, who has joined, its certificate, Slurm's own files."""
        return self.root / "fleet"

    @property
    def fleet_environment(self) -> Path:
        """JSON of what Slurm's commands need to ask this host's fleet; there while it has one."""
        return self.fleet / "environment.json"

    @property
    def fleet_heard(self) -> Path:
        """A file for each node of the host's fleet, as old as what was heard of it last."""
        return self.fleet / "heard"

    @property
    def fleet_carried(self) -> Path:
        """There while nodes of the host's fleet do not see this state directory."""
        return self.fleet / "carried"

    @property
    def fleet_node(self) -> Path:
        """What a machine that joined a fleet keeps."""
        return self.root / "fleet-node"

    def workload(self, name: str) -> Path:
        """The run directory of one workload."""
        return self.workloads / name

    def check(self) -> None:
        """See that nobody else could have written what is there, and not everybody could put something else there.

        Raises:
            NotPrivate: somebody could; says who, and what to do.
        """
        check_private(self.root, instead=f"set REMUDA_HOME to a directory of your own, {self.root}/mine for example")
        check_above(self.root)

    def told(self) -> str:
        """Who else, by the folders above, has this directory in their hands; empty where nobody has."""
        return told_above(self.root)

    def check_socket(self) -> None:
        """See that nobody else made the folder of the socket, where that is not the state directory.

        Raises:
            NotPrivate: somebody did.
        """
        if self.socket.parent != self.root:
            check_private(self.socket.parent, instead=_RUNTIME)

    def prepare(self) -> None:
        """Create the directories, private to the user.

        Raises:
            NotPrivate: one of them is somebody else's, or others can write it.
            InputError: one cannot be made.
        """
        self.check()
        try:
            for folder in (self.root, self.workloads, self.jobs):
                make_private(folder, below=self.root)
            if self.socket.parent != self.root:
                make_private(self.socket.parent, instead=_RUNTIME)
        except OSError as error:
            raise InputError(f"the state directory {self.root} cannot be used: {error}") from error
        # What somebody put here while others could write the directory is still theirs.
        check_private(self.database, below=self.root)

    def folder(self, path: Path) -> Path:
        """Make a directory inside the state directory, private like that.

        Raises:
            NotPrivate: one on the way is somebody else's, or others can write it.
            OSError: it cannot be made.
        """
        return make_private(path, below=self.root)


def state_paths() -> StatePaths:
    """The state directory in force: `REMUDA_HOME`, `DOMYN_SWARM_HOME`, else `~/.remuda`.

    Raises:
        NotPrivate: others than the user could have written what is there.
        InputError: it is not a directory.
    """
    from remuda.base.settings import setting

    home = setting("HOME")
    paths = StatePaths(Path(home).expanduser().absolute() if home else Path.home() / ".remuda")
    if paths.root.exists() and not paths.root.is_dir():
        raise InputError(f"the state directory {paths.root} is not a directory", hint="set REMUDA_HOME to one")
    paths.check()
    return paths
