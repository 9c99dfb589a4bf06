"""The two sides of a fleet: `Controller` on its head, `Node` on a machine that joined.

Daemons are detached: they outlive whoever started them, are found again by their pid files, and `tend`, called every
few seconds, starts again what was killed. `start`, `stop` and `tend` run commands and wait for them: call them in a
thread. One directory has one side of one fleet.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import InputError, Unavailable
from remuda.base.text import short
from remuda.fleet.conf import cgroup_conf, differs, gres_conf, node_words, placed, slurm_conf
from remuda.fleet.head import in_use
from remuda.fleet.processes import Daemons
from remuda.fleet.tree import SBIN
from remuda.policy.backoff import backoff_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from remuda.fleet.conf import FleetConf, NodeConf
    from remuda.fleet.tree import Tree

LONGEST = 90
"""Bytes of a directory's path: sockets lie in it, whose paths may have 107."""
ENVIRONMENT: Final = "environment.json"
"""In the head's directory while its controller is meant to run: what Slurm's commands need to ask it."""
LEFT, TWICE = "the fleet ends", "Duplicate jobid"
"""Why nodes are drained: by us at the end; by Slurm, where a controller that lost its last words sent a job again."""
_KEPT = ("HOME", "LANG", "TZ")
_LOOK_S, _LIMIT_S, _CONNECT_S = 15.0, 20.0, 2.0


def listens(path: Path) -> bool:
    """Whether something listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def munged(root: Path, program: str) -> list[str]:
    """How munged is run with all that it has in one directory."""
    names = {
        "key-file": "munge.key", "socket": "munge.sock", "pid-file": "run/munged.own", "log-file": "log/munged.log",
        "seed-file": "munge.seed",
    }  # fmt: skip
    return [program, "--foreground", "--force", *(f"--{option}={root}/{file}" for option, file in names.items())]


def keep_environment(root: Path, user: str, path: str) -> None:
    """What jobs that bring no environment of their own get: from a file, and not from a login shell for each."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    kept |= {"PATH": path, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
    cache = root / "state" / "env_cache" / user
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text("".join(f"{name}={value}\n" for name, value in kept.items()))


