"""The end of a text file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.backends.tail import last_text

if TYPE_CHECKING:
    from pathlib import Path


def test_the_end_of_a_file_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    assert last_text(log, 100) == ""
    log.write_text("first line\nsecond\nthird\n")
    assert last_text(log, 100) == "first line\nsecond\nthird\n"
    assert last_text(log, 12) == "third\n"
