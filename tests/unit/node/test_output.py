"""Secrets do not reach the log, however the child's output is cut into pieces; files stay within their bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.node.capped import CappedFile
from remuda.node.child.output import Blotter, Output

SECRETS = ("abcabd", "abcabdefgh", "short")


@given(
    words=st.lists(st.sampled_from([*SECRETS, "abc", "ab", "x", "\n", "abcab"]), max_size=30),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_cut_anywhere_no_secret_gets_through(words: list[str], cuts: list[int]) -> None:
    text = "".join(words).encode()
    blotter = Blotter(SECRETS)
    out, at = b"", 0
    while at < len(text):
        size = cuts[at % len(cuts)]
        out += blotter.feed(text[at : at + size])
        at += size
    out += blotter.flush()
    assert b"abcabd" not in out


@given(st.lists(st.binary(max_size=20)))
def test_without_secrets_everything_gets_through(pieces: list[bytes]) -> None:
    blotter = Blotter(())
    assert b"".join(blotter.feed(piece) for piece in pieces) == b"".join(pieces)


def test_nothing_is_lost_or_held_back_for_ever() -> None:
    blotter = Blotter(("secret-key",))
    assert blotter.feed(b"a secret") == b"a "
    assert blotter.feed(b" thing secret-key!") == b"secret thing [secret]!"
    assert blotter.feed(b"secret-") == b""
    assert blotter.flush() == b"secret-"


def test_a_full_file_is_renamed_and_there_are_never_more_than_two(tmp_path: Path) -> None:
    log = CappedFile(tmp_path / "log", 100)
    for number in range(50):
        log.append(b"%09d\n" % number)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    older, newer = (tmp_path / "log.1").read_bytes(), (tmp_path / "log").read_bytes()
    assert len(older) <= 100
    assert len(newer) <= 100
    lines = [int(line) for line in (older + newer).split()]
    assert lines == list(range(lines[0], 50))


def test_a_file_that_was_there_is_continued(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"before\n")
    log = CappedFile(tmp_path / "log", 100)
    log.append(b"after\n", sync=True)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"


def test_what_cannot_be_written_is_counted() -> None:
    log = CappedFile(Path("/dev/full"), 100)
    log.append(b"hello")
    assert log.lost_bytes == 5
    log.close()


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
        "OSError: [Errno 98] Address already in use",
        "Error: Address already in use (os error 98)",
        "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
        "Error: listen EADDRINUSE: address already in use 0.0.0.0:3000",
    ],
)
def test_complaints_about_a_taken_port(tmp_path: Path, line: str) -> None:
    read, write = os.pipe()
    output = Output(read, CappedFile(tmp_path / "log", 10**6), ())
    os.write(write, b"loading\n" + line.encode() + b"\nbye\n")
    os.close(write)
    assert not output.says_port_taken()
    output.finish()
    assert output.says_port_taken()
    assert output.tail(4000).endswith("bye\n")
    assert output.tail(10) == "bye\n"
