"""Talks to Slurm: what the queue and the accounting say, submitting, releasing, cancelling."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from remuda.backends.base import Cluster
from remuda.backends.slurm.arrays import compress_ids
from remuda.backends.slurm.commands import CommandOutput, Commands, unreachable
from remuda.backends.slurm.parsing.inventory import parse_array_size, parse_nodes, parse_partitions
from remuda.backends.slurm.parsing.parse import (
    FIELD,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    AccountLine,
    JobDetail,
    QueueLine,
    parse_job,
    parse_sacct,
    parse_squeue,
    parse_submitted,
)
from remuda.backends.slurm.parsing.reasons import is_permanent, is_silence, refusal, said_by
from remuda.base.errors import BackendUnreachable, Impossible, Rejected, RemudaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_CLUSTER_FRESH_S = 10.0
_ACCOUNTING_ASKED_AGAIN_S = 600.0
_FIND_DAYS = 30
_MANY_DETAILS = 16
_IDS_PER_CALL = 500
_NO_ACCOUNTING = ("accounting storage is disabled", "slurm accounting storage")
_GONE_CODES = (2017 & 0xFF, 2021 & 0xFF)
"""ESLURM_INVALID_JOB_ID and ESLURM_ALREADY_DONE as exit codes of scancel, which ends with the low byte of its errno and
sometimes says nothing (22.05)."""
_ENDED_PER_CALL = 1000
TERMINATE = ("--signal=TERM", "--batch")
_GONE = ("invalid job id", "already completed", "job/step already", "not pending", "no error", "can not be altered")


class SlurmClient:
    """One user's view of one cluster.

    Args:
        commands: how to run them.
        gap_s: shortest time between two looks at the queue; who asks sooner waits, and is never given an old answer.
    """

    def __init__(self, commands: Commands | None = None, *, gap_s: float = 0.5) -> None:
        self.commands = commands or Commands()
        self._gap_s = gap_s
        self._looked_at = float("-inf")
        self._next_look: asyncio.Future[list[QueueLine]] | None = None
        self._gate = asyncio.Lock()
        self._cluster: tuple[float, Cluster] | None = None
        self._no_accounting_at = 0.0
        self._array_size = -1

    async def queue(self) -> list[QueueLine]:
        """All jobs of this user that the controller knows, those that ended a short while ago among them.

        Who asks while a look is still to come shares it: it is younger than the question.

        Raises:
            BackendUnreachable: no answer, or one that cannot be read.
        """
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._next_look)

    def look_at_once(self) -> None:
        """Let the next look come without a pause: the last one is out of date, and what comes next is settled."""
        self._looked_at = float("-inf")

    async def _look(self) -> list[QueueLine]:
        async with self._gate:
            await asyncio.sleep(max(0.0, self._looked_at + self._gap_s - time.monotonic()))
            self._next_look = None
            try:
                text = await self.commands.ask(
                    ("squeue", "-h", "-r", "-t", "all", "-u", str(os.getuid()), "-o", SQUEUE_FORMAT)
                )
            finally:
                self._looked_at = time.monotonic()
        return parse_squeue(text)

    async def accounts(self, ids: Sequence[str] = (), names: Iterable[str] = ()) -> dict[str, AccountLine] | None:
        """What the accounting knows of jobs, by id; None where there is no accounting.

        Raises:
            BackendUnreachable: there is one, and it gives no answer.
        """
        if self._no_accounting_at and time.monotonic() - self._no_accounting_at < _ACCOUNTING_ASKED_AGAIN_S:
            return None
        wanted = [f"-j{','.join(ids)}"] if ids else [f"--name={','.join(names)}", f"-Snow-{_FIND_DAYS}days"]
        argv = ("sacct", "-X", "-D", "-P", "-n", f"--delimiter={FIELD}", *wanted, f"-o{','.join(SACCT_FIELDS)}")
        answer = await self.commands.run(argv)
        if any(text in answer.err.lower() for text in _NO_ACCOUNTING[:1]):
            self._no_accounting_at = time.monotonic()
            return None
        if answer.code != 0 or "error:" in answer.err.lower():
            raise BackendUnreachable(f"sacct gave no answer: {said_by(answer.err) or f'code {answer.code}'}")
        return parse_sacct(answer.out)

    async def details(self, ids: Sequence[str]) -> dict[str, JobDetail]:
        """What only scontrol knows of jobs that the controller has, by id; jobs that have gone are left out.

        Raises:
            BackendUnreachable: no answer.
        """
        calls: list[tuple[str, ...]] = [("scontrol", "show", "job", "-o", job_id) for job_id in ids]
        if len(ids) > _MANY_DETAILS:
            calls = [("scontrol", "show", "job", "-o")]
        answers = await asyncio.gather(*(self.commands.run(argv) for argv in calls))
        for answer in answers:
            silent = unreachable("scontrol", answer)
            if silent is not None:
                raise silent
        found = [detail for answer in answers if answer.code == 0 for detail in parse_job(answer.out)]
        return {detail.job_id: detail for detail in found}

    async def submit(self, argv: Sequence[str]) -> str:
        """Run one `sbatch`; the job's id.

        Raises:
            Rejected: refused.
            BackendUnreachable: nobody knows whether the job was taken.
        """
        answer = await self.commands.run(argv)
        job_id = parse_submitted(answer.out)
        if answer.code == 0 and job_id:
            return job_id
        if answer.code == 0:
            raise BackendUnreachable(f"sbatch printed no job id: {answer.out.strip()[:120]!r}")
        if is_silence(answer.err):
            raise BackendUnreachable(f"sbatch gave no answer: {said_by(answer.err)}")
        raise (Impossible if is_permanent(answer.err) else Rejected)(refusal(answer.err))

    async def refusal(self, argv: Sequence[str]) -> str:
        """Why Slurm would refuse a job for good, in a sentence; empty when it would not. `argv` submits nothing.

        Raises:
            BackendUnreachable: no answer.
        """
        answer = await self.commands.run(argv)
        return refusal(answer.err) if answer.code != 0 and is_permanent(answer.err) else ""

    async def release(self, ids: Sequence[str]) -> None:
        """Let held jobs start. Ids that have gone are fine.

        Raises:
            BackendUnreachable: no answer, or some were not released.
        """
        for some in _in_calls(ids):
            self._check(await self.commands.run(("scontrol", "release", some)), "scontrol")

    async def exclude(self, ids: Sequence[str], nodes: str) -> None:
        """Let pending jobs avoid a list of nodes, and no others. Ids that have gone, or run, are fine.

        Raises:
            BackendUnreachable: no answer, or some were not changed.
        """
        for some in _in_calls(ids):
            words = (f"jobid={some}", f"excnodelist={nodes}")
            self._check(await self.commands.run(("scontrol", "update", *words)), "scontrol")

    async def cancel(self, name: str, job_id: str = "") -> None:
        """End the user's jobs of that name, or the one with that id if it has that name. Absent is fine.

        The caller has looked up that a task of an array has that name: `scancel --name=N 12_3` ends every task of the
        array that is pending (22.05), so they are named by their ids only.

        Raises:
            BackendUnreachable: no answer.
        """
        await self._scancel((), name, job_id)

    async def _scancel(self, options: tuple[str, ...], name: str, job_id: str) -> None:
        named = (f"--name={name}",) if not job_id else (job_id,) if "_" in job_id else (f"--name={name}", job_id)
        self._check(await self.commands.run(("scancel", *options, *named)), "scancel")

    async def end(self, lines: Sequence[QueueLine], *, politely: bool) -> dict[str, Exception]:
        """End jobs that the queue has just shown: one call for each thousand.

        Politely: SIGTERM to the script of each, and nothing else of it. Never a pending one: scancel tries for minutes.
        Several are named by their ids alone, because scancel takes one name only.

        Returns:
            What went wrong, by id of the job.
        """
        options = TERMINATE if politely else ()
        failed: dict[str, Exception] = {}
        for begin in range(0, len(lines), _ENDED_PER_CALL):
            some = lines[begin : begin + _ENDED_PER_CALL]
            try:
                if len(some) == 1:
                    await self._scancel(options, some[0].name, some[0].job_id)
                else:
                    words = compress_ids([line.job_id for line in some])
                    self._check(await self.commands.run(("scancel", *options, *words)), "scancel")
            except RemudaError as error:
                failed |= dict.fromkeys((line.job_id for line in some), error)
        return failed

    async def cluster(self, *, fresh: bool = False) -> Cluster:
        """Nodes and partitions, at most some seconds old, or as they are now.

        Raises:
            BackendUnreachable: no answer.
        """
        if not fresh and self._cluster is not None and time.monotonic() - self._cluster[0] < _CLUSTER_FRESH_S:
            return self._cluster[1]
        nodes, partitions = await asyncio.gather(
            self.commands.ask(("scontrol", "show", "node", "-o", "-d")),
            self.commands.ask(("scontrol", "show", "partition", "-o")),
        )
        if self._array_size < 0:
            self._array_size = parse_array_size(await self.commands.ask(("scontrol", "show", "config")))
        cluster = Cluster(parse_nodes(nodes), parse_partitions(partitions), self._array_size)
        self._cluster = (time.monotonic(), cluster)
        return cluster

    @staticmethod
    def _check(answer: CommandOutput, command: str) -> None:
        """Let pass what a job that has gone, or is not in the state for it, is answered with."""
        if answer.code == 0 or (not is_silence(answer.err) and any(text in answer.err.lower() for text in _GONE)):
            return
        if command == "scancel" and answer.code in _GONE_CODES and not answer.err.strip():
            return
        raise BackendUnreachable(f"{command} failed: {said_by(answer.err) or f'code {answer.code}'}")


def _in_calls(ids: Sequence[str]) -> Iterator[str]:
    """Lists of jobs as `scontrol` takes them, each of a bearable length."""
    words = compress_ids(ids)
    return (",".join(words[begin : begin + _IDS_PER_CALL]) for begin in range(0, len(words), _IDS_PER_CALL))
