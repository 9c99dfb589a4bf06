"""How allocations end that nobody ended in order, and what is left of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.local.conftest import is_over, is_running

from remuda.backends.base import Handle, Life
from remuda.base.errors import BackendUnreachable
from remuda.supervise.failures.causes import classify
from remuda.supervise.model import Cause
from remuda.wire.exit import STOPPED, ExitRecord
from remuda.wire.process import ProcessId, identify, start_time

if TYPE_CHECKING:
    from tests.component.local.conftest import LocalBed


def claim_of(bed: LocalBed, handle: Handle) -> ProcessId:
    return ProcessId.from_json((bed.folder(handle.token) / "claim.json").read_text())


def stands_still(pid: int) -> bool:
    """Whether all threads of a process have stopped: a signal is sent sooner than it works."""
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # one of them has just ended
        return False
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def write_claim(bed: LocalBed, **changes: object) -> Handle:
    """A claim as some program left it."""
    token = bed.request("true").token
    bed.folder(token).mkdir(parents=True)
    claim = replace(identify(os.getpid()), **changes)  # type: ignore[arg-type]
    (bed.folder(token) / "claim.json").write_text(json.dumps(asdict(claim)))
    return Handle(token)


@pytest.mark.parametrize("knows_it", [True, False], ids=["the host that started it", "a new host"])
async def test_a_killed_node_program_takes_its_task_with_it(bed: LocalBed, knows_it: bool) -> None:
    handle = await bed.start("sh", "-c", "echo begun; exec sleep 600")
    await bed.until_text(handle, "begun")
    if not knows_it:
        bed.again()
    os.kill(claim_of(bed, handle).pid, signal.SIGKILL)
    seen = await bed.until(handle, is_over)
    signal_ = 9 if knows_it else 0  # who did not start it is not told which
    assert (seen.life, seen.exit_code, seen.signal, seen.native_state) == (Life.ENDED, None, signal_, "killed")
    assert seen.reason == "the node program was killed" + (" by signal 9" if knows_it else "")
    assert seen.evidence == "begun\n"
    assert bed.pids(handle.token) == set()


@pytest.mark.parametrize(
    ("code", "knows_it", "said"),
    [
        (0, True, "the node program ended with code 0"),
        (7, True, "the node program ended with code 7"),
        (7, False, "how the node program ended is not known"),
    ],
)
async def test_a_directory_that_was_purged_is_told_and_no_signal_invented(
    bed: LocalBed, code: int, knows_it: bool, said: str
) -> None:
    go = bed.workloads.parent / "go"
    handle = await bed.start("sh", "-c", f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; exit {code}")
    await bed.until_text(handle, "begun")
    if not knows_it:
        await bed.until(handle, is_running)  # the claim is known, as to a host that goes on
        bed.again()
        await bed.until(handle, is_running)
    shutil.rmtree(bed.folder(handle.token))
    go.touch()
    seen = await bed.until(handle, is_over)
    assert (seen.signal, seen.exit_code) == (0, code if knows_it else None)
    assert seen.reason == f"its directory {bed.folder(handle.token)} is gone; {said}"


@pytest.mark.parametrize("started", [True, False], ids=["the host that started it", "a new host"])
async def test_what_runs_without_its_directory_is_not_taken_for_one_that_starts(bed: LocalBed, started: bool) -> None:
    handle = await bed.start("sh", "-c", "echo begun; exec sleep 600")
    await bed.until_text(handle, "begun")
    if started:
        bed.backend.client.forget(set())  # as by a look at others
    else:
        bed.again()
    while bed.folder(handle.token).exists():
        shutil.rmtree(bed.folder(handle.token), ignore_errors=True)
    seen = await bed.look(handle)
    assert (seen.life, seen.native_state) == (Life.RUNNING, "running")
    assert seen.reason == f"its directory {bed.folder(handle.token)} is gone"
    await bed.backend.cancel(handle)
    await bed.until(handle, lambda seen: seen.life is Life.ENDED and not bed.pids(handle.token))


async def test_the_signal_that_killed_it_is_told_by_whoever_started_it(bed: LocalBed) -> None:
    handle = await bed.start("sleep", "600")
    await bed.until(handle, is_running)
    os.kill(claim_of(bed, handle).pid, signal.SIGABRT)
    assert (await bed.until(handle, is_over)).signal == signal.SIGABRT


async def test_what_hid_in_a_session_of_its_own_is_gone_before_the_end_is_told(bed: LocalBed) -> None:
    script = "setsid sh -c 'trap \"\" TERM HUP; echo hidden $$; while :; do sleep 1; done' & echo begun; exec sleep 600"
    handle = await bed.start("sh", "-c", script)
    text = await bed.until_text(handle, "hidden")
    hidden = int(text.split("hidden ")[1].split()[0])
    os.kill(claim_of(bed, handle).pid, signal.SIGKILL)
    states: list[str] = []

    def note(seen: object) -> bool:
        states.append(seen.native_state)  # type: ignore[attr-defined]
        return is_over(seen) or not start_time(hidden)  # type: ignore[arg-type]

    await bed.until(handle, note)
    assert start_time(hidden) == ""
    assert "cleaning up" in states
    await bed.until(handle, is_over)
    assert bed.pids(handle.token) == set()


async def test_a_program_that_fails_before_its_claim_says_why(bed: LocalBed) -> None:
    rendered = bed.backend.render(bed.request("true"))
    broken = replace(rendered, files=dict.fromkeys(rendered.files, "no document"))
    (handle,) = await bed.backend.submit([broken])
    assert isinstance(handle, Handle)
    seen = await bed.until(handle, is_over)
    assert (seen.life, seen.exit_code, seen.native_state) == (Life.ENDED, 83, "failed")
    assert "before it could start the task" in seen.reason
    assert "cannot read" in seen.evidence


async def test_a_program_that_is_killed_before_its_claim(bed: LocalBed) -> None:
    rendered = bed.backend.render(bed.request("true"))
    (handle,) = await bed.backend.submit([replace(rendered, argv=("/bin/sh", "-c", "kill -9 $$"))])
    assert isinstance(handle, Handle)
    seen = await bed.until(handle, is_over)
    assert (seen.signal, seen.exit_code) == (9, None)
    assert seen.reason == "the node program was killed by signal 9 before it could start the task"


async def test_a_program_that_finds_no_room_says_so_by_its_code(bed: LocalBed) -> None:
    rendered = bed.backend.render(bed.request("true"))
    (handle,) = await bed.backend.submit([replace(rendered, argv=("/bin/sh", "-c", "exit 93"))])
    assert isinstance(handle, Handle)
    verdict = classify(await bed.until(handle, is_over))
    assert verdict.reason == "the disk is full: the node program ended with code 93 before it could start the task"
    assert verdict.cause is Cause.NODE


async def test_a_program_that_cannot_be_started_is_no_answer(bed: LocalBed) -> None:
    rendered = bed.backend.render(bed.request("true"))
    (outcome,) = await bed.backend.submit([replace(rendered, argv=("/no/such/interpreter", *rendered.argv[1:]))])
    assert isinstance(outcome, BackendUnreachable)
    assert "cannot start" in str(outcome)


async def test_a_directory_that_cannot_be_made_is_no_answer(bed: LocalBed) -> None:
    (bed.workloads / "w").write_text("a file is in the way")
    (outcome,) = await bed.backend.submit([bed.backend.render(bed.request("true"))])
    assert isinstance(outcome, BackendUnreachable)


async def test_nothing_at_all_is_gone(bed: LocalBed) -> None:
    handle = Handle(bed.request("true").token)
    seen = await bed.look(handle)
    assert (seen.life, seen.reason) == (Life.GONE, "no process of it was found on this machine")
    assert await bed.backend.find([handle.token]) == {}


async def test_after_a_restart_of_the_machine_nothing_is_taken_for_the_old(bed: LocalBed) -> None:
    """The pid lives again, as somebody else; neither is it taken for ours nor hurt."""
    handle = write_claim(bed, boot="another-boot")
    (bed.folder(handle.token) / "child.log").write_text("last words\n")
    seen = await bed.look(handle)
    assert (seen.life, seen.native_state, seen.evidence) == (Life.ENDED, "rebooted", "last words\n")
    await bed.backend.cancel(handle)
    assert seen.reason == "the machine was restarted"


async def test_a_pid_that_was_given_to_somebody_else_is_not_ours(bed: LocalBed) -> None:
    handle = write_claim(bed, start="1")
    seen = await bed.look(handle)
    assert (seen.life, seen.native_state) == (Life.ENDED, "killed")
    await bed.backend.cancel(handle)
    await bed.backend.cancel(handle, force=True)


async def test_what_runs_elsewhere_is_answered_by_its_files(bed: LocalBed) -> None:
    handle = write_claim(bed, node="elsewhere")
    seen = await bed.look(handle)
    assert (seen.life, seen.native_state, seen.node) == (Life.RUNNING, "elsewhere", "elsewhere")
    with pytest.raises(BackendUnreachable, match="runs on elsewhere"):
        await bed.backend.cancel(handle)
    await bed.backend.cancel(handle, force=True)  # its pid is ours here: we would not be any more
    record = ExitRecord(handle.token, 1, 3, 5.0, child_exit_code=3, reason="ended with exit code 3", log_tail="tail")
    (bed.folder(handle.token) / "exit.json").write_text(record.to_json())
    seen = await bed.look(handle)
    assert (seen.life, seen.exit_code, seen.ended_at, seen.evidence) == (Life.ENDED, 3, 5.0, "tail")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\xff"])
async def test_a_claim_that_cannot_be_read_is_no_answer(bed: LocalBed, text: str) -> None:
    token = bed.request("true").token
    bed.folder(token).mkdir(parents=True)
    (bed.folder(token) / "claim.json").write_bytes(text.encode("latin-1"))
    handle = Handle(token)
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await bed.backend.observe([handle])
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await bed.backend.find([token])
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await bed.backend.cancel(handle)
    (outcome,) = await bed.backend.submit([bed.backend.render(bed.request("true"))])
    assert isinstance(outcome, BackendUnreachable)


async def test_cancelled_before_it_came_and_nothing_is_left(bed: LocalBed) -> None:
    """The program is killed on its way, and taken in: no zombie stays."""
    request = bed.request("sleep", "600")
    (handle,) = await bed.backend.submit([bed.backend.render(request)])
    assert isinstance(handle, Handle)
    pid = bed.backend.client.spawned[handle.token]
    bed.backend.client._bury(handle.token)
    await bed.backend.cancel(handle)
    seen = await bed.until(handle, is_over)
    assert seen.exit_code in (STOPPED, None)
    await bed.until(handle, lambda _: handle.token not in bed.backend.client.spawned)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def test_a_second_submission_starts_no_second_program(bed: LocalBed) -> None:
    rendered = bed.backend.render(bed.request("sleep", "600"))
    await bed.backend.submit([rendered])
    first = dict(bed.backend.client.spawned)
    await bed.backend.submit([rendered])
    assert bed.backend.client.spawned == first


@pytest.mark.parametrize("text", ["", "{", '{"token": 7}'])
async def test_a_report_that_cannot_be_read_is_none(bed: LocalBed, text: str) -> None:
    handle = await bed.start("sleep", "600")
    seen = await bed.until(handle, lambda seen: seen.report is not None)
    assert seen.report is not None
    assert seen.report.token == handle.token
    pid = claim_of(bed, handle).pid
    os.kill(pid, signal.SIGSTOP)  # or its next report would take the place of this one
    await bed.until(handle, lambda _: stands_still(pid))
    report = bed.folder(handle.token) / "report.json"
    report.write_text(text)
    os.utime(report, ns=(1, 1))  # a file system's clock may not have ticked since the one before
    assert (await bed.look(handle)).report is None
    assert (await bed.look(handle)).life is Life.RUNNING
