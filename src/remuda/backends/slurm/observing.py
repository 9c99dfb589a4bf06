"""From what Slurm and the files of node programs say about an allocation to one answer. No command is run here."""

from __future__ import annotations

import pwd
import re
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import Ending, Life, Observed, is_token, pack_token, read_token
from remuda.backends.lastword import is_unfinished, told, with_record
from remuda.backends.slurm.arrays import array_index, array_name
from remuda.backends.slurm.parsing.reasons import HELD_BY_USER, explain
from remuda.backends.slurm.parsing.states import STATES, read_state
from remuda.base.errors import InputError
from remuda.base.hostlist import expand
from remuda.wire.exit import NO_ROOM, STOPPED, meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.backends.base import Cluster, Handle
    from remuda.backends.slurm.files import RunDirectories
    from remuda.backends.slurm.parsing.parse import AccountLine, JobDetail, QueueLine
    from remuda.wire.exit import ExitRecord
    from remuda.wire.report import Report

_NO_OUTPUT_FILE = 53
"""Signal number with which Slurm records that it could not open a job's output file."""

_MEMORY = re.compile(
    r"^slurmstepd.*(exceeded (\w+ )?memory limit|oom[-_ ]kill|out[- ]of[- ]memory)", re.IGNORECASE | re.MULTILINE
)
"""What Slurm writes into a job's output when it, or the kernel, killed something of it for its memory."""

_BEGINS_S = 10.0
"""For so long a job that Slurm calls running may need to load its modules before the node program begins."""

_AT_ONCE_S = 2.0
"""Within the seconds of Slurm's accounting and of a file system's clock."""
_SECOND_START = "the controller had lost its last seconds and started it a second time"

_SOON_S, _HALF_A_YEAR_S = 64800.0, 182.5 * 86400
"""The hour says when it is sooner than the one, the day of the month when it is sooner than the other."""


class Queue:
    """One answer of squeue, by what allocations are looked up by."""

    def __init__(self, lines: Iterable[QueueLine]) -> None:
        self._by_id: dict[str, QueueLine] = {}
        self._by_name: dict[tuple[str, int | None], list[QueueLine]] = {}
        self._arrays: set[tuple[str, str]] = set()
        for line in lines:
            self._by_id[line.job_id] = line
            self._by_name.setdefault((line.name, line.index), []).append(line)
            if line.index is not None:
                self._arrays.add((line.array_id, line.name))

    def named(self, token: str) -> list[QueueLine]:
        """All jobs of an allocation's name, the oldest first: it is the allocation, others would be twins."""
        found = self._by_name.get((token, None)) or []
        if len(self._by_name) > len(found):
            found = found + self._by_name.get((array_name(token), array_index(token)), [])
            found = found + self._by_name.get((pack_token(token), None), [])
        return sorted(found, key=_age)

    def line(self, handle: Handle) -> QueueLine | None:
        """The allocation's job. Ids are reused when a controller loses its state, so the name must be right as well."""
        if not handle.native:
            named = self.named(handle.token)
            return named[0] if named else None
        line = self._by_id.get(handle.native)
        return line if line is not None and is_of(handle.token, line.name, line.job_id) else None

    def has_array(self, handle: Handle) -> bool:
        """Whether other tasks of the array that the allocation was a task of are known."""
        array_id, is_task, _ = handle.native.partition("_")
        return bool(is_task) and (array_id, array_name(handle.token)) in self._arrays

    def twins(self, handle: Handle) -> list[QueueLine]:
        """Held jobs of its name that are not it: left by a submission whose answer was lost."""
        if not handle.native:
            return []
        return [line for line in self.named(handle.token) if line.job_id != handle.native and is_held(line)]


def _age(line: QueueLine) -> tuple[float, int]:
    return line.submitted_at, int(line.array_id) if line.array_id.isdigit() else 0


def is_held(line: QueueLine) -> bool:
    """Whether a job waits for `release`."""
    return line.state == "PENDING" and line.reason == HELD_BY_USER