class _Side:
    """What both have: munged and one daemon of Slurm, in a directory of their own."""

    daemon: str

    def __init__(self, directory: Path, conf: FleetConf, tree: Tree) -> None:
        if len(os.fsencode(directory)) > LONGEST:
            raise InputError(
                f"the path of {directory} is too long: sockets lie there", hint="set REMUDA_HOME to a shorter path"
            )
        self.root, self.conf, self.tree = directory, conf, tree
        self.daemons = Daemons(directory)
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._looked = 0.0

    def alive(self) -> bool:
        """Whether both daemons live; asks nobody."""
        return all(self.daemons.pid(name) for name in ("munged", self.daemon))

    def _furnish(self, files: dict[str, str]) -> bool:
        """Write what the daemons read; whether something of it is new."""
        make_private(self.root)
        for folder in ("run", "log", "state", "spool"):
            (self.root / folder).mkdir(exist_ok=True)
        keep_environment(self.root, self._user(), f"{os.environ.get('PATH', '')}:{self.tree.path}:{SBIN}")
        files = {**files, "cgroup.conf": cgroup_conf(self.tree.version)}
        changed = {name: text for name, text in files.items() if _text(self.root / name) != text}
        for name, text in changed.items():
            write_atomic(self.root / name, text, mode=0o600)
        return bool(changed)

    def _user(self) -> str:
        try:
            return pwd.getpwuid(self.conf.user).pw_name
        except KeyError:
            raise Unavailable(
                f"this machine has no user of number {self.conf.user}, whose work the fleet runs",
                hint=f"add one on it: useradd --uid {self.conf.user} NAME",
            ) from None

    def _keep_key(self, key: bytes) -> bool:
        path = self.root / "munge.key"
        if path.exists() and path.read_bytes() == key:
            return False
        write_atomic(path, key, mode=0o600)
        return True

    def _env(self) -> dict[str, str]:
        """What the daemons, and commands that ask them, are started with: nothing of this process's secrets."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        user = self._user()
        own = {"SLURM_CONF": f"{self.root}/slurm.conf", "LC_ALL": "C", "USER": user, "LOGNAME": user}
        return {**kept, **own, "PATH": f"{self.tree.path}:{SBIN}"}

    def _words(self, name: str) -> Sequence[str]:
        return munged(self.root, self.tree.programs["munged"]) if name == "munged" else self._own_words()

    def _own_words(self) -> Sequence[str]:
        raise NotImplementedError

    def _run(self, name: str, is_ready: Callable[[], object]) -> None:
        if not self.daemons.pid(name):
            self.daemons.spawn(name, self._words(name), self._env())
        self.daemons.wait_ready(name, is_ready, 30)

    def _start_munged(self) -> None:
        self._run("munged", lambda: listens(self.root / "munge.sock"))

    def _revive(self) -> list[str]:
        """Start what was killed; what ends at once again waits longer each time."""
        done, now = [], time.monotonic()
        for name in ("munged", self.daemon):
            if self.daemons.pid(name):
                if now > self._due.get(name, 0.0) + 60:
                    self._failures.pop(name, None)
            elif now >= self._due.get(name, 0.0):
                self._failures[name] = failures = self._failures.get(name, 0) + 1
                self._due[name] = now + backoff_s(failures, 1.0, 30.0, key=name)
                self.daemons.spawn(name, self._words(name), self._env())
                done.append(f"{name} had ended and was started again")
        return done

    def answers(self) -> bool:
        """Whether something takes connections at the controller's address: commands would wait long for nobody."""
        return _connects(self.conf.address, self.conf.port)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands; one that does not answer has failed."""
        argv = [self.tree.programs[words[0]], *words[1:]]
        try:
            return subprocess.run(
                argv, env=self._env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"no answer within {_LIMIT_S:g} s")

    def _is_time(self) -> bool:
        """Whether it is time to look at what only the controller can say."""
        now = time.monotonic()
        if now < self._looked + _LOOK_S or not self.answers():
            return False
        self._looked = now
        return True

    def stop(self) -> None:
        """End both daemons; what runs goes on."""
        for name in (self.daemon, "munged"):
            self.daemons.stop(name)


class Controller(_Side):
    """munged and slurmctld."""

    daemon = "slurmctld"

    @property
    def munge_key(self) -> bytes:
        """What all that belongs to the fleet signs with; made once."""
        path = self.root / "munge.key"
        if not path.exists():
            make_private(self.root)
            write_atomic(path, os.urandom(128), mode=0o600)
        return path.read_bytes()

    @property
    def slurm_conf(self) -> str:
        """What nodes are given."""
        return slurm_conf(self.conf)

    def start(self) -> None:
        """Start what does not run, and wait until slurmctld answers; one with other settings begins anew.

        Raises:
            Unavailable: its port is in use, or this machine has no address.
            RemudaError: a daemon ended; the message has the end of its log.
        """
        text = placed(self.slurm_conf, self.root, self.tree.plugins, self.tree.programs["scontrol"])
        is_new = self._furnish({"slurm.conf": text, "gres.conf": gres_conf()})
        self._keep_key(self.munge_key)
        self._start_munged()
        if is_new:
            self.daemons.stop(self.daemon)
        if not self.daemons.pid(self.daemon):
            _see_free(self.conf.port)
        self._run(self.daemon, lambda: self.answers() and self.ask("scontrol", "ping").returncode == 0)
        self._resume(LEFT)
        said = {"SLURM_CONF": f"{self.root}/slurm.conf", "PATH": self.tree.path}
        write_atomic(self.root / ENVIRONMENT, json.dumps(said))

    def _own_words(self) -> Sequence[str]:
        return [self.tree.programs["slurmctld"], "-D", "-f", f"{self.root}/slurm.conf"]

    def tend(self) -> list[str]:
        """Start again what was killed, resume nodes that Slurm drained for it; what was done, a sentence each."""
        done = self._revive()
        if self._is_time():
            done += [f"{node} takes work again: Slurm had drained it, «{TWICE}»" for node in self._resume(TWICE)]
        return done

    def _resume(self, reason: str) -> list[str]:
        """Let nodes that were drained for this reason take work again; their names."""
        lines = self.ask("sinfo", "-h", "-N", "-t", "drain", "-o", "%N %E").stdout.splitlines()
        names = sorted({name for name, _, why in (line.partition(" ") for line in lines) if why.strip() == reason})
        if names:
            self.ask("scontrol", "update", f"nodename={','.join(names)}", "state=resume")
        return names

    def stop(self, *, drain: bool = False) -> None:
        """End both daemons; jobs go on. With `drain` nodes get no more work until the next start."""
        if drain and self.answers():
            self.ask("scontrol", "update", "nodename=ALL", "state=drain", f"reason={LEFT}")
        (self.root / ENVIRONMENT).unlink(missing_ok=True)
        super().stop()


class Node(_Side):
    """munged and `slurmd -Z`. `slurm_conf` and `munge_key` are the head's."""

    daemon = "slurmd"

    def __init__(
        self, directory: Path, conf: FleetConf, node: NodeConf, *, munge_key: bytes, slurm_conf: str, tree: Tree
    ) -> None:
        super().__init__(directory, conf, tree)
        self.node, self._key, self._conf = node, munge_key, slurm_conf
        self._is_agreed = False

    def start(self) -> None:
        """Start what does not run. Where key, settings, address or GPUs are others than before, daemons begin anew.

        Raises:
            RemudaError: a daemon ended; the message has the end of its log.
        """
        files = {
            "slurm.conf": placed(self._conf, self.root, self.tree.plugins, self.tree.programs["scontrol"]),
            "gres.conf": gres_conf(self.node),
            "slurmd.words": node_words(self.node),
        }
        if self._furnish(files):
            self.daemons.stop(self.daemon)
        if self._keep_key(self._key):
            self.daemons.stop("munged")
        self._start_munged()
        if not self.daemons.pid(self.daemon):
            _see_free(self.conf.slurmd_port)
            self._forget()
        self._run(self.daemon, lambda: _connects(self.node.address, self.conf.slurmd_port))

    def _own_words(self) -> Sequence[str]:
        programs = self.tree.programs
        own = ["-D", "-N", self.node.name, "-Z", "--conf", node_words(self.node), "-d", programs["slurmstepd"]]
        return [programs["slurmd"], "-f", f"{self.root}/slurm.conf", *own]

    def tend(self) -> list[str]:
        """Start again what was killed, and see that Slurm knows this node as it is; what was done, a sentence each."""
        done = self._revive()
        if not self._is_time() or not self.daemons.pid(self.daemon):
            return done
        record = self._record()
        wrong = differs(record, self.node) if record else "unknown" if record is not None else ""
        if wrong == "address":
            self.ask("scontrol", "update", f"nodename={self.node.name}", f"nodeaddr={self.node.address}")
            done.append(f"Slurm was told that {self.node.name} is at {self.node.address}")
        elif wrong and (not record or wrong == "silent" or self._forget()):  # Slurm looks at silent ones after minutes
            self.daemons.stop(self.daemon)
            self.daemons.spawn(self.daemon, self._own_words(), self._env())
            done.append(f"{self.node.name} registered again: Slurm knew it otherwise ({wrong})")
        return done

    def _record(self) -> str | None:
        """What Slurm knows of this node; empty where it knows none of this name, None where it does not say."""
        done = self.ask("scontrol", "show", "node", self.node.name, "-o")
        said = done.stdout + done.stderr
        return done.stdout if done.returncode == 0 else "" if "not found" in said else None

    def _forget(self) -> bool:
        """Have Slurm forget a record that is not as this node joins: registering would not change it.

        Returns:
            Whether it did; Slurm refuses while jobs run there.
        """
        record = self._record() if self.answers() else ""
        wrong = differs(record, self.node) if record else ""
        if wrong in ("gpus", "size") and self.ask("scontrol", "delete", f"nodename={self.node.name}").returncode == 0:
            return True
        if wrong not in ("", "silent"):
            self.ask("scontrol", "update", f"nodename={self.node.name}", f"nodeaddr={self.node.address}")
        return False

    def running(self) -> str:
        """Number and name of each job that runs here, for a sentence."""
        lines = self.ask("squeue", "-h", "-w", self.node.name, "-o", "%i %j").stdout.splitlines()
        return short(", ".join(lines), 300) or "Slurm does not say what"


def _see_free(port: int) -> None:
    try:  # as Slurm's daemons ask where to listen
        socket.getaddrinfo(None, port, socket.AF_INET, flags=socket.AI_ADDRCONFIG | socket.AI_PASSIVE)
    except OSError:
        raise Unavailable(
            "Slurm starts only where there is an address beside 127.0.0.1, and this machine has none",
            hint="connect it to a network, or give it one: sudo ip address add 198.51.100.1/32 dev lo",
        ) from None
    if why := in_use("0.0.0.0", port):  # noqa: S104 - a test of the port; nothing listens
        raise Unavailable(why)


def _connects(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), _CONNECT_S):
            return True
    except OSError:
        return False


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
