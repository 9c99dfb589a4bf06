"""One node of a bed: its daemon, its processes, and what can happen to it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.fleet import processes
from remuda.fleet.tree import which
from remuda.testing.slurm import network, procs
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.fleet.processes import Daemons
    from remuda.testing.slurm.config import BedLayout

#: File names of the programs, with Debian's alternatives.
_SLURMD = {"slurmd", "slurmd-wlm"}
_STEPD = {"slurmstepd", "slurmstepd-wlm"}
_INIT = Path(__file__).with_name("nodeinit.py")


class BedNode:
    """One node. Isolated, it is a process tree below its own init; else slurmd, its step daemons, and their tasks."""

    def __init__(self, layout: BedLayout, index: int, daemons: Daemons, env: Mapping[str, str]) -> None:
        self._layout = layout
        self._index = index
        self._daemons = daemons
        self._env = env
        self.name = layout.topology.names[index]
        self.daemon = f"slurmd.{self.name}"
        self._known = ""
        """Identity of the slurmd that was found last: looking for it reads of every process of the machine."""

    def spawn(self) -> None:
        """Begin to start it, unless it runs; `plug_in` must follow."""
        layout, slurmd = self._layout, self._words()
        (layout.root / "spool" / self.name).mkdir(exist_ok=True)
        if not layout.isolated:
            self._daemons.spawn(self.daemon, slurmd, self._env)
        elif self._daemons.pid(self.daemon):
            processes.send(self._below_init()[:1] if not self._slurmd() else [], signal.SIGUSR1)
        else:
            files = [str(layout.root / "hosts"), str(layout.root / "resolv.conf")]
            init = [sys.executable, "-I", "-S", str(_INIT), self.name, layout.address(self._index), layout.head, *files]
            self._daemons.spawn(self.daemon, [*network.NAMESPACES, *init, *slurmd], self._env, gated=True)

    def _words(self) -> list[str]:
        """What runs it."""
        return [which("slurmd") or "slurmd", "-D", "-N", self.name]

    def plug_in(self) -> None:
        """Connect an isolated node that was just spawned; no-op for others."""
        pid = self._daemons.pid(self.daemon)
        if self._layout.isolated and pid and self._daemons.is_gated(self.daemon):
            network.connect(self._layout, self._index, pid)
            self._daemons.open_gate(self.daemon)

    def start(self) -> None:
        """Start it, or only its slurmd where that was stopped; fine when it runs."""
        self.spawn()
        self.plug_in()

    def is_up(self) -> bool:
        """Whether its slurmd lives, stopped by a signal or not."""
        return bool(self._slurmd())

    def is_frozen(self) -> bool:
        """Whether its slurmd was stopped by a signal."""
        pid = self._slurmd()
        return bool(pid) and procs.state(pid) == "T"

    def _slurmd(self) -> int:
        """Pid of its slurmd; 0 when there is none."""
        pid = self._daemons.pid(self.daemon)
        if not pid or not self._layout.isolated:
            return pid or 0
        if not processes.is_alive(self._known):
            found = next((below for below in self._below_init() if procs.program(below) in _SLURMD), 0)
            self._known = processes.identity(found) if found else ""
        return int(self._known.partition(" ")[0] or 0)

    def _below_init(self) -> list[int]:
        """An isolated node's own processes: its init, and all below it."""
        pid = self._daemons.pid(self.daemon)
        return procs.tree([pid])[1:] if pid else []

    def processes(self) -> list[int]:
        """Pids, as this machine counts them, of all its processes: daemons, step daemons, tasks."""
        if self._layout.isolated:
            return self._below_init()
        pid = self._daemons.pid(self.daemon)
        return procs.tree([*([pid] if pid else []), *self._steps()])

    def _steps(self) -> list[int]:
        """Step daemons, which outlive slurmd, and tasks that left their parents behind."""
        root = self._layout.root
        log = {str(root / "log" / f"{self.daemon}.log")}
        ours = f"\0SLURM_CONF={root}/slurm.conf\0".encode(), f"\0SLURMD_NODENAME={self.name}\0".encode()
        found = []
        for pid in procs.pids():
            if procs.program(pid) in _STEPD:
                if procs.has_open(pid, log):
                    found.append(pid)
            elif (env := procs.environment(pid)) and all(word in env for word in ours):
                found.append(pid)
        return found

    def freeze(self) -> None:
        """Stop every process of it where it stands; connections stay open and nobody answers."""
        stopped: set[int] = set()
        while fresh := set(self.processes()) - stopped:
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh

    def thaw(self) -> None:
        """Let them go on; fine when it is not frozen."""
        processes.send(self.processes(), signal.SIGCONT)

    def crash(self) -> None:
        """As when the power fails: everything ends at once and no last word gets out. Fine when it is down."""
        if self._layout.isolated:
            network.disconnect(self._layout, self._index)
        else:
            self.freeze()
        left = self.processes()
        self._daemons.stop(self.daemon, kill=True)
        processes.send(left, signal.SIGKILL)
        processes.wait_until(lambda: not any(map(start_time, left)), f"the end of {self.name}", 20, step_s=0.01)

    def stop(self) -> None:
        """End its slurmd in good order; its jobs go on. Fine when it is down."""
        if not self._layout.isolated:
            self._daemons.stop(self.daemon)
            return
        if self.is_up():
            processes.send(self._below_init()[:1], signal.SIGTERM)
            processes.wait_until(lambda: not self.is_up(), f"the end of slurmd on {self.name}", 20, step_s=0.02)

    def cut(self) -> None:
        """Pull its cable.

        Raises:
            InputError: nodes of this bed have no cables, or this one is down.
        """
        self._must_have_cable("cut")
        network.cut(self._layout, self._index)

    def heal(self) -> None:
        """Put its cable back in; fine when it is in.

        Raises:
            InputError: nodes of this bed have no cables, or this one is down.
        """
        self._must_have_cable("heal")
        network.heal(self._layout, self._index)

    def is_cut(self) -> bool:
        """Whether its cable is pulled."""
        return self._layout.isolated and network.is_cut(self._layout, self._index)

    def _must_have_cable(self, drill: str) -> None:
        if not self._layout.isolated:
            raise InputError(
                f"{drill} is not possible here: nodes of this bed share the network of this machine",
                hint="isolated beds need the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN; freeze comes near",
            )
        if not self._daemons.pid(self.daemon):
            raise InputError(f"{drill} is not possible: {self.name} is down", hint="start it first")
