"""What the host asks of the program on a node: one JSON document per allocation.

Python 3.9, standard library only: this file travels to nodes inside the zipapp.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.wire.guard import Guard
from remuda.wire.spread import Spread

#: In `argv` and `env` values, replaced on the node by the port that was free there.
PORT_MARK = "__REMUDA_PORT__"
#: The same for a port that the child asks for by name: `__REMUDA_PORT_bootstrap__`. In `files`, too.
NAMED_PORT = re.compile(r"__REMUDA_PORT_([a-z][a-z0-9_]*?)__")
#: Replaced on the node by the directory that `files` are written to.
FILES_MARK = "__REMUDA_FILES__"
#: Replaced on the node by the address that the child shall listen on.
HOST_MARK = "__REMUDA_HOST__"
#: Replaced on the node by its name, as the scheduler calls it.
NODE_MARK = "__REMUDA_NODE__"
#: As first word of `argv`: replaced by Apptainer or Singularity, whichever the node has.
CONTAINER_MARK = "__REMUDA_CONTAINER__"
#: As first word of `argv`: replaced by the words that start the node program itself.
PROGRAM_MARK = "__REMUDA_PROGRAM__"
#: Anywhere in a group, replaced by HOST:PORT of the service of that name before the document is written:
#: `__REMUDA_ADDRESS_etcd__`.
ADDRESS = re.compile(r"__REMUDA_ADDRESS_([a-z0-9][a-z0-9-]*)__")
#: In values of `env`, replaced by the task's number in its group before the document is written.
INDEX_MARK = "__REMUDA_INDEX__"
#: In values of `env`, replaced by a port on which all tasks of one attempt meet before the document is written.
MEETING_PORT_MARK = "__REMUDA_MEETING_PORT__"
#: In words of a step of the scheduler's, replaced by `DEVICES` of the job; without any the word is left out.
DEVICES_MARK = "__REMUDA_DEVICES__"
DEVICES = "CUDA_VISIBLE_DEVICES"
VERSION = 1
BEAT_S = 2.0
"""Between two signs of life of a task that is listened for."""
REPORT_EVERY_S = 10.0
"""Between two reports in files, of such a task."""


def named_mark(name: str) -> str:
    """What stands for the port of that name."""
    return f"__REMUDA_PORT_{name}__"


def address_mark(name: str) -> str:
    """What stands for the address of the service of that name."""
    return f"__REMUDA_ADDRESS_{name}__"


@dataclass(frozen=True)
class HealthProbe:
    """How the child's health is asked for over HTTP. Durations in seconds; 0 switches a limit off."""

    path: str = "/health"
    """Empty: nothing is asked, it is well as long as its port takes connections."""
    interval_s: float = 30.0
    """Between probes once ready; while starting it is asked much more often."""
    timeout_s: float = 2.0
    startup_timeout_s: float = 600.0
    """From spawn to the first success; later than that, the child is restarted."""
    stall_s: float = 120.0
    """While starting: no growth of the log and no CPU time used for so long means that it hangs."""
    unhealthy_restart_after_s: float = 120.0
    """From the first failed probe after readiness to the restart."""
    bearer: str = ""
    """Name in `secret_env` whose value is sent as bearer token, for servers that guard their health or metrics."""


@dataclass(frozen=True)
class RestartRule:
    """When the child is started again in place, before the allocation is given up."""

    policy: Literal["always", "on-failure", "never"] = "on-failure"
    max_restarts: int = 3
    backoff_initial_s: float = 5.0
    backoff_max_s: float = 60.0
    heal_after_s: float = 600.0
    """A child that was healthy for so long gets its restarts back."""


