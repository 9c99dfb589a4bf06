from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remuda.backends.slurm.logs import expand_pattern, find_log, values_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "native", "name"),
    [
        ("slurm-%j.out", "123", "slurm-123.out"),
        ("%x/%5j-%A.log", "123", "w.s.0.1.u/00123-123.log"),
        ("a%%b", "123", "a%b"),
        ("%A_%a_%2a", "9_4", "9_4_04"),
        ("%j.out", "9_4", "*.out"),
        ("%N-%q", "9", "*-%q"),
        ("[x]*", "9", "[[]x][*]"),
        ("a\\%j", "9", "a%j"),
    ],
)
def test_patterns(pattern: str, native: str, name: str) -> None:
    assert expand_pattern(pattern, values_of("w.s.0.1.u", native)) == name


def test_where_the_output_is(tmp_path: Path) -> None:
    folder, work = tmp_path / "attempt", tmp_path / "work dir"
    folder.mkdir()
    work.mkdir()
    assert find_log(folder, "n", "7") == folder / "child.log"
    (folder / "slurm.json").write_text(json.dumps({"output": "o-%j.txt", "error": "", "workdir": str(work)}))
    (work / "slurm-7.out").write_text("x")
    assert find_log(folder, "n", "7") == work / "slurm-7.out"
    (work / "o-7.txt").write_text("x")
    assert find_log(folder, "n", "7") == work / "o-7.txt"
    (folder / "node.log").write_text("x")
    assert find_log(folder, "n", "7") == folder / "node.log"
    (folder / "child.log").write_text("")
    assert find_log(folder, "n", "7") == folder / "child.log"
