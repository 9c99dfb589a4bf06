"""The child of a replica that spans nodes: starts members on the others, then the server, and ends with any of them.

members are here ─▶ (Ray's head) ─▶ members are told what to run ─▶ (Ray has all nodes and GPUs) ─▶ the server
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node import private, records
from remuda.node.child import scratch
from remuda.node.child.launch import NotHere, told_ports
from remuda.node.child.ports import PortTaken, port_claim
from remuda.node.child.process import adopt_orphans
from remuda.node.child.signals import ENDING, Signals
from remuda.node.guard import member_line
from remuda.node.guard.door import Door
from remuda.node.guard.labelled import Labelled
from remuda.node.guard.ray import FIRST_WITH_TOKEN, RayView, guard
from remuda.wire.child import HOST_MARK, ChildSpec
from remuda.wire.spread import (
    DASHBOARD_MARK,
    EXTRA_GRACE_S,
    HEAD_MARK,
    HEAD_PORT_MARK,
    OWN_MARK,
    RANK_MARK,
    SCRATCH_MARK,
    Spread,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLD_EVERY_S = 10.0
GRACE_S = 5.0
FIRST_PORT = 29500


class Over(Exception):
    """The replica is at its end.

    Args:
        code: exit code.
        why: in one sentence; empty when the server itself ended.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def main(arguments: list[str]) -> int:
    """`spread CHILD.json -- SERVER…`: exit code of the server, or 1 with the reason on stderr."""
    spec = ChildSpec.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    if spec.spread is None:
        raise ValueError("the child document does not span nodes")
    return Gang(spec, spec.spread, arguments[2:]).run()


