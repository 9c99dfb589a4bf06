"""The smoke test of one node through srun: what is typed, and what the answers mean. Pure but for `SlurmSmoke`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import pwd
import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.slurm.parsing.reasons import explain, is_silence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_END_GRACE_S = 8.0
"""srun tells its job to end and waits for that; longer than Slurm's own default grace would keep the user waiting."""
_MOST_OUTPUT: Final = 200_000
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where the interpreter is looked for: a job that exports nothing has no path at all."""


class Outcome(StrEnum):
    """How a node's test ended."""

    OK = "ok"
    FAILED = "failed"
    NO_CUDA = "no-cuda"
    BUSY = "busy"
    REFUSED = "refused"
    TIMEOUT = "timeout"


NOT_RUN: Final = "the test did not run"
"""What users read instead when `failed` is not proved: it says nothing about CUDA."""
#: What users read.
MEANING: Final[Mapping[Outcome, str]] = {
    Outcome.OK: "CUDA working",
    Outcome.FAILED: "CUDA failed",
    Outcome.NO_CUDA: "no CUDA libs installed",
    Outcome.BUSY: "node busy (no free GPUs)",
    Outcome.REFUSED: "QOS/partition error",
    Outcome.TIMEOUT: "timeout",
}
#: What the node program's `smoke` says, and its exit codes.
_BY_WORD: Final[Mapping[str, Outcome]] = {
    "ok": Outcome.OK, "broken": Outcome.FAILED, "no-cuda": Outcome.NO_CUDA, "timeout": Outcome.TIMEOUT,
}  # fmt: skip
_BY_CODE: Final[Mapping[int, Outcome]] = {
    0: Outcome.OK, 1: Outcome.FAILED, 3: Outcome.NO_CUDA, 4: Outcome.TIMEOUT,
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What came of one test."""

    outcome: Outcome
    detail: str = ""
    """One line; empty where the outcome says all."""
    devices: tuple[str, ...] = ()
    """Names of the GPUs that were tested."""
    device: str = ""
    """Address of the first GPU that failed, where the test told."""
    proved: bool = False
    """The test ran on the node and said so itself; otherwise it is what Slurm said."""

    @property
    def meaning(self) -> str:
        """What users read."""
        return NOT_RUN if self.outcome is Outcome.FAILED and not self.proved else MEANING[self.outcome]


@dataclass(frozen=True)
class SmokeJob:
    """One test to run."""

    name: str
    """Of the job: unique, so that it can be ended by name."""
    node: str
    pool: str
    program: tuple[str, ...]
    """The command that tests, as it is typed on the node."""
    gpus: int = 1
    timeout_s: float = 60.0
    wait_s: int = 10
    """How long it may wait for a free GPU."""
    account: str = ""
    qos: str = ""
    env: tuple[tuple[str, str], ...] = ()
    """Set for the program; nothing of the user's own environment reaches it."""


def render(job: SmokeJob) -> tuple[str, ...]:
    """The command line of srun. It stands for the whole test: allocation, start, output and exit code."""
    options = {
        "job-name": job.name,
        "nodelist": job.node,
        "partition": job.pool,
        "account": job.account,
        "qos": job.qos,
        "gres": f"gpu:{job.gpus}" if job.gpus else "",
        # Slurm counts whole minutes; ours is the exact limit.
        "time": str(max(1, math.ceil(job.timeout_s / 60))),
        "immediate": str(max(2, job.wait_s)),
        "nodes": "1", "ntasks": "1", "cpus-per-task": "1", "mem": "1G", "chdir": "/", "export": "NONE",
        "input": "none", "kill-on-bad-exit": "1",
    }  # fmt: skip
    env = {"PATH": _PATH, **dict(job.env)}
    start = ("/usr/bin/env", *(f"{name}={value}" for name, value in env.items()), *job.program)
    return ("srun", *(f"--{name}={value}" for name, value in options.items() if value), *start)


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without what would make srun a step of the job in which it is typed."""
    return {name: value for name, value in env.items() if not name.startswith("SLURM_") or name in _SLURM_KEPT}


_SLURM_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS"})


# What the answers mean ------------------------------------------------------------------------------------------

_QUEUED = re.compile(r"srun: job (\d+) queued and waiting")
_NO_ALLOCATION = re.compile(r"srun: error: Unable to (?:allocate resources|confirm allocation[^:]*): (.+)")
_NO_LAUNCH = re.compile(r"srun: error: (?:Task launch for \S+ failed on node \S+|Application launch failed): (.+)")
_BUSY = re.compile(r"(?i)requested nodes are busy|immediate execution impossible")
#: Pending reasons that end by themselves when others end.
_WAITING: Final = frozenset({"", "None", "Resources", "Priority", "BeginTime", "JobArrayTaskLimit", "Cleaning"})
_ENDED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ (.*?)\s*\*\*\*")


def queued_id(err: str) -> str:
    """Id of the job that had to wait, from what srun printed; empty when it had not."""
    match = _QUEUED.search(err)
    return match[1] if match else ""


def judge(code: int, out: str, err: str, reason: str = "") -> Verdict:
    """What srun's end means.

    Args:
        code: its exit code.
        out: its standard output: what the test printed.
        err: its standard error: its own words, and what the test wrote there.
        reason: why the job was still waiting when srun gave up, as `squeue -o %r` says it.
    """
    reason = " ".join(reason.split())
    answer = read_answer(code, out)
    if answer is not None:
        return answer
    if match := _NO_ALLOCATION.search(err):
        return _not_allocated(match[1].strip(), err, reason)
    if match := _NO_LAUNCH.search(err):
        if is_silence(match[1]):
            return Verdict(Outcome.TIMEOUT, f"the node did not answer: {match[1].strip()}")
        return Verdict(Outcome.FAILED, f"it could not be started: {match[1].strip()}")
    if match := _ENDED.search(err):
        if "TIME LIMIT" in match[1]:
            return Verdict(Outcome.TIMEOUT, "the test did not end within its time limit")
        if "NODE FAILURE" in match[1]:
            return Verdict(Outcome.FAILED, "the node was lost while it was tested")
        return Verdict(Outcome.BUSY, "the test was preempted or cancelled" if match[1] else "the test was cancelled")
    words = _last_words(err)
    return Verdict(Outcome.FAILED, words or f"srun ended with {code} and said nothing")


def read_answer(code: int, out: str) -> Verdict | None:
    """What the test itself said: its last line of JSON. None when it said nothing."""
    for line in reversed(out.splitlines()):
        with contextlib.suppress(ValueError):
            data = json.loads(line)
            if isinstance(data, dict) and "outcome" in data:
                return _said(code, data)
    return None


def _said(code: int, data: Mapping[str, Any]) -> Verdict:
    word = str(data["outcome"])
    outcome = _BY_WORD.get(word) or _BY_CODE.get(code, Outcome.FAILED)
    found = data.get("devices")
    devices = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    bad = next((str(item.get("address", "")) for item in devices if item.get("ok") is False), "")
    names = tuple(str(item.get("name", "")) for item in devices)
    text = " ".join(str(data.get("error", "")).split())
    return Verdict(outcome, text[:300], names, bad.lower().partition(".")[0], proved=True)


def _not_allocated(said: str, err: str, reason: str) -> Verdict:
    if is_silence(said):
        return Verdict(Outcome.TIMEOUT, f"the scheduler did not answer: {said}")
    if not _BUSY.search(said):
        return Verdict(Outcome.REFUSED, _with_cause(said, err))
    if reason.partition(",")[0].strip() in _WAITING:
        hint = _hint(err) if not reason else ""
        return Verdict(Outcome.REFUSED, hint) if hint else Verdict(Outcome.BUSY)
    return Verdict(Outcome.REFUSED, _plain(reason))


def _plain(reason: str) -> str:
    """The sentence for a word of Slurm's with the word, or what Slurm says as a sentence already."""
    plain = explain(reason).text
    if not plain or plain.startswith("Slurm's reason is "):
        return reason
    return plain if reason in plain else f"{plain} ({reason})"


def _hint(err: str) -> str:
    """What srun said when it queued the job although it cannot start; empty when it may."""
    hints = ("Requested partition configuration not available now", "Required node not available")
    lines = (line.removeprefix("srun: ").strip() for line in err.splitlines())
    return next((line for line in lines if line.startswith(hints)), "")


def _with_cause(said: str, err: str) -> str:
    """Slurm's sentence with the word that it prints on a line of its own before it, e.g. `QOSMaxGRESPerJob`."""
    before = err.partition("Unable to ")[0].splitlines()[:-1]
    causes = [line.removeprefix("srun: error: ").strip() for line in before if line.startswith("srun: error: ")]
    return f"{said} ({causes[-1]})" if causes else said


def _last_words(err: str) -> str:
    """The line that tells most: the last that is not srun's own account of an exit."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("srun: ") or "fatal" in line]
    return (telling or lines or [""])[-1][:300]


# Running it -----------------------------------------------------------------------------------------------------


class SlurmSmoke:
    """Runs tests through srun; whatever becomes of its caller, `close` ends all jobs that it started."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.env = clean_environment(os.environ if env is None else env)
        self._started: list[str] = []

    async def run(self, job: SmokeJob) -> Verdict:
        """Run one test; ends within its two limits and a short grace."""
        self._started.append(job.name)
        code, out, err = await self._ask(render(job), job.wait_s + job.timeout_s)
        if code is None:
            await self._cancel([job.name])
            return Verdict(Outcome.TIMEOUT, f"no answer within {job.timeout_s:g} s")
        waiting = queued_id(err) if _BUSY.search(err) else ""
        return judge(code, out, err, await self._reason(waiting) if waiting else "")

    async def close(self) -> None:
        """End what may be left."""
        names, self._started = self._started, []
        await self._cancel(names)

    async def _reason(self, job_id: str) -> str:
        """Why a job waited; Slurm keeps that for a while after the job was given up."""
        _, out, _ = await self._ask(("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%r"), 20.0)
        return out.strip()

    async def _cancel(self, names: Sequence[str]) -> None:
        user = pwd.getpwuid(os.getuid()).pw_name
        for begin in range(0, len(names), 100):
            some = ",".join(names[begin : begin + 100])
            await self._ask(("scancel", f"--user={user}", f"--name={some}"), 20.0)

    async def _ask(self, argv: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
        return await run_command(argv, limit_s, self.env)


async def run_command(argv: Sequence[str], limit_s: float, env: Mapping[str, str]) -> tuple[int | None, str, str]:
    """Run a command in a session of its own: exit code, output, errors; no code where it had to be ended.

    However it is left, also by a cancellation, the command has ended.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=dict(env), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return 127, "", f"srun: error: Unable to allocate resources: {argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(limit_s):
            out, err = await process.communicate()
    except TimeoutError:
        return None, "", ""
    finally:
        await _end(process)
    return process.returncode, _text(out), _text(err)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask srun to end, which ends its job, and kill it if it does not."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_GRACE_S):
                await process.communicate()
                return


def _text(raw: bytes) -> str:
    return raw[-_MOST_OUTPUT:].decode(errors="replace")


def smoke_command(program: Path, gpus: int, timeout_s: float, python: str = "") -> tuple[str, ...]:
    """How the node program's test is typed on a node."""
    limits = ("--gpus", str(gpus), "--timeout", f"{timeout_s:g}")
    return (python or "python3", "-I", "-S", str(program), "smoke", "--json", *limits)