def is_alive(line: QueueLine) -> bool:
    """Whether a job has not ended."""
    return STATES[read_state(line.state)[0]].life is not Life.ENDED


def is_unclear(line: QueueLine, record: ExitRecord | None) -> bool:
    """Whether state and last word of a job that has ended leave open how: only its details say that it gave way."""
    if line.state not in ("FAILED", "COMPLETED"):
        return False
    is_pack = is_token(line.name) and read_token(line.name).group == "pack"  # all of which end at once when asked to
    return record is None or record.code not in ((0,) if is_pack else (0, STOPPED)) or is_unfinished(record)


def is_of(token: str, name: str, job_id: str) -> bool:
    """Whether a job of that name and id is the allocation's."""
    if name in (token, pack_token(token)):
        return True
    return name == array_name(token) and job_id.endswith(f"_{array_index(token)}")


def live(line: QueueLine, token: str, files: RunDirectories, now: float) -> Observed | None:
    """A job that has not ended, as squeue lists it; None when it has ended.

    Raises:
        Rejected: a state that is not known.
    """
    word, _ = read_state(line.state)
    state = STATES[word]
    if state.life is Life.ENDED:
        return None
    seen = Observed(
        state.life,
        line.job_id,
        word,
        first_node(line.nodes),
        state.reason,
        pool="" if "," in line.partition else line.partition,
        requeues=files.restarts(token),
        lingers=word == "COMPLETING",
    )
    if state.life is Life.RUNNING:
        report, is_unread = files.report(token)
        if (
            report is None
            and word == "RUNNING"
            and 0 <= now - line.started_at < _BEGINS_S
            and not files.has_claim(token)
        ):
            return replace(seen, life=Life.PENDING, reason="its job script begins on the node")
        limit_at = line.ends_at if line.has_limit else 0.0
        # Nothing of a suspended job runs, so its silence says nothing either.
        is_unread = is_unread or word in ("SUSPENDED", "STOPPED")
        return replace(seen, started_at=line.started_at, limit_at=limit_at, report=report, unread=is_unread)
    reason = explain(line.reason)
    return replace(
        seen,
        reason="; ".join(text for text in (seen.reason, reason.text, expected(line.started_at, now)) if text),
        held=is_held(line),
        never=reason.text if reason.never else "",
    )


def expected(start_at: float, now: float) -> str:
    """When Slurm expects to start a pending job, in words; empty where it does not know, or should have by now."""
    if start_at <= now:
        return ""
    # To five minutes: the estimate is no better, and moves a little with each look of Slurm's at its queue.
    when = time.localtime(start_at + 150 - (start_at + 150) % 300)
    left_s = start_at - now
    shape = "%H:%M" if left_s < _SOON_S else "%b %d %H:%M" if left_s < _HALF_A_YEAR_S else "%b %d %Y %H:%M"
    return f"expected to start at about {time.strftime(shape, when)}"


def _is_second_start(state: str, started_at: float, ended_at: float, claimed_at: float) -> bool:
    """Whether the controller had lost its last seconds, and started a job a second time that was running.

    The node refuses that, so the job ends in the moment of its new start: cancelled by root, or failed. Nobody asked
    for it, and the script is not to blame.

    Args:
        state: in which it ended, e.g. `CANCELLED by 0`.
        started_at: its last start, by the controller.
        ended_at: likewise.
        claimed_at: when its node program began, 0 where that is not known.
    """
    word, uid = read_state(state)
    is_at_once = abs(ended_at - started_at) <= _AT_ONCE_S
    is_ours = word == "FAILED" or (word == "CANCELLED" and uid == "0")
    return is_ours and is_at_once and 0 < claimed_at < started_at - _AT_ONCE_S