class Gang:
    """All processes of the replica that are started from this node, and the lines to the others."""

    def __init__(self, spec: ChildSpec, spread: Spread, argv: list[str]) -> None:
        self._spec, self._spread, self._argv = spec, spread, argv
        self._signals = Signals()
        self._cleanup = adopt_orphans()
        records.take_why(Path(spec.run_dir))  # what an earlier start in this directory has left
        (Path(spec.run_dir) / records.WARNING).unlink(missing_ok=True)
        self._guard = guard() if spread.head else {}
        """Environment of everything that Ray is, or that asks it."""
        self._door = Door("0.0.0.0")  # noqa: S104 - the other nodes must reach it
        self._ports = [port_claim(spec, "0.0.0.0") for _ in range(2)]  # noqa: S104
        self._members: dict[int, member_line.MemberLine] = {}
        self._nodes: dict[int, str] = {}
        self._beside: dict[str, subprocess.Popen[bytes]] = {}
        """Processes whose end is the replica's end, by what they are called."""
        self._output: Labelled | None = None
        """Of the other nodes."""
        self._server: subprocess.Popen[bytes] | None = None
        self._ray: RayView | None = None
        self._told_at = 0.0
        words = [*argv, *spread.head, *spread.member, *spread.ask]
        self._marks = {HOST_MARK: spec.bind_host, SCRATCH_MARK: scratch.make(words)}
        self._marks |= told_ports()

    def run(self) -> int:
        """Until one of all ends."""
        try:
            self._gather()
            self._start()
            while True:
                self._turn()
        except Over as over:
            return self._said(over, over.code)
        except (NotHere, OSError, PortTaken) as error:
            return self._said(error, 1)
        finally:
            self._close()

    def _said(self, error: Exception, code: int) -> int:
        """Tell why it ends, for people and for the program that started this one."""
        if str(error):
            sys.stderr.write(f"remuda-node: {error}\n")
            with contextlib.suppress(OSError), private.open_new(Path(self._spec.run_dir) / records.WHY) as file:
                file.write(str(error))
        return code

    def _gather(self) -> None:
        """Start the members and wait until all have called."""
        self._door.announce(Path(self._spec.run_dir) / member_line.MEETING, self._spec.host_file)
        argv = [*step_words(self._spread), *self._spread.launcher, "member", self._spec.run_dir]
        step = member_line.start(argv, {}, self._cleanup, own_group=True, pipe=True, with_errors=True)
        self._beside["the step of the other nodes"] = step
        if step.stdout is not None:
            self._output = Labelled(step.stdout.fileno(), self._nodes)
        while len(self._members) < self._spread.nodes - 1:
            self._turn()
            self._tell(f"{len(self._members) + 1} of {self._spread.nodes} nodes are here")

    def _start(self) -> None:
        """Everything is there: start what each node runs."""
        spread = self._spread
        head = str(next(iter(self._members.values())).socket.getsockname()[0])
        port = self._ports[0].take_free(spread.head_port or FIRST_PORT, self._spec.token)
        dashboard = self._ports[1].take_free(spread.dashboard_port or port + 1, self._spec.token)
        self._marks |= {HEAD_MARK: head, HEAD_PORT_MARK: str(port), DASHBOARD_MARK: str(dashboard)}
        if spread.head:
            self._beside["Ray's head"] = member_line.start(
                self._filled(spread.head, 0), self._guard, self._cleanup, own_group=True
            )
            while not _answers(head, port):
                self._turn()
                self._tell("Ray's head does not answer yet")
        for rank, line in self._members.items():
            words = self._filled(spread.member, rank, own=OWN_MARK)
            line.say({"argv": words, "env": self._env(rank), "scratch": self._marks[SCRATCH_MARK]})
        if spread.ask:
            self._wait_for_ray()
        more = {name: self._filled([value], 0)[0] for name, value in spread.env.items()}
        argv = self._filled(self._argv, 0)
        self._server = member_line.start(argv, {**self._env(0), **more}, self._cleanup, own_group=False)

    def _wait_for_ray(self) -> None:
        """Until Ray has all nodes and GPUs, and has had them for as long as it is asked to."""
        spread = self._spread
        asker = member_line.start(self._filled(spread.ask, 0), self._guard, self._cleanup, own_group=True, pipe=True)
        self._ray = ray = RayView(asker, spread, time.monotonic())
        self._beside["the program that asks Ray"] = asker
        grace = spread.status_grace_s if spread.watch else 0.0
        while not ray.is_well_for(grace, time.monotonic()):
            self._turn()
            self._tell(ray.sentence)
        if ray.unguarded:
            self._warn(
                f"Ray {ray.unguarded} cannot ask for a token: whoever reaches {self._marks[HEAD_MARK]} over the "
                f"network can run programs as you there; install Ray {'.'.join(map(str, FIRST_WITH_TOKEN))} or newer"
            )
        if not spread.watch:
            self._beside.pop("the program that asks Ray")
            member_line.dismiss(asker)
            self._ray = None

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait a moment, and look at everything once.

        Raises:
            Over: something has ended.
        """
        lines = [line.socket.fileno() for line in self._members.values()]
        pipes = [one.fd for one in (self._ray, self._output) if one is not None]
        self._signals.wait(200, *self._door.waits_for(time.monotonic()), *lines, *pipes)
        if any(number in ENDING for number in self._signals.take()):
            self._end_in_order()
        now = time.monotonic()
        self._greet(now)
        for rank, line in self._members.items():
            for message in line.hear():
                if "ended" in message:
                    why = f": {message['why']}" if message.get("why") else ""
                    raise Over(1, f"rank {rank} on {self._nodes[rank]} ended with code {message['ended']}{why}")
            line.beat(now)
            if not line.is_open:
                raise Over(1, f"rank {rank} on {self._nodes[rank]} has gone")
        self._look(now)

    def _look(self, now: float) -> None:
        if self._output is not None:
            self._output.pass_on()
        if self._server is not None and self._server.poll() is not None:
            raise Over(member_line.code_of(self._server), "")
        for name, process in self._beside.items():
            if process.poll() is not None:
                raise Over(1, f"{name} ended with code {member_line.code_of(process)}")
        if self._ray is None:
            return
        self._ray.read(now)
        patience = self._spec.probe.unhealthy_restart_after_s if self._spec.probe is not None else 0.0
        if self._server is not None and patience and self._ray.ill_for(now) > patience:
            raise Over(1, f"Ray is not well: {self._ray.sentence}")

    def _greet(self, now: float) -> None:
        """Take in those that know the key."""
        for line, message in self._door.newcomers(now):
            rank = message.get("rank")
            if isinstance(rank, int) and 0 < rank < self._spread.nodes and rank not in self._members:
                self._members[rank], self._nodes[rank] = line, str(message.get("node", ""))
                line.say({})
            else:
                line.close()

    def _end_in_order(self) -> None:
        """Asked to end: the server was asked, too; the others go on until it has."""
        if self._server is not None:
            until = time.monotonic() + self._spec.kill_grace_s - EXTRA_GRACE_S
            while self._server.poll() is None and time.monotonic() < until:
                if self._output is not None:
                    self._output.pass_on()  # who cannot print cannot end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(0.1)
            raise Over(member_line.code_of(self._server) if self._server.returncode is not None else 1, "")
        raise Over(1, "asked to end")

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _filled(self, words: list[str], rank: int, own: str = "") -> list[str]:
        marks = {**self._marks, RANK_MARK: str(rank), OWN_MARK: own or self._marks[HEAD_MARK]}
        if own:
            marks.pop(SCRATCH_MARK)
            return member_line.plain(words, marks)
        return member_line.filled(words, marks)

    def _env(self, rank: int) -> Mapping[str, str]:
        return {
            **self._guard,
            "REMUDA_RANK": str(rank),
            "REMUDA_NNODES": str(self._spread.nodes),
            "REMUDA_HEAD": self._marks[HEAD_MARK],
            "REMUDA_HEAD_PORT": self._marks[HEAD_PORT_MARK],
        }

    def _tell(self, what: str) -> None:
        """A line of the log now and then: what is waited for, and that the wait is no hang."""
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            sys.stdout.write(f"remuda-node: waits: {what}\n")
            sys.stdout.flush()

    def _warn(self, what: str) -> None:
        """Into the log, and for the program that started this one, which tells the host."""
        sys.stdout.write(f"remuda-node: warning: {what}\n")
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            (Path(self._spec.run_dir) / records.WARNING).write_text(what, encoding="utf-8")

    def _close(self) -> None:
        for line in self._members.values():
            line.close()
        self._door.close()
        running = [*([self._server] if self._server is not None else []), *self._beside.values()]
        if self._output is not None:
            self._output.pass_on()
        member_line.end(running, GRACE_S)
        if self._output is not None:
            self._output.pass_on(ended=True)
        scratch.remove(self._marks[SCRATCH_MARK])
        for port in self._ports:
            port.release()


def step_words(spread: Spread) -> list[str]:
    """`srun` that starts one member on each node of the replica but the first."""
    others = spread.nodes - 1
    words = ["srun", "--overlap", f"--relative={spread.first + 1}", f"--nodes={others}", f"--ntasks={others}"]
    words += ["--ntasks-per-node=1"]
    words += [f"--cpus-per-task={spread.cpus}"] if spread.cpus else []
    return [*words, "--export=ALL", "--mpi=none", "--kill-on-bad-exit=1", "--input=none", "--unbuffered", "--label"]


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
