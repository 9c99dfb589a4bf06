"""Ending jobs of Slurm: one look and one call, however many are asked for at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Handle, Life, Stray, TaskKey, make_token
from remuda.backends.rundir import allocation_dir
from remuda.backends.slurm import client as module
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import CommandOutput
from remuda.backends.slurm.ending import Ender
from remuda.backends.slurm.files import RunDirectories
from remuda.backends.slurm.parsing.parse import FIELD, RECORD
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass
class Slurm:
    """Commands that are counted; jobs are what a test put there."""

    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id -> name and state."""
    calls: list[Sequence[str]] = field(default_factory=list)
    silent: str = ""
    """An argument of a scancel that gets no answer."""

    async def run(self, argv: Sequence[str]) -> CommandOutput:
        self.calls.append(argv)
        await asyncio.sleep(0)
        if argv[0] == "scancel" and self.silent and any(self.silent in word for word in argv):
            return CommandOutput(1, "", "scancel: error: Unable to contact slurm controller (connect failure)")
        return CommandOutput(0, "", "")

    async def ask(self, argv: Sequence[str]) -> str:
        self.calls.append(argv)
        await asyncio.sleep(0)
        return "".join(
            RECORD + FIELD.join((
                job_id, job_id, "", "me", state, "None", "cpu", "n1", "Unknown", "Unknown", "60:00", "Unknown", name,
            )) + "\n"
            for job_id, (name, state) in self.jobs.items()
        )  # fmt: skip

    def count(self, command: str) -> int:
        return sum(argv[0] == command for argv in self.calls)


class Bed:
    def __init__(self, tmp_path: Path) -> None:
        self.slurm = Slurm()
        self.workloads = tmp_path
        self.files = RunDirectories(tmp_path)
        self.ender = Ender(SlurmClient(self.slurm, gap_s=0.0), self.files)  # type: ignore[arg-type]

    def put(self, number: int, state: str = "PENDING") -> Handle:
        token = make_token(TaskKey(f"run-{number}", "script", 0), 1, f"{number:08}")
        self.slurm.jobs[str(number)] = (token, state)
        if state == "RUNNING":
            folder = allocation_dir(self.workloads, token)
            folder.mkdir(parents=True)
            (folder / "claim.json").write_text('{"pid": 7, "start": "1", "boot": "b", "node": "n1"}')
        return Handle(token, str(number))


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


async def test_hundreds_at_once_are_one_look_and_one_call(bed: Bed) -> None:
    handles = [bed.put(number) for number in range(1, 301)]
    await asyncio.gather(*(bed.ender.cancel(handle, force=False) for handle in handles))
    assert [argv[0] for argv in bed.slurm.calls] == ["squeue", "scancel"]
    assert sorted(bed.slurm.calls[1][1:], key=int) == [handle.native for handle in handles]
    claims = [bed.files.claim(handle.token) for handle in handles]
    assert [claim.pid for claim in claims if claim is not None] == [0] * 300, "none may begin later"
    assert not list(bed.workloads.glob(".claim*"))


async def test_more_are_called_in_chunks(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENDED_PER_CALL", 10)
    handles = [bed.put(number) for number in range(1, 26)]
    await asyncio.gather(*(bed.ender.cancel(handle, force=True) for handle in handles))
    assert (bed.slurm.count("squeue"), bed.slurm.count("scancel")) == (1, 3)


async def test_what_runs_is_asked_and_what_waits_is_cancelled(bed: Bed) -> None:
    handles = [bed.put(number, "RUNNING" if number % 2 else "PENDING") for number in range(1, 5)]
    gone = Handle(make_token(TaskKey("gone", "script", 0), 1, "gone1234"), "99")
    await asyncio.gather(*(bed.ender.cancel(handle, force=False) for handle in (*handles, gone)))
    assert sorted(map(tuple, bed.slurm.calls[1:])) == [
        ("scancel", "--signal=TERM", "--batch", "1", "3"),
        ("scancel", "2", "4"),
    ]


async def test_one_alone_is_named(bed: Bed) -> None:
    handle = bed.put(1)
    await bed.ender.cancel(handle, force=False)
    assert bed.slurm.calls[1:] == [("scancel", f"--name={handle.token}", "1")]


async def test_who_got_no_answer_is_told_and_the_others_are_not(bed: Bed) -> None:
    waits, runs = bed.put(1), bed.put(2, "RUNNING")
    bed.slurm.silent = "--signal=TERM"
    outcomes = await asyncio.gather(
        *(bed.ender.cancel(handle, force=False) for handle in (waits, runs)), return_exceptions=True
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], BackendUnreachable)


