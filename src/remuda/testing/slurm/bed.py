"""A real Slurm of several nodes under one directory: `SlurmBed`."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Self

from remuda.base.disk.private import check_above, check_private, make_private
from remuda.base.errors import InputError, NotFound
from remuda.base.words import TRY_LETTERS
from remuda.fleet import processes
from remuda.fleet.daemons import keep_environment, listens, munged
from remuda.fleet.processes import Daemons, wait_until
from remuda.fleet.tree import which
from remuda.testing.slurm import accounting, drills, network, procs, pyxis, registry
from remuda.testing.slurm.client import Client
from remuda.testing.slurm.config import BedLayout, Preempt, device, files
from remuda.testing.slurm.nodes import BedNode
from remuda.testing.slurm.packages import require
from remuda.testing.slurm.topology import DEFAULT, Topology
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ELSEWHERE = "name another directory"
SERVICES = ("munged", "mariadbd", "slurmdbd", "slurmctld")


class SlurmBed(Client):
    """One bed. Everything it makes lies in its directory, but for network interfaces `rmsl…` while it is isolated.

    Args:
        directory: where; made by `up`. At most 70 characters, because sockets lie in it. A bed that lies there
            already is taken as it is, and the other arguments do not count.
        topology: nodes, partitions, qualities of service, accounts.
        accounting: with slurmdbd on a private MariaDB.
        isolated: nodes with a network, a host name and processes of their own. None: where this process may make them.
        preempt: whether partitions or qualities of service decide who gives way.
        extra: lines `Key=Value` of slurm.conf that are added, or replace ours.
        owned: the bed ends with this process: beds whose owner is dead are removed by the next `up` of any bed.

    Raises:
        NotPrivate: the directory is somebody else's, or others can write it: what lies in it would be run.
    """

    _node_kind: type[BedNode] = BedNode

    def __init__(
        self,
        directory: Path | str,
        *,
        topology: Topology = DEFAULT,
        accounting: bool = True,
        isolated: bool | None = None,
        preempt: Preempt = "partition",
        extra: Sequence[str] = (),
        owned: bool = False,
    ) -> None:
        _check(Path(directory).absolute())
        super().__init__(Path(directory).resolve())
        self._wanted = (topology, accounting, isolated, preempt, tuple(extra), owned)
        self.daemons = Daemons(self.root)
        self._layout = registry.layout_in(self.root)
        self._nodes: dict[str, BedNode] = {}

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """The bed that lies in a directory.

        Raises:
            NotFound: there is none.
        """
        bed = cls(directory)
        if bed._layout is None:
            raise NotFound(f"there is no Slurm test bed in {bed.root}")
        return bed

    @property
    def layout(self) -> BedLayout:
        """Names, ports and addresses, chosen by the first `up`."""
        if self._layout is None:
            raise NotFound(f"there is no Slurm test bed in {self.root}", hint="start it with up()")
        return self._layout

    # Life

    def up(self) -> None:
        """Start what does not run; returns when all nodes are idle or at work.

        Raises:
            Unavailable: packages are missing, or all slots are taken.
            InputError: the directory's path is too long, or isolation was asked for where it is not possible.
            RemudaError: a daemon ended; the message has its log.
            TimedOut: the nodes did not become idle.
        """
        sweep()
        if self._layout is None:
            self._layout = self._make()
        require(accounting=self.layout.accounting)
        self.start_all()
        self.wait_idle(states=("idle", "mix", "alloc", "comp", "drain", "drng"))

    def start_all(self) -> None:
        """Start all daemons that do not run, without waiting for the nodes.

        Raises:
            RemudaError: a daemon ended; the message has its log.
            TimedOut: a daemon does not answer.
        """
        if self.layout.isolated:
            network.make_bridge(self.layout)
        self.start("munged")
        for node in self.nodes.values():
            node.spawn()
        if self.layout.accounting:
            accounting.make_database(self.layout)
            self.start("mariadbd")
            self.start("slurmdbd")
            accounting.fill(self.layout, lambda argv: self.run(*argv, check=False))
        self.start("slurmctld")
        for node in self.nodes.values():
            node.plug_in()

    def _make(self) -> BedLayout:
        topology, with_accounting, isolated, preempt, extra, owned = self._wanted
        if len(str(self.root)) > TRY_LETTERS:
            raise InputError(f"{self.root}: the path of a bed has at most {TRY_LETTERS} characters")
        if isolated and not network.can_isolate():
            raise InputError("isolated nodes need the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN")
        require(accounting=with_accounting)
        make_private(self.root, instead=_ELSEWHERE)
        self.root.chmod(0o755)  # jobs of other users run here, too
        layout = registry.take(
            lambda slot: BedLayout(
                root=self.root,
                slot=slot,
                host=socket.gethostname().split(".")[0],
                user=pwd.getpwuid(os.geteuid()).pw_name,
                topology=topology,
                accounting=with_accounting,
                isolated=network.can_isolate() if isolated is None else isolated,
                preempt=preempt,
                extra=extra,
                owner=processes.identity(os.getpid()) if owned else "",
            )
        )
        self._furnish(layout)
        return layout

    def _furnish(self, layout: BedLayout) -> None:
        for folder in ("run", "log", "state", "spool", "dev"):
            (self.root / folder).mkdir(exist_ok=True)
        key = self.root / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for name, file in files(layout).items():
            path = self.root / name
            path.touch(mode=file.mode)
            path.write_text(file.text)
        pyxis.build(self.root)
        for node in layout.topology.nodes:
            fakes = device(layout, node.name)
            fakes.mkdir(exist_ok=True)
            for number in range(node.gpus):
                (fakes / f"nvidia{number}").symlink_to("/dev/null")

    def down(self, *, wipe: bool = True) -> None:
        """End all of it, at once; fine when it is down.

        Args:
            wipe: remove the directory, too, and free the slot. Else `up` finds the old jobs and accounts again.
        """
        if self._layout is not None:
            for node in self.nodes.values():
                node.crash()
            for name in reversed(self.services):
                self.thaw(name)
                self.daemons.stop(name, kill=wipe)
            network.remove(self.layout.slot)
        _end_marked(self.root)
        if wipe:
            shutil.rmtree(self.root, ignore_errors=True)
            if self._layout is not None:
                registry.give_back(self.layout.slot, self.root)
            self._layout, self._nodes = None, {}

    @property
    def nodes(self) -> Mapping[str, BedNode]:
        """All nodes by name."""
        if not self._nodes:
            env = self._daemons_env()
            numbers = range(len(self.layout.topology.nodes))
            made = [self._node_kind(self.layout, index, self.daemons, env) for index in numbers]
            self._nodes = {node.name: node for node in made}
        return self._nodes

    @property
    def node_addresses(self) -> dict[str, str]:
        """Address of each node, as the head reaches it."""
        return {name: self.layout.address(index) for index, name in enumerate(self.layout.topology.names)}

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes."""
        return self.layout.topology.names

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the daemons that belong to no node, in the order in which they are started."""
        return SERVICES if self.layout.accounting else ("munged", "slurmctld")

    # Daemons

    def start(self, name: str) -> None:
        """Start a node or a service, and wait until a service answers; fine when it runs.

        Raises:
            InputError: nothing has this name.
            RemudaError: it ended at once; the message has its log.
            TimedOut: it does not answer.
        """
        node = self.node_or_service(name)
        if node:
            node.start()
        elif not self.daemons.pid(name):
            self._spawn(name)
            self.daemons.wait_ready(name, lambda: self._answers(name))

    def stop(self, name: str) -> None:
        """End a node's slurmd (its jobs go on) or a service in good order; fine when it is down.

        Raises:
            InputError: nothing has this name.
        """
        node = self.node_or_service(name)
        if node:
            node.stop()
        else:
            self.thaw(name)
            self.daemons.stop(name)

    def node_or_service(self, name: str) -> BedNode | None:
        """The node of this name; None for a service.

        Raises:
            InputError: nothing has this name.
        """
        if name not in self.nodes and name not in self.services:
            raise InputError(
                f"there is no node or service {name!r}", hint=f"known: {', '.join([*self.nodes, *self.services])}"
            )
        return self.nodes.get(name)

    def _node(self, name: str, drill: str) -> BedNode:
        node = self.node_or_service(name)
        if node is None:
            raise InputError(f"{drill} is for nodes, and {name} is not a node", hint=f"nodes: {', '.join(self.nodes)}")
        return node

    def _spawn(self, name: str) -> None:
        root, env = self.root, self._daemons_env()
        match name:
            case "munged":
                argv = munged(root, "")[1:]
            case "mariadbd":
                argv = [f"--defaults-file={root}/my.cnf", f"--user={self.layout.user}"]
            case "slurmdbd":
                argv = ["-D"]
                env["MYSQL_UNIX_PORT"] = env["MARIADB_UNIX_PORT"] = f"{root}/mysql.sock"
            case _:
                argv = ["-D"]
                keep_environment(root, self.layout.user, os.environ.get("PATH", os.defpath))
        self.daemons.spawn(name, [which(name) or name, *argv], env)

    def _daemons_env(self) -> dict[str, str]:
        return {**self.env(), procs.MARK: str(self.root)}

    def _answers(self, name: str) -> bool:
        match name:
            case "munged":
                return listens(self.root / "munge.sock")
            case "mariadbd":
                return listens(self.root / "mysql.sock")
            case "slurmdbd":
                return self.run("sacctmgr", "-n", "list", "cluster", check=False).returncode == 0
            case _:
                return self.run("scontrol", "ping", check=False).returncode == 0

    # Drills

    def crash(self, name: str) -> None:
        """A power failure of a node, or kill -9 of a service; fine when it is down.

        The controller is told of a node's failure at once: it would notice after `SlurmdTimeout`.

        Raises:
            InputError: nothing has this name.
        """
        node = self.node_or_service(name)
        if not node:
            self.daemons.stop(name, kill=True)
            return
        node.crash()
        drills.note(self, f"{name} crashes")
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=Not responding", check=False)

    def freeze(self, name: str) -> None:
        """Stop a node or a service where it stands: connections stay open and nobody answers. `thaw` ends it.

        Raises:
            InputError: nothing has this name.
        """
        node = self.node_or_service(name)
        drills.note(self, f"{name} is frozen")
        if node:
            node.freeze()
        else:
            self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen node or service go on; fine when it is not frozen.

        Raises:
            InputError: nothing has this name.
        """
        node = self.node_or_service(name)
        if node:
            node.thaw()
        else:
            self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        pid = self.daemons.pid(name)
        processes.send(procs.tree([pid]) if pid else [], number)

    def cut(self, node: str) -> None:
        """Pull a node's cable: its jobs go on and nobody hears of them.

        Raises:
            InputError: there is no such node, it is down, or nodes of this bed are not isolated.
        """
        self._node(node, "cut").cut()
        drills.note(self, f"{node} has lost its cable")

    def heal(self, node: str) -> None:
        """Put a node's cable back in; fine when it is in.

        Raises:
            InputError: there is no such node, it is down, or nodes of this bed are not isolated.
        """
        self._node(node, "heal").heal()

    def drain(self, node: str, reason: str = "drill") -> None:
        """Let a node finish its jobs and start no others.

        Raises:
            InputError: there is no such node.
        """
        self._node(node, "drain")
        self.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        """Let a drained or downed node take jobs again; fine when it does.

        Raises:
            InputError: there is no such node.
        """
        self._node(node, "resume")
        self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def expire(self, job: int) -> None:
        """Let a job's time limit be now; Slurm notices within half a minute.

        Raises:
            RemudaError: there is no such job.
        """
        self.run("scontrol", "update", f"jobid={job}", "endtime=now+5")

    def processes(self, node: str) -> list[int]:
        """Pids, as this machine counts them, of all processes of a node; none when it is down.

        Raises:
            InputError: there is no such node.
        """
        return self._node(node, "processes").processes()

    def save_state(self) -> None:
        """Keep an exact copy of the controller's state for `lose_state`; the controller is down for a moment."""
        drills.save_state(self)

    def lose_state(self) -> None:
        """Kill -9 of the controller, and its state is put back to what `save_state` kept, else to nothing.

        Jobs since then are unknown when it is up again, and their ids are given out a second time.
        """
        drills.lose_state(self)

    def restore(self, limit_s: float = 90) -> None:
        """Undo every drill: all daemons up and thawed, cables in, no jobs, partitions as configured, all nodes idle.

        Raises:
            TimedOut: it is not possible within `limit_s`; `down` and `up` remain.
        """
        drills.restore(self, limit_s)


