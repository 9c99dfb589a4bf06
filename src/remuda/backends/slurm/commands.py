"""Runs Slurm's commands: a clean environment, a time limit, few at once, and silence told from refusal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from remuda.backends.slurm.parsing.reasons import is_silence, said_by
from remuda.base.errors import BackendUnreachable
from remuda.specs.reading.sbatch_options import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.specs.reading.sbatch_options import Table

_CLEANED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURMD_")
_SAID = 300


class CommandOutput(NamedTuple):
    """What a command said when it ended by itself."""

    code: int
    out: str
    err: str


class Commands:
    """Slurm's command line on this machine.

    Args:
        timeout_s: after which a command is killed.
        at_once: most commands that run at the same time.
        environ: environment to start from, or what says it for each command; this process's own where None.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 30.0,
        at_once: int = 16,
        environ: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.calls: dict[str, int] = {}
        """How often each command was started; for measuring."""
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="slurm")
        self._environ = environ if callable(environ) else lambda: os.environ if environ is None else environ

    async def run(self, argv: Sequence[str]) -> CommandOutput:
        """Run one command to its end.

        Raises:
            BackendUnreachable: it is not there, did not end in time, or was killed: what it did is not known.
        """
        self.calls[argv[0]] = self.calls.get(argv[0], 0) + 1
        one = _Command(argv, clean_environment(self._environ()), self.timeout_s)
        try:
            code, out, err = await asyncio.get_running_loop().run_in_executor(self._pool, one.run)
        except asyncio.CancelledError:
            one.end()
            raise
        if code < 0:
            raise BackendUnreachable(f"{argv[0]} was killed by signal {-code} before it answered")
        return CommandOutput(code, out.decode(errors="replace"), err.decode(errors="replace"))

    async def ask(self, argv: Sequence[str]) -> str:
        """Run a command that only asks; its output.

        Raises:
            BackendUnreachable: it said anything but an answer.
        """
        answer = await self.run(argv)
        if "establish a configuration source" in answer.err:  # there is no slurm.conf, and DNS names none
            raise BackendUnreachable(
                "this machine has no Slurm and is not the head of a fleet",
                hint="make it one: remuda host start --port 8090; this machine alone: --backend local",
            )
        if answer.code != 0 or "error:" in answer.err.lower():
            what = said_by(answer.err) or said_by(answer.out) or f"it ended with code {answer.code}"
            raise BackendUnreachable(f"{argv[0]} gave no answer: {what[:_SAID]}")
        return answer.out


class _Command:
    """One run of a command, in a thread of the pool: starting a process would hold the event loop up each time."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> None:
        self._argv = argv
        self._env = env
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> tuple[int, bytes, bytes]:
        """Exit code, output and errors.

        Raises:
            BackendUnreachable: it cannot be started, or did not end in time.
        """
        with self._lock:
            if self._is_over:
                return -signal.SIGKILL, b"", b""
            self._process = process = self._start()
        try:
            out, err = process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            with suppress(subprocess.TimeoutExpired):  # what left the group may hold the pipes open for ever
                process.communicate(timeout=1.0)
            raise BackendUnreachable(f"{self._argv[0]} gave no answer within {self._timeout_s:g} s") from None
        finally:
            with self._lock:
                self._process = None
        return process.returncode, out, err

    def end(self) -> None:
        """Kill it with all that it started, e.g. where a site wraps the command: nobody waits for it any more."""
        with self._lock:
            self._is_over = True
            # Nobody has waited for it yet, so its number is nobody else's, also where it has ended by itself.
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        name = self._argv[0]
        try:
            # Descriptors of this process are closed on exec anyway; not to list them makes the start much cheaper.
            return subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env,
                close_fds=False, start_new_session=True,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError) as error:
            raise BackendUnreachable(
                f"{name} is not on this machine, or not in PATH",
                hint="run remuda where Slurm's commands are, e.g. on a login node",
            ) from error
        except OSError as error:
            raise BackendUnreachable(f"{name} cannot be started: {error}") from error


def own_options(timeout_s: float = 5.0, environ: Mapping[str, str] | None = None) -> Table:
    """What the sbatch of this machine can be asked for, as it says itself; the built-in table where it says nothing."""
    try:
        env = clean_environment(os.environ if environ is None else environ)
        code, out, _ = _Command(["sbatch", "--help"], env, timeout_s).run()
    except BackendUnreachable:
        return learn("")
    return learn(out.decode(errors="replace") if code == 0 else "")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change the commands' answers: their own variables, language and time zone."""
    kept = {name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(_CLEANED)}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def unreachable(command: str, answer: CommandOutput) -> BackendUnreachable | None:
    """The error of an answer that says only that nobody answered; None where it says more."""
    if answer.code != 0 and is_silence(answer.err):
        return BackendUnreachable(f"{command} gave no answer: {said_by(answer.err)[:_SAID]}")
    return None
