"""The folder of a command on its way: what goes, what stays, and what a node keeps of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from remuda.base.errors import Rejected
from remuda.fleet.carried import folder


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


def test_one_that_a_repository_above_ignores_travels_as_it_is(root: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*\n")
    assert names(packed(root, tmp_path)) == ["data/big.bin", "disk", "lib/model.py", "train.py"]


def test_what_is_too_large_with_its_headers_stays(tmp_path: Path) -> None:
    made = tmp_path / "work" / "/".join("d" * 200 for _ in range(6))
    made.mkdir(parents=True)
    for number in range(20):
        (made / f"{number}").write_bytes(b"x" * 600)
    folder.collect(tmp_path / "work", tmp_path / "results.tar", 10241 + 20 * 2648)
    assert not (tmp_path / "results.tar").exists()


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
        f"{tmp_path}/gone is not a folder on the head's machine, and the folder of a command goes to its node"
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


def test_a_file_of_two_names_comes_back_under_both(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "step-10").write_text("weights")
    (work / "last").hardlink_to(work / "step-10")
    (work / "link").symlink_to("last")
    folder.collect(work, tmp_path / "results.tar", 1 << 20)
    with tarfile.open(tmp_path / "results.tar") as file:
        assert {one.name: (one.isreg(), one.size) for one in file} == {"step-10": (True, 7), "last": (True, 7)}


def test_what_lies_behind_a_link_is_not_removed(root: Path, tmp_path: Path) -> None:
    """A task may put a link to its node's own copy of the data in the place of a folder."""
    path, work, own = packed(root, tmp_path), tmp_path / "work", tmp_path / "own"
    folder.unpack(path, work)
    (work / "data").rename(own)
    (work / "data").symlink_to(own, target_is_directory=True)
    folder.clear(path, work)
    assert [one.name for one in work.iterdir()] == ["data"]
    assert (own / "big.bin").read_text() == "data/big.bin"


def test_repositories_in_a_folder_travel_with_it(root: Path, tmp_path: Path) -> None:
    for one in (root, root / "lib"):
        subprocess.run(["git", "init", "-q", str(one)], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    (root / "lib" / ".gitignore").write_text("*.log\n")
    (root / "lib" / "x.log").touch()
    inner, outer = ["git", "-C", str(root / "lib"), *who], ["git", "-C", str(root), *who]
    subprocess.run([*inner, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert {"lib/.gitignore", "lib/model.py"} == {name for name in names(packed(root, tmp_path)) if "lib" in name}
    subprocess.run([*outer, "add", "lib"], check=True, stderr=subprocess.DEVNULL)
    assert "lib/model.py" in names(packed(root, tmp_path)), "as a submodule"
    shutil.rmtree(root / "lib")
    (root / "lib").mkdir()
    assert "train.py" in names(packed(root, tmp_path)), "one that is not checked out"


def test_the_state_directory_stays_whatever_the_way_to_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(root, target_is_directory=True)
    found = names(folder.pack(tmp_path / "way", tmp_path / "store", root / "state"))
    assert "train.py" in found
    assert "state/secret" not in found


def test_pipes_and_sockets_stay_and_links_out_of_it_travel_as_links(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(root / "sock"))
        (root / "out").symlink_to("../../etc/passwd")
        path = packed(root, tmp_path)
    assert names(path) == ["data/big.bin", "disk", "lib/model.py", "out", "train.py"]
    folder.unpack(path, tmp_path / "work")
    assert str((tmp_path / "work" / "out").readlink()) == "../../etc/passwd"


def test_a_byte_too_much(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir() and "/." not in str(path))
    monkeypatch.setattr(folder, "MOST_BYTES", size - (root / "state" / "secret").stat().st_size)
    assert packed(root, tmp_path).exists()
    (root / "one").write_text("1")
    with pytest.raises(Rejected):
        packed(root, tmp_path)


@pytest.mark.parametrize("name", ["train.py", "lib"])
def test_what_cannot_be_read_is_said(name: str) -> None:
    """As a user who is not root."""
    root = Path(tempfile.mkdtemp(prefix="rp", dir="/tmp"))
    try:
        (root / "project" / "lib").mkdir(parents=True)
        (root / "project" / "train.py").touch()
        for path in (root, root / "project"):
            path.chmod(0o777)
        (root / "project" / name).chmod(0)
        pid = os.fork()
        if not pid:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            try:
                folder.pack(root / "project", root / "store", root / "state")
            except PermissionError as error:
                os._exit(7 if error.filename == str(root / "project" / name) else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        (root / "project" / name).chmod(0o700)
        shutil.rmtree(root)


def test_of_too_many_those_of_the_last_day_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_KEPT", 25)
    for name, hours in (("a", 1), ("b", 2), ("c", 3), ("d", 30), ("e", 31)):
        (tmp_path / f"{name}.tar").write_bytes(b" " * 10)
        os.utime(tmp_path / f"{name}.tar", (0, time.time() - hours * 3600))
    folder.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar", "c.tar"]