@dataclass(frozen=True)
class RunWatch:
    """What is done for a script beyond starting it. Durations in seconds; 0 switches a limit off."""

    heartbeat_interval_s: float = 30.0
    progress_stall_s: float = 0.0
    """No change of the progress file (where there is none: of the output) for so long, and the script is ended."""
    gpus: int = 0
    """That must be visible; 0: none is asked for."""
    gpu_check: bool = True
    scan_log: bool = True
    warn_signal: str = "TERM"
    """Passed to the script when the scheduler tells that the time limit is near (SIGUSR1 to the node program); empty:
    nothing is passed."""
    tee: bool = False
    """Copy the output to the node program's own, which the scheduler writes where the user wanted it."""
    gpu_check_timeout_s: float = 60.0
    """A test of the GPUs that takes longer has failed."""
    fault_grace_s: float = 60.0
    """From a line that tells of broken hardware until the script is ended, unless it ends by itself."""
    previous_wait_s: float = 5.0
    """How long the start waits for the last word of the attempt before."""

    def warn_number(self) -> int:
        """Number of `warn_signal`; 0 when it names none."""
        name = self.warn_signal.upper()
        found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", 0)
        return int(found) if isinstance(found, signal.Signals) else 0


@dataclass(frozen=True)
class Away:
    """For an allocation on files of its own: nobody else sees its directory. Its output is this program's, too."""

    key_file: str
    """With what it reports, and seals its last word."""
    last_word: str
    """File that the scheduler hands on: the exit record, as `wire.exit.seal` makes it."""


_PARTS = {"probe": HealthProbe, "restart": RestartRule, "watch": RunWatch, "spread": Spread, "guard": Guard,
          "away": Away}  # fmt: skip


