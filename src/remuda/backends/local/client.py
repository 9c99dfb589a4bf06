"""Talks to this machine: starts node programs, reads what they leave, ends them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import CHILD_ENDED, Life, Observed, Rendered
from remuda.backends.local.processes import kill_token, signal_process, tokens_by_pid
from remuda.backends.reportkey import report_key
from remuda.backends.rundir import allocation_dir
from remuda.backends.tail import last_text
from remuda.base.disk.files import write_atomic, write_new
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, NotPrivate
from remuda.wire.exit import MEANINGS, NO_ROOM, STOPPED, ExitRecord, meaning
from remuda.wire.process import ProcessId, boot_id, is_alive
from remuda.wire.report import KEY_FILE, Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What every process needs of the environment the host was started in; all else comes from the workload.
_INHERITED = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "XDG_RUNTIME_DIR")


class LocalClient:
    """The processes of one host's allocations on this machine.

    Holds nothing that is needed after a crash: `spawned` only tells sooner that a program died before its claim, and
    what is remembered of an allocation spares looking again at what never changes.
    """

    def __init__(self, workloads: Path) -> None:
        self.workloads = workloads
        self.spawned: dict[str, int] = {}
        self._reports: dict[str, tuple[tuple[int, int], Report]] = {}
        self._claims: dict[str, ProcessId] = {}
        self._report_paths: dict[str, str] = {}

    def folder(self, token: str) -> Path:
        """Directory of the allocation."""
        return allocation_dir(self.workloads, token)

    def claim(self, token: str) -> ProcessId | None:
        """Who runs the allocation; None while nobody has claimed it. A claim is made once and never changes."""
        known = self._claims.get(token)
        if known is not None:
            return known
        path = self.folder(token) / "claim.json"
        try:
            self._claims[token] = ProcessId.from_json(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BackendUnreachable(f"{path} cannot be read: {error}") from error
        return self._claims[token]

    def start(self, rendered: Rendered) -> None:
        """Start the node program unless the allocation is claimed already.

        Raises:
            BackendUnreachable: files cannot be written, or no process can be made, now.
        """
        if self.claim(rendered.token) is not None or self._is_on_its_way(rendered.token):
            return
        folder = self.folder(rendered.token)
        try:
            make_private(folder, below=self.workloads)
            for path, text in rendered.files.items():
                write_atomic(Path(path), text, mode=0o600)
            write_atomic(folder / KEY_FILE, report_key(self.workloads, rendered.token), mode=0o600, sync=False)
            env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(rendered.env)
            self.spawned[rendered.token] = _spawn(rendered.argv, env, folder / "node.log")
        except (OSError, NotPrivate) as error:
            raise BackendUnreachable(f"cannot start {rendered.token}: {error}") from error

    def look(self, token: str, found: Mapping[int, str] | None) -> Observed | None:
        """State of one allocation; None: a scan of the processes (`found`) is needed to tell."""
        claim = self.claim(token)
        if claim is None:
            return self._look_unclaimed(token, found)
        if claim.pid == 0:
            self._reap_spawned(token)
            return Observed(
                Life.ENDED, native_state="cancelled", exit_code=STOPPED, reason="cancelled before it started"
            )
        if claim.node != os.uname().nodename:
            return self._look_elsewhere(token, claim)
        if is_alive(claim):
            return Observed(Life.RUNNING, str(claim.pid), "running", claim.node, report=self.report(token))
        if found is None:
            return None
        return self._look_dead(token, claim, found)

    def _look_unclaimed(self, token: str, found: Mapping[int, str] | None) -> Observed | None:
        pid = self.spawned.get(token)
        if pid is not None:
            code = _reap(pid)
            if code is None:
                return self._unclaimed(token, str(pid))
            del self.spawned[token]
            if self.claim(token) is not None:
                # It claimed and ended between our two looks.
                return self.look(token, found)
            if not self.folder(token).exists():  # with the claim in it
                return self._without_record(token, str(pid), os.uname().nodename, code)
            evidence = last_text(self.folder(token) / "node.log", 4000)
            why = f"{meaning(code)}: " if code in MEANINGS else ""
            how = f"ended with code {code}" if code >= 0 else f"was killed by signal {-code}"
            reason = f"{why}the node program {how} before it could start the task"
            return Observed(Life.ENDED, exit_code=code if code > 0 else None, signal=max(0, -code), reason=reason,
                            evidence=evidence, native_state="failed")  # fmt: skip
        if found is None:
            return None
        if token in found.values():
            return self._unclaimed(token)
        return Observed(Life.GONE, reason="no process of it was found on this machine")

    def _unclaimed(self, token: str, native: str = "") -> Observed:
        """It lives: it starts, or its claim went with its directory, which is made before it is started."""
        folder, node = self.folder(token), os.uname().nodename
        if folder.exists():
            return Observed(Life.PENDING, native, "starting", node)
        return Observed(Life.RUNNING, native, "running", node, f"its directory {folder} is gone")

    def _is_on_its_way(self, token: str) -> bool:
        """Whether a node program that we started lives, claimed or not."""
        return token in self.spawned and self._reap_spawned(token) is None

    def _reap_spawned(self, token: str) -> int | None:
        """Take in the node program that we started for `token`; its exit code, None where that is not known."""
        pid = self.spawned.get(token)
        code = _reap(pid) if pid is not None else None
        if code is not None:
            del self.spawned[token]
        return code

    def _look_elsewhere(self, token: str, claim: ProcessId) -> Observed:
        """Another machine with the same home started it: its files are all that can be seen from here."""
        record = self.exit_record(token)
        if record is not None:
            return _ended(record, claim)
        reason = f"runs on {claim.node}, which cannot be looked at from {os.uname().nodename}"
        return Observed(Life.RUNNING, str(claim.pid), "elsewhere", claim.node, reason, report=self.report(token))

    def _look_dead(self, token: str, claim: ProcessId, found: Mapping[int, str]) -> Observed:
        """The node program lives no more; the allocation has ended when nothing else of it does either."""
        if kill_token(token, dict(found)):
            return Observed(Life.RUNNING, str(claim.pid), "cleaning up", claim.node, "ends its left-over processes")
        code = self._reap_spawned(token)
        record = self.exit_record(token)
        if record is not None:
            return _ended(record, claim)
        evidence = last_text(self.folder(token) / "child.log", 4000)
        if claim.boot != boot_id():
            return Observed(Life.ENDED, str(claim.pid), "rebooted", claim.node, "the machine was restarted",
                            evidence=evidence)  # fmt: skip
        if code == NO_ROOM:  # so full that its last word could not be written
            return Observed(Life.ENDED, str(claim.pid), "failed", claim.node, meaning(code), exit_code=code,
                            evidence=evidence)  # fmt: skip
        return self._without_record(token, str(claim.pid), claim.node, code, evidence)

    def _without_record(self, token: str, native: str, node: str, code: int | None, evidence: str = "") -> Observed:
        number = -code if code is not None and code < 0 else 0
        is_gone = not self.folder(token).exists()  # as after a purge of scratch; else it leaves a record unless killed
        if code is None:
            how = "how the node program ended is not known" if is_gone else "the node program was killed"
        else:
            how = f"the node program {f'was killed by signal {number}' if number else f'ended with code {code}'}"
        reason = f"its directory {self.folder(token)} is gone; {how}" if is_gone else how
        state = "failed" if code is not None and not number else "killed"
        return Observed(Life.ENDED, native, state, node, reason, exit_code=None if number else code, signal=number,
                        evidence=evidence)  # fmt: skip

    def exit_record(self, token: str) -> ExitRecord | None:
        """Last word of the node program, None while there is none."""
        try:
            return ExitRecord.from_json((self.folder(token) / "exit.json").read_text())
        except (OSError, ValueError):
            return None

    def report(self, token: str) -> Report | None:
        """Newest report in the run directory; read only when the file changed."""
        path = self._report_paths.get(token) or str(self.folder(token) / "report.json")
        try:
            seen = os.stat(path)  # noqa: PTH116 - once a second for every task
            # It is replaced: two within one tick of the file system's clock are two files.
            changed = (seen.st_mtime_ns, seen.st_ino)
            known = self._reports.get(token)
            if known is not None and known[0] == changed:
                return known[1]
            self._report_paths[token] = path
            report = Report.from_json(Path(path).read_bytes())
        except (OSError, ValueError):
            return None
        self._reports[token] = (changed, report)
        return report

    def end(self, token: str, *, force: bool) -> None:
        """Ask the node program to end the allocation, or kill all of it; nothing may start under this token later."""
        claim = self.claim(token) or self._bury(token)
        if claim.pid == 0 or force:
            kill_token(token, tokens_by_pid())
        elif claim.node != os.uname().nodename:
            raise BackendUnreachable(f"{token} runs on {claim.node}; run remuda there to end it")
        else:
            import signal

            signal_process(claim, signal.SIGTERM)

    def _bury(self, token: str) -> ProcessId:
        """Claim the allocation for nobody, so that a node program still on its way ends at once."""
        folder = self.folder(token)
        try:
            make_private(folder, below=self.workloads)
        except NotPrivate as error:
            raise BackendUnreachable(f"cannot end {token}: {error}") from error
        nobody = ProcessId(pid=0, start="", boot="", node=os.uname().nodename)
        temporary = folder / f".claim.{os.getpid()}"
        write_new(temporary, nobody.to_json())
        try:
            os.link(temporary, folder / "claim.json")
            return nobody
        except FileExistsError:
            return self.claim(token) or nobody
        finally:
            temporary.unlink()

    def forget(self, tokens: set[str]) -> None:
        """Drop what is cached of allocations other than `tokens`."""
        for known in (self._reports, self._claims, self._report_paths):
            for token in known.keys() - tokens:
                del known[token]


def _spawn(argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Start a program in a session of its own; returns its pid. It outlives us."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)


def _reap(pid: int) -> int | None:
    """Exit code of a process we started (minus the signal that killed it), None while it lives or is not ours."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None


def _ended(record: ExitRecord, claim: ProcessId) -> Observed:
    state = CHILD_ENDED if record.child_exit_code == record.code else "ended"
    return Observed(
        Life.ENDED, str(claim.pid), state, claim.node, record.reason,
        exit_code=record.code, signal=record.child_signal, ended_at=record.at, evidence=record.log_tail,
        ran_s=record.ran_s, metrics=record.metrics,
    )  # fmt: skip