def ended(
    line: QueueLine,
    record: ExitRecord | None,
    account: AccountLine | None,
    detail: JobDetail | None,
    *,
    claimed_at: float = 0.0,
) -> Observed:
    """A job that squeue still lists, and that has ended; its node program began at `claimed_at`."""
    word, _ = read_state(line.state)
    seen = Observed(
        Life.ENDED,
        line.job_id,
        word,
        first_node(line.nodes),
        STATES[word].reason,
        started_at=line.started_at,
        ended_at=line.ends_at,
        ending=STATES[word].ending,
        nodes=several(line.nodes),
        pool="" if "," in line.partition else line.partition,
    )
    state = line.state
    if account is not None and STATES[read_state(account.state)[0]].life is Life.ENDED:
        state = account.state
        seen = replace(seen, by=who(account.state))
        if detail is None:
            seen = replace(seen, exit_code=account.exit_code, signal=account.signal)
    if detail is not None:
        seen = replace(seen, exit_code=detail.exit_code, signal=detail.signal, requeues=detail.restarts)
        if seen.ending is Ending.NONE and 0 < line.started_at <= detail.preempted_at:
            # One that ends within its grace is FAILED or COMPLETED. An older time is of a start before it was requeued.
            seen = replace(seen, ending=Ending.PREEMPTED, reason=STATES["PREEMPTED"].reason)
    if record is None and not seen.requeues and _is_second_start(state, line.started_at, line.ends_at, claimed_at):
        seen = replace(seen, ending=Ending.LOST, reason=_SECOND_START, by="")
    return _without_record(seen) if record is None else with_record(seen, record)


def ended_account(account: AccountLine, record: ExitRecord | None, *, claimed_at: float = 0.0) -> Observed | None:
    """A job that only the accounting knows, begun at `claimed_at`; None when it says that the job lives (it lags)."""
    word, _ = read_state(account.state)
    state = STATES[word]
    if state.life is not Life.ENDED:
        return None
    # A person's cancel says by whom. Without, it is the controller that came back and knew nothing of the job.
    is_second = record is None and _is_second_start(account.state, account.started_at, account.ended_at, claimed_at)
    is_lost = is_second or (word == "CANCELLED" and not who(account.state))
    lost = _SECOND_START if is_second else "the controller was restarted without it"
    seen = Observed(
        Life.ENDED,
        account.job_id,
        word,
        first_node(account.nodes),
        lost if is_lost else state.reason,
        exit_code=account.exit_code,
        signal=account.signal,
        started_at=account.started_at,
        ended_at=account.ended_at,
        ending=Ending.LOST if is_lost else state.ending,
        nodes=several(account.nodes),
        by="" if is_second else who(account.state),
        pool="" if "," in account.partition else account.partition,
    )
    return _without_record(seen) if record is None else with_record(seen, record)


def _without_record(seen: Observed) -> Observed:
    """The node program never said how it ended: it was killed with all else, or was never reached."""
    if seen.ending is Ending.NONE and seen.signal == _NO_OUTPUT_FILE:
        reason = "Slurm could not open its output file on the node"
        return replace(seen, ending=Ending.NOT_STARTED, reason=reason, exit_code=None, signal=0)
    if seen.ending is not Ending.NONE:
        # What Slurm records as the exit code of a job that it ended itself says nothing about the script.
        return replace(seen, exit_code=None, reason=told(seen))
    if seen.signal:
        return replace(seen, exit_code=None, reason=f"killed by signal {seen.signal}, node program and all")
    if seen.exit_code:
        why = f"{meaning(NO_ROOM)}: " if seen.exit_code == NO_ROOM else ""
        reason = f"{why}the job script ended with code {seen.exit_code} without a last word of the node program"
        return replace(seen, reason=reason)
    return replace(seen, reason=told(seen))


def from_record(record: ExitRecord, node: str) -> Observed:
    """An allocation that Slurm has forgotten, and whose node program said how it ended."""
    return with_record(Observed(Life.ENDED, node=node, native_state="forgotten"), record)