@dataclass(frozen=True)
class ChildSpec:
    """One supervised child process on a node."""

    token: str
    """Name of the allocation, unique for ever: workload, task and attempt are in it."""
    workload: str
    task: str
    """`group/index`, e.g. `replica/0`."""
    attempt: int
    argv: list[str]
    run_dir: str
    """The allocation's own directory: claim, report, exit, events and logs go here."""
    env: dict[str, str] = field(default_factory=dict)
    """Added to the environment of the node program."""
    secret_env: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name -> `{"file": path}` or `{"env": name}`, read on the node just before the child starts."""
    cwd: str = ""
    port: int = 0
    """Preferred port. 0: any free one if there is a probe or a `PORT_MARK`, else the child listens on none."""
    port_fixed: bool = False
    """Take `port` or fail; otherwise the first free one from `port` on."""
    ports: dict[str, int] = field(default_factory=dict)
    """Ports that the child asks for by name -> number: exactly that or failure; 0, and those that only a `NAMED_PORT`
    names: any free one."""
    files: dict[str, str] = field(default_factory=dict)
    """Name -> text, written before each start with the same marks replaced as in `argv`."""
    port_locks: str = ""
    """Directory of lock files that keep two allocations on one machine from one port; local to the machine, made with
    mode 0700. Empty: no locks, only the bind test."""
    port_locks_own: str = ""
    """Where these lie, below a name for each machine, when somebody else has made `port_locks`. Empty: nowhere."""
    bind_host: str = "127.0.0.1"
    """Address that the child listens on and is probed at."""
    advertise_host: str = ""
    """Host in the reported `url`; empty: `bind_host`, or the node's name when that is a wildcard."""
    stdin_file: str = ""
    """The child's standard input; empty: nothing to read."""
    log_max_bytes: int = 64 * 1024 * 1024
    """`child.log` is renamed `child.log.1` when it would grow beyond; the two together hold at most twice as much."""
    probe: HealthProbe | None = None
    restart: RestartRule = field(default_factory=RestartRule)
    kill_grace_s: float = 10.0
    report_every_s: float = 10.0
    """A report is sent at every change, and at least so often."""
    beat_s: float = 0.0
    """Between reports that only say that it lives: over the line to the host, not into files. 0: none of these."""
    host_file: str = ""
    """JSON `{"report_host", "report_port"}` of the host; read again at each reconnect."""
    log_level: str = "info"
    """What goes to `node.log`: `debug` every probe, `info` every change of state, `warning` what is not well."""
    metrics_path: str = ""
    """Prometheus text of the child, e.g. `/metrics`; its running, waiting and token counts are reported."""
    scan_log: bool = False
    """For servers: look for lines that tell of broken hardware."""
    fatal_lines: list[str] = field(default_factory=list)
    """With `scan_log`: regular expressions of lines after which a server that is not ready yet never will be."""
    watch: RunWatch | None = None
    """For scripts: heartbeat, GPU check, log scan, progress."""
    fence_file: str = ""
    """JSON `{"token": ...}` of the task's current allocation, written before it is submitted. As soon as it names
    another, this one is history: its child is killed at once."""
    previous_dir: str = ""
    """Directory of the attempt before. If that was claimed and has not said its last word, the start waits a moment
    for it to notice that it is history."""

    needs: dict[str, str] = field(default_factory=dict)
    """Absolute paths that must be there before the child is started -> what each is, e.g. `image`."""
    outside: bool = False
    """The server is started by the scheduler, not by the child: whose port and CPU time it is cannot be seen."""
    copy_to: str = ""
    """The child's output is written to this file, too."""

    record_interval_s: float = 0.0
    """What its GPUs do is recorded at this interval, in `recording` in its directory; 0: it is not."""

    spread: Spread | None = None
    """The child spans several nodes: `argv` is the server's, on the first of them."""
    guard: Guard | None = None
    """For scripts in a scheduler's job of their own: each of its nodes fences itself."""
    away: Away | None = None
    """Its directory is seen by nobody else."""

    def to_json(self) -> str:
        """The document as the node reads it."""
        parts = {name: part and vars(part) for name, part in vars(self).items() if name in _PARTS}
        return json.dumps({"version": VERSION, **vars(self), **parts})

    def listens(self) -> bool:
        """Whether the child is given a port."""
        texts = [*self.argv, *self.env.values()]
        return self.port > 0 or self.probe is not None or any(PORT_MARK in text for text in texts)

    def named_ports(self) -> dict[str, int]:
        """Every port that is asked for by name -> the number that it must have, 0 for any."""
        spread = [*self.spread.member, *self.spread.head, *self.spread.ask] if self.spread is not None else []
        texts = [*self.argv, *self.env.values(), *self.files.values(), *spread]
        return {**dict.fromkeys((name for text in texts for name in NAMED_PORT.findall(text)), 0), **self.ports}

    def problem(self) -> str:
        """What makes the document unusable, in one sentence; empty when nothing does."""
        if not self.argv or not all(isinstance(word, str) for word in self.argv):
            return "argv must be a list of at least one text"
        if self.restart.policy not in ("always", "on-failure", "never"):
            return f"restart.policy is {self.restart.policy!r}, not always, on-failure or never"
        if not self.token or not self.run_dir:
            return "token and run_dir must not be empty"
        if not 0 <= self.port < 65536:
            return f"port {self.port} is not between 0 and 65535"
        if self.port_fixed and not self.port:
            return "port_fixed needs a port"
        if wrong := self._wrong_extra():
            return wrong
        if self.watch is not None and self.watch.warn_signal and not self.watch.warn_number():
            return f"watch.warn_signal is {self.watch.warn_signal!r}, not the name of a signal, e.g. TERM or USR1"
        return ""

    def _wrong_extra(self) -> str:
        for name, number in self.ports.items():
            if NAMED_PORT.findall(named_mark(name)) != [name]:
                return f"port name {name!r} is not of small letters, digits and _"
            if not 0 <= number < 65536:
                return f"port {name} is {number}, which is not between 0 and 65535"
        fixed = [number for number in (self.port if self.port_fixed else 0, *self.ports.values()) if number]
        if len(fixed) > len(set(fixed)):
            return "one port is asked for twice: " + ", ".join(map(str, fixed))
        odd = [name for name in self.files if name in ("", ".", "..") or "/" in name or "\0" in name]
        return f"{odd[0]!r} is not the plain name of a file" if odd else ""

    @classmethod
    def from_json(cls, text: str) -> ChildSpec:
        """Read a document.

        Raises:
            ValueError: not JSON, another version, or a field is missing or unknown.
        """
        data: dict[str, Any] = json.loads(text)
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise ValueError(f"not a child document of version {VERSION}")
        try:
            parts = {name: kind(**data[name]) for name, kind in _PARTS.items() if data.get(name) is not None}
            wrong = (spec := cls(**{**data, **parts})).problem()
        except (TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error
        if wrong:
            raise ValueError(wrong)
        return spec
