"""The folder of a command on its way: what goes, what stays, and what a node keeps of it."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Rejected
from remuda.fleet.carried import folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    for name in ("train.py", ".env", "lib/model.py", "data/big.bin", ".venv/bin/python", "state/secret"):
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(name)
    (found / "disk").symlink_to("/mnt/disk")
    return found


def packed(root: Path, tmp_path: Path) -> Path:
    return folder.pack(root, tmp_path / "store", root / "state")


def names(path: Path) -> list[str]:
    with tarfile.open(path) as file:
        return file.getnames()


def test_where_git_knows_nothing_of_it_names_with_a_dot_stay(root: Path, tmp_path: Path) -> None:
    assert names(packed(root, tmp_path)) == ["data/big.bin", "disk", "lib/model.py", "train.py"]


def test_what_git_ignores_stays(root: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("data\n.venv\n")
    subprocess.run(["git", "-C", str(root), "add", "lib"], check=True)
    (root / "lib" / "gone.py").write_text("")
    subprocess.run(["git", "-C", str(root), "add", "lib"], check=True)
    (root / "lib" / "gone.py").unlink()
    assert names(packed(root, tmp_path)) == [".env", ".gitignore", "disk", "lib/model.py", "train.py"]


def test_one_that_has_not_changed_is_one_file(root: Path, tmp_path: Path) -> None:
    first = packed(root, tmp_path)
    node = first.stat().st_ino
    assert packed(root, tmp_path) == first
    assert first.stat().st_ino == node
    (root / "train.py").write_text("another")
    assert packed(root, tmp_path) != first
    os.utime(first, (0, time.time() - folder.KEPT_S - 1))
    (root / "train.py").write_text("a third one")
    packed(root, tmp_path)
    assert not first.exists(), "nobody used it for a month"


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FILES"])
def test_what_is_too_large_is_refused(root: Path, tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, limit, 3)
    with pytest.raises(Rejected, match=r"and goes to a node as a whole; name a smaller folder \(--workdir DIR\)"):
        packed(root, tmp_path)
    assert not (tmp_path / "store").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Rejected) as caught:
        packed(tmp_path / "gone", tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/gone is no folder of the head's machine, and the folder of a command goes to its node"
    )


def test_a_node_keeps_what_was_made_or_changed(root: Path, tmp_path: Path) -> None:
    (root / "lib" / "tool.sh").write_text("#!/bin/sh\n")
    (root / "lib" / "tool.sh").chmod(0o755)
    path, work = packed(root, tmp_path), tmp_path / "work"
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "half").touch()  # a client was killed while it unpacked
    folder.unpack(path, work)
    assert sorted(str(one.relative_to(work)) for one in work.rglob("*") if not one.is_dir()) == [
        "data/big.bin", "disk", "lib/model.py", "lib/tool.sh", "train.py",
    ]  # fmt: skip
    assert str((work / "disk").readlink()) == "/mnt/disk"
    assert os.access(work / "lib" / "tool.sh", os.X_OK)
    (work / "lib" / "model.py").write_text("lib/mOdel.py")  # of the same size
    (work / "out").mkdir()
    (work / "out" / "result").write_text("42")
    folder.clear(path, work)
    assert sorted(str(one.relative_to(work)) for one in work.rglob("*") if not one.is_dir()) == [
        "lib/model.py", "out/result"
    ]  # fmt: skip
    for one in ("lib/model.py", "out/result"):
        (work / one).unlink()
    folder.clear(path, work)
    assert not work.exists()