async def test_one_whose_folder_cannot_be_written_does_not_hold_up_the_others(bed: Bed) -> None:
    first, second = bed.put(1), bed.put(2)
    (bed.workloads / "run-1").write_text("a file where a folder should be")
    outcomes = await asyncio.gather(
        *(bed.ender.cancel(handle, force=False) for handle in (first, second)), return_exceptions=True
    )
    assert isinstance(outcomes[0], BackendUnreachable)
    assert outcomes[1] is None
    assert bed.slurm.calls[1:] == [("scancel", f"--name={second.token}", "2")]


async def test_where_no_file_can_be_shared_each_is_claimed_alone(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.backends.slurm.files._is_written", lambda *_: False)
    handles = [bed.put(1), bed.put(2), bed.put(3, "RUNNING")]
    await asyncio.gather(*(bed.ender.cancel(handle, force=False) for handle in handles))
    claims = [bed.files.claim(handle.token) for handle in handles]
    assert [claim.pid for claim in claims if claim is not None] == [0, 0, 7]
    assert bed.slurm.count("scancel") == 2


async def test_what_is_asked_later_is_looked_up_anew(bed: Bed) -> None:
    first, second = bed.put(1), bed.put(2)
    await bed.ender.cancel(first, force=False)
    await bed.ender.cancel(second, force=False)
    assert bed.slurm.count("squeue") == 2


@pytest.mark.parametrize(("states", "is_put_off"), [(["PENDING"] * 3, False), (["PENDING", "RUNNING"], True)])
async def test_what_left_the_queue_is_looked_at_at_once_and_what_ends_by_itself_is_given_time(
    bed: Bed, states: list[str], *, is_put_off: bool
) -> None:
    client = SlurmClient(bed.slurm, gap_s=30.0)  # type: ignore[arg-type]
    ender = Ender(client, bed.files)
    handles = [bed.put(number, state) for number, state in enumerate(states, 1)]
    await asyncio.gather(*(ender.cancel(handle, force=False) for handle in handles))
    look = asyncio.ensure_future(client.queue())
    done, _ = await asyncio.wait({look}, timeout=0.2 if is_put_off else 120.0)
    assert bool(done) is not is_put_off
    look.cancel()


async def test_after_a_call_without_an_answer_the_pause_is_kept(bed: Bed) -> None:
    client = SlurmClient(bed.slurm, gap_s=30.0)  # type: ignore[arg-type]
    bed.slurm.silent = "1"
    with pytest.raises(BackendUnreachable):
        await Ender(client, bed.files).cancel(bed.put(1), force=False)
    look = asyncio.ensure_future(client.queue())
    assert not (await asyncio.wait({look}, timeout=0.2))[0]
    look.cancel()


async def test_strays_are_ended_by_one_call_if_they_still_have_their_names(bed: Bed) -> None:
    strays = [Stray(bed.put(number).token, str(number), Life.PENDING) for number in range(1, 101)]
    bed.slurm.jobs["100"] = ("another", "PENDING")
    await asyncio.gather(*(bed.ender.remove(stray, force=False) for stray in strays))
    assert [argv[0] for argv in bed.slurm.calls] == ["squeue", "scancel"]
    assert "100" not in bed.slurm.calls[1]
    assert len(bed.slurm.calls[1]) == 100