def _check(directory: Path) -> None:
    check_private(directory, instead=_ELSEWHERE)
    check_above(directory, instead=_ELSEWHERE)


def _end_marked(root: Path) -> None:
    """End what a bed's daemons left behind, known by the mark in its environment."""
    mark = f"\0{procs.MARK}={root}\0".encode()
    left = [pid for pid in procs.pids() if pid != os.getpid() and mark in procs.environment(pid)]
    processes.send(left, signal.SIGKILL)
    wait_until(lambda: not any(map(start_time, left)), f"the end of what {root} left behind", 20, step_s=0.01)


def sweep() -> list[Path]:
    """Remove the beds whose owners are dead, and the rest of those without a directory; says which directories."""
    swept = []
    with registry.locked(registry.registry() / "sweep.lock"):
        for slot, root in registry.taken().items():
            layout = registry.layout_in(root)
            if layout is None:
                with registry.locked(registry.registry() / "lock"):
                    is_gone = registry.taken().get(slot) == root and registry.layout_in(root) is None
                if is_gone:
                    _end_marked(root)
                    network.remove(slot)
                    registry.give_back(slot, root)
                    swept.append(root)
            elif layout.slot == slot and layout.owner and not processes.is_alive(layout.owner):
                SlurmBed(root).down(wipe=True)
                swept.append(root)
    return swept
