"""One process writes a checkpoint, whatever machine it is on and whatever its file system thinks of locks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from remuda.batch.output.lock import Busy, FileLock, FolderLock, OutputLock, take_lock, take_output

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = socket.gethostname()


def left_by(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "lock").write_text(text)
    return folder / "lock"


async def test_a_stranger_is_refused_at_once(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "job-1")
    for owner in ("", "job-2"):
        with pytest.raises(Busy, match=f"process {os.getpid()} on {HERE} for job-1"):
            await take_lock(tmp_path, owner, wait_s=60)
    lock.release()
    (await take_lock(tmp_path, "job-2")).release()


async def test_an_attempt_waits_for_the_one_before(tmp_path: Path) -> None:
    before = FolderLock(tmp_path, "job-1")
    waiting = asyncio.create_task(take_lock(tmp_path, "job-1", wait_s=60))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    before.release()
    (await waiting).release()
    before = FolderLock(tmp_path, "job-1")
    with pytest.raises(Busy):
        await take_lock(tmp_path, "job-1", wait_s=0.1)
    before.release()


async def test_who_died_on_this_machine_is_not_waited_for(tmp_path: Path) -> None:
    left_by(tmp_path, f"process 1 on {HERE} for job-1\n")
    lock = FolderLock(tmp_path, "job-2")
    assert not lock.rival
    lock.release()
    assert (tmp_path / "lock").read_text() == "", "who lets go leaves no name"


async def test_who_died_on_another_machine_is_watched_and_replaced(tmp_path: Path) -> None:
    left_by(tmp_path, "process 7 on elsewhere for job-1\n")
    began = time.monotonic()
    lock = await take_lock(tmp_path, "job-2", silent_s=1.0)
    assert time.monotonic() - began >= 1.0
    assert (tmp_path / "lock").read_text() == f"process {os.getpid()} on {HERE} for job-2\n"
    lock.release()


async def test_who_lives_on_another_machine_keeps_it_where_locks_do_not_travel(tmp_path: Path) -> None:
    """Its lock is not seen here, as on a file system that keeps locks to one machine; its touches are."""
    file = left_by(tmp_path, "process 7 on elsewhere for job-1\n")
    ends = asyncio.Event()

    async def live() -> None:
        number = 1
        while not ends.is_set():
            number += 1
            os.utime(file, ns=(number, number))
            await asyncio.sleep(0.02)

    living = asyncio.create_task(live())
    with pytest.raises(Busy, match="process 7 on elsewhere"):
        await take_lock(tmp_path, "job-2", silent_s=5.0)
    assert file.read_text() == "process 7 on elsewhere for job-1\n", "whose it is stays written"
    waiting = asyncio.create_task(take_lock(tmp_path, "job-1", wait_s=60, silent_s=1.0))
    await asyncio.sleep(1.5)
    assert not waiting.done()
    ends.set()
    await living
    (await waiting).release()


def test_the_owner_is_seen_to_live(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    os.utime(tmp_path / "lock", ns=(1, 1))
    first = lock.touched()
    lock.beat()
    assert lock.touched() != first
    lock.release()


HOLD = """
import sys
from pathlib import Path
from remuda.batch.output.lock import OutputLock
lock = OutputLock(Path(sys.argv[1]), "job-1")
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["out.jsonl", "parts/"])
def test_two_drivers_with_two_checkpoints_write_no_output_together(
    tmp_path: Path, echo: Callable[..., object], name: str
) -> None:
    """Another process has the output; what it leaves when it is killed keeps nobody out."""
    (tmp_path / "in.csv").write_text("prompt\na\n")
    target = tmp_path / name
    target.mkdir() if name.endswith("/") else None
    argv = [sys.executable, "-c", HOLD, str(target)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(Busy) as caught:
            echo(tmp_path / "in.csv", f"{tmp_path}/{name}", checkpoint_tag="other")
        other.kill()
    assert caught.value.asked == []  # type: ignore[attr-defined]
    assert caught.value.message == f"the output {target} is being written by process {other.pid} on {HERE} for job-1"
    assert caught.value.hint == "wait for it, or give this job another --output"
    echo(tmp_path / "in.csv", f"{tmp_path}/{name}", checkpoint_tag="other")
    assert not [item for item in tmp_path.rglob("*lock") if item.parent.name != "other"]


async def test_an_output_that_another_machine_writes(tmp_path: Path) -> None:
    file = tmp_path / ".out.csv.lock"
    file.write_text("process 7 on elsewhere for job-1\n")
    ends = asyncio.Event()

    async def live() -> None:
        number = 1
        while not ends.is_set():
            number += 1
            os.utime(file, ns=(number, number))
            await asyncio.sleep(0.02)

    living = asyncio.create_task(live())
    with pytest.raises(Busy, match=r"the output .*out\.csv is being written by process 7 on elsewhere for job-1"):
        await take_output(tmp_path / "out.csv", "job-2", silent_s=5.0)
    assert file.exists()
    ends.set()
    await living
    (await take_output(tmp_path / "out.csv", "job-2", silent_s=0.2)).release()
    assert not file.exists()


def test_a_lock_file_that_was_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who let go removed the file between another's open and its lock: that one makes a new file."""
    before = OutputLock(tmp_path / "out.csv")
    flock, left = fcntl.flock, [before]

    def let_go_first(fd: int, how: int) -> None:
        if left:
            left.pop().release()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", let_go_first)
    after: FileLock = OutputLock(tmp_path / "out.csv")
    with pytest.raises(Busy):
        OutputLock(tmp_path / "out.csv")
    after.release()


def test_one_output_by_two_names_is_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lock = OutputLock(tmp_path / "real" / "out.csv")
    with pytest.raises(Busy):
        OutputLock(tmp_path / "link" / "out.csv")
    lock.release()
