"""The log of a long-lived process: it is told much and holds little."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remuda.base import log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def record(level: int = logging.WARNING, line: int = 1, text: str = "no %s") -> logging.LogRecord:
    return logging.LogRecord("remuda", level, "code.py", line, text, ("way",), None)


def test_of_one_kind_of_warning_so_many_pass_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("remuda.base.log.time.monotonic", lambda: now[0])
    thrift = log.Thrift()
    assert sum(thrift.filter(record()) for _ in range(10_000)) == log.PER_MINUTE
    assert thrift.filter(record(line=2)), "another kind is not kept back by it"
    assert all(thrift.filter(record(logging.INFO)) for _ in range(1000))
    now[0] += 61
    next_one = record()
    assert thrift.filter(next_one)
    assert next_one.getMessage() == f"no way (and {10_000 - log.PER_MINUTE} more like it in between)"


def test_a_full_file_is_laid_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    with path.open("ab") as file, path.open("ab") as other, (tmp_path / "else").open("ab") as foreign:
        assert not log.turn(path, file.fileno(), max_bytes=1), "it is empty"
        file.write(b"a day of it\n")
        file.flush()
        assert log.turn(path, file.fileno(), other.fileno(), foreign.fileno(), max_bytes=1)
        for one in (file, other, foreign):
            one.write(b"later\n")
    assert path.read_bytes() == b"later\n" * 2
    assert (tmp_path / "host.log.1").read_bytes() == b"a day of it\n"
    assert (tmp_path / "else").read_bytes() == b"later\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    path.write_text("of another host\n")
    with (tmp_path / "mine").open("ab") as mine:
        assert not log.turn(path, mine.fileno(), max_bytes=1)
    assert path.read_text() == "of another host\n"


def test_a_log_that_is_written_to_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "host.log"
    turn = log.turn
    monkeypatch.setattr(log, "turn", lambda path, *writers: turn(path, *writers, max_bytes=1000))
    with path.open("a") as file:
        monkeypatch.setattr("sys.stderr", file)
        monkeypatch.setattr("sys.stdout", file)
        handler = log.KeptSmall(path)
        for _ in range(200):
            handler.emit(record(logging.INFO, text="x" * 100 + "%s"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["host.log", "host.log.1"]
    assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) < 2500
