"""An output in a folder that others can write, who know the names that a driver uses there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from remuda.base.errors import InputError, NotPrivate, RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Prompts = Callable[..., Path]

MINE = "what is mine"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user's own, which nobody else could write."""
    path = tmp_path / "mine"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out.csv"])
def test_nothing_is_written_through_a_planted_link(
    name: str, stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path, mine: Path
) -> None:
    target = tmp_path / name
    tag = crc32(os.fsencode((tmp_path / f"{name}.checkpoint").resolve()))
    (tmp_path / f".{name}.{tag:08x}.tmp").symlink_to(mine)
    assert run(stub.url, prompts(["a", "b"]), output=str(target)).failed == 0
    assert mine.read_text() == MINE
    assert target.stat().st_size > 0
    assert not target.is_symlink()


def test_a_planted_lock_empties_nothing(
    stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path, mine: Path
) -> None:
    (tmp_path / ".out.parquet.lock").symlink_to(mine)
    with pytest.raises(RemudaError, match="cannot be used"):
        run(stub.url, prompts(["a"]), output=str(tmp_path / "out.parquet"))
    assert mine.read_text() == MINE


def test_a_pipe_in_place_of_a_lock_is_named(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".out.parquet.lock")
    with pytest.raises(RemudaError, match=r"\.out\.parquet\.lock is not a file"):
        run(stub.url, prompts(["a"]), output=str(tmp_path / "out.parquet"))


def test_a_pipe_in_place_of_the_input_keeps_nobody_waiting(stub: StubProcess, run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in.jsonl")
    with pytest.raises(InputError, match="is a pipe"):
        run(stub.url, tmp_path / "in.jsonl", output=str(tmp_path / "out.parquet"))


def test_a_planted_log_is_not_read(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path, mine: Path) -> None:
    folder = tmp_path / "out.parquet.checkpoint"
    folder.mkdir(mode=0o700)
    (folder / "results.log").symlink_to(mine)
    with pytest.raises(RemudaError):
        run(stub.url, prompts(["a"]), output=str(tmp_path / "out.parquet"))
    assert mine.read_text() == MINE
    assert MINE not in "".join(path.read_text() for path in folder.iterdir() if not path.is_symlink())


def test_a_checkpoint_that_others_can_write_is_refused(
    stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "out.parquet.checkpoint"
    folder.mkdir()
    folder.chmod(0o2777)
    with pytest.raises(NotPrivate, match="can be written by others"):
        run(stub.url, prompts(["a"]), output=str(tmp_path / "out.parquet"))
