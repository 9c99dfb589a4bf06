"""Runs Slurm's commands: a clean environment, a time limit, few at once, and silence told from refusal."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from remuda.backends.slurm.reasons import is_silence, said_by
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLEANED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURMD_")
_SAID = 300


class Answer(NamedTuple):
    """What a command said when it ended by itself."""

    code: int
    out: str
    err: str


class Commands:
    """Slurm's command line on this machine.

    Args:
        timeout_s: after which a command is killed.
        at_once: most commands that run at the same time.
        environ: environment to start from; this process's own where None.
    """

    def __init__(self, *, timeout_s: float = 30.0, at_once: int = 16, environ: Mapping[str, str] | None = None) -> None:
        self.timeout_s = timeout_s
        self.calls: dict[str, int] = {}
        """How often each command was started; for measuring."""
        self._slots = asyncio.Semaphore(at_once)
        self._environ = environ

    async def run(self, argv: Sequence[str]) -> Answer:
        """Run one command to its end.

        Raises:
            BackendUnreachable: it is not there, did not end in time, or was killed: what it did is not known.
        """
        async with self._slots:
            self.calls[argv[0]] = self.calls.get(argv[0], 0) + 1
            process = await self._start(argv)
            try:
                async with asyncio.timeout(self.timeout_s):
                    out, err = await process.communicate()
            except TimeoutError:
                raise BackendUnreachable(f"{argv[0]} gave no answer within {self.timeout_s:g} s") from None
            finally:
                if process.returncode is None:
                    await _end(process)
        code = process.returncode or 0
        if code < 0:
            raise BackendUnreachable(f"{argv[0]} was killed by signal {-code} before it answered")
        return Answer(code, out.decode(errors="replace"), err.decode(errors="replace"))

    async def ask(self, argv: Sequence[str]) -> str:
        """Run a command that only asks; its output.

        Raises:
            BackendUnreachable: it said anything but an answer.
        """
        answer = await self.run(argv)
        if answer.code != 0 or "error:" in answer.err.lower():
            what = said_by(answer.err) or said_by(answer.out) or f"it ended with code {answer.code}"
            raise BackendUnreachable(f"{argv[0]} gave no answer: {what[:_SAID]}")
        return answer.out

    async def _start(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=clean_environment(os.environ if self._environ is None else self._environ),
            )
        except (FileNotFoundError, PermissionError) as error:
            raise BackendUnreachable(
                f"{argv[0]} is not on this machine, or not in PATH",
                hint="run remuda where Slurm's commands are, e.g. on a login node",
            ) from error
        except OSError as error:
            raise BackendUnreachable(f"{argv[0]} cannot be started: {error}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command that is not waited for any more."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change the commands' answers: their own variables, language and time zone."""
    kept = {name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(_CLEANED)}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def unreachable(command: str, answer: Answer) -> BackendUnreachable | None:
    """The error of an answer that says only that nobody answered; None where it says more."""
    if answer.code != 0 and is_silence(answer.err):
        return BackendUnreachable(f"{command} gave no answer: {said_by(answer.err)[:_SAID]}")
    return None