def out_of_memory(seen: Observed, said: str) -> Observed:
    """An end by SIGKILL of which `said`, the output of the job script, tells that it was for its memory.

    Slurm records only the signal where it watches memory by itself, and nothing where the kernel killed a part.
    """
    was_killed = seen.signal == signal.SIGKILL or seen.exit_code == 128 + signal.SIGKILL
    if seen.life is not Life.ENDED or seen.ending is not Ending.NONE or not was_killed or not _MEMORY.search(said):
        return seen
    line = next(line for line in said.splitlines() if _MEMORY.search(line))
    return replace(seen, ending=Ending.OUT_OF_MEMORY, reason=line.partition("error: ")[2] or line)


def dropped(native: str) -> Observed:
    """A task of an array that somebody cancelled before it began: Slurm keeps no record of it."""
    return Observed(Life.ENDED, native, "CANCELLED", ending=Ending.CANCELLED, reason="cancelled before it began")


def who(state: str) -> str:
    """`CANCELLED by 1000` -> the user's name, or the number where it has none here."""
    _, uid = read_state(state)
    if not uid:
        return ""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def first_node(nodes: str) -> str:
    """The node on which the script runs, of a job's list."""
    if "[" not in nodes and "," not in nodes:
        return "" if nodes in ("(null)", "None assigned", "n/a", "N/A") else nodes
    try:
        return expand(nodes)[0]
    except InputError:
        return nodes


def in_pack(seen: Observed, report: Report | None) -> Observed:
    """The same of a task that shares its job with others: it is on the node that it says itself."""
    is_failed_node = seen.ending is Ending.NODE_FAILED and bool(seen.nodes)
    if is_failed_node or report is None or not report.node:
        return seen
    return replace(seen, node=report.node, nodes=())


_OF_ONE = frozenset({Ending.NODE_FAILED, Ending.OUT_OF_MEMORY, Ending.LOST, Ending.NOT_STARTED})
"""Ends of a job that count once, however many tasks share it. The others count nothing, and are told of all tasks."""


def judged(seen: Mapping[str, Observed]) -> dict[str, Observed]:
    """Answers about tasks of packs that have ended: all but the one that ended the others of its job went with it.

    Where Slurm has a word for the job, that is one without a last word, else the first with a bad last word of its own.
    Where all were only asked to end, and Slurm says that the job failed, what started them was killed.
    """
    packs: dict[str, dict[str, Observed]] = {}
    for token, answer in seen.items():
        if answer.ending is Ending.NONE or answer.ending in _OF_ONE:
            packs.setdefault(answer.native, {})[token] = answer
    found: dict[str, Observed] = {}
    for mine in packs.values():
        bad = [token for token, one in mine.items() if one.ending or one.exit_code not in (None, 0, STOPPED)]
        asked = [token for token, one in mine.items() if one.native_state == "FAILED" and one.exit_code == STOPPED]
        if not bad and asked:
            bad, one = asked[:1], mine[asked[0]]
            mine[bad[0]] = found[bad[0]] = replace(one, exit_code=None, reason=f"its crew was killed; {one.reason}")
        if bad:
            first = min(bad, key=lambda token: _blame(token, mine[token]))
            parts = read_token(first)
            why = f"ended with {parts.group}/{parts.index}: {mine[first].reason}"
            found |= {
                token: replace(one, ending=Ending.GROUP, reason=why, nodes=(), faults=(), evidence="")
                for token, one in mine.items()
                if token != first and one.exit_code != 0
            }
    return found


def _blame(token: str, seen: Observed) -> tuple[bool, float, int]:
    return (bool(seen.ending) and seen.exit_code is not None, seen.ended_at, read_token(token).index)


def several(nodes: str) -> tuple[str, ...]:
    """All nodes of a job's list, where it has more than one."""
    if "[" not in nodes and "," not in nodes:
        return ()
    try:
        names = expand(nodes)
    except InputError:
        return ()
    return names if len(names) > 1 else ()


def blamed(seen: Observed, cluster: Cluster) -> Observed:
    """Of a job that lost one of its nodes: the one that is not usable now, where it is a single one."""
    unusable = {node.name for node in cluster.nodes if not node.usable}
    lost = [name for name in seen.nodes if name in unusable]
    return replace(seen, node=lost[0], nodes=()) if len(lost) == 1 else seen
