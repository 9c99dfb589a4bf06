"""What a run wrote elsewhere, as its user fetches it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING, BinaryIO

import pytest

from remuda.base.errors import InputError, NotFound
from remuda.client.results import pull

if TYPE_CHECKING:
    from pathlib import Path

VIEW = {"name": "train", "created_at": 1000.0}


def came(root: Path, where: str, files: dict[str, str], at: float = 2000.0) -> Path:
    """What came back of an attempt."""
    path = root / "train" / where / "results.tar"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w") as file:
        for name, text in files.items():
            one = tarfile.TarInfo(name)
            one.size = len(text)
            one.mode = 0o777
            file.addfile(one, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        file.addfile(link)
    os.utime(path, (at, at))
    path.with_name("exit.json").write_text("{}")
    return path


def test_all_of_the_newest_attempt(tmp_path: Path) -> None:
    came(tmp_path, "script-0/attempt-3-old", {"a": "of an earlier run"}, at=900.0)
    came(tmp_path, "script-0/attempt-1-x", {"a": "1"}, at=1500.0)
    came(tmp_path, "script-0/attempt-2-x", {"a": "2", "b/c": "3"})
    to = tmp_path / "to"
    assert pull(VIEW, tmp_path, "", to) == [to / "a", to / "b" / "c"]
    assert (to / "a").read_text() == "2"
    assert (to / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("wanted", "names"), [("b", ["b/c", "b/d"]), ("b/", ["b/c", "b/d"]), ("b/c", ["b/c"])])
def test_a_part(tmp_path: Path, wanted: str, names: list[str]) -> None:
    came(tmp_path, "script-0/attempt-1-x", {"a": "1", "b/c": "2", "b/d": "3", "bc": "4"})
    to = tmp_path / "to"
    assert pull(VIEW, tmp_path, wanted, to) == [to / name for name in names]


def test_each_of_several_tasks_has_a_folder(tmp_path: Path) -> None:
    for task in ("rank-0", "rank-1"):
        came(tmp_path, f"{task}/attempt-1-x", {"a": task})
    to = tmp_path / "to"
    assert sorted(pull(VIEW, tmp_path, "", to)) == [to / "rank-0" / "a", to / "rank-1" / "a"]


def test_no_name_of_a_node_leads_out_of_the_folder(tmp_path: Path) -> None:
    came(
        tmp_path, "script-0/attempt-1-x", {"../out": "1", str(tmp_path / "absolute"): "2", "a/../../out": "3", "a": "4"}
    )
    to = tmp_path / "to"
    assert pull(VIEW, tmp_path, "", to) == [to / "a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["to", "train"]
    assert [path.name for path in to.iterdir()] == ["a"]  # and no link


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"^nothing of what train wrote has come back$"):
        pull(VIEW, tmp_path, "", tmp_path)
    came(tmp_path, "script-0/attempt-1-x", {"a": "1"})
    with pytest.raises(NotFound) as caught:
        pull(VIEW, tmp_path, "c", tmp_path)
    assert (str(caught.value), caught.value.hint) == ("train wrote no 'c'", "it wrote a, link")
    (tmp_path / "to").write_text("a file")
    with pytest.raises(InputError, match="cannot be written: "):
        pull(VIEW, tmp_path, "", tmp_path / "to")


def test_what_is_still_on_its_way_has_not_come(tmp_path: Path) -> None:
    came(tmp_path, "script-0/attempt-1-x", {"a": "1"}, at=1500.0)
    path = came(tmp_path, "script-0/attempt-2-x", {"a": "2"})
    path.with_name("exit.json").unlink()
    to = tmp_path / "to"
    for noted, text in (None, "1"), ({"node": "box"}, "1"), ({"node": "box", "done": True}, "2"):
        if noted is not None:
            path.with_name("carried.json").write_text(json.dumps(noted))
        assert pull(VIEW, tmp_path, "", to) == [to / "a"]
        assert (to / "a").read_text() == text


@pytest.mark.parametrize("data", [b"", b"x" * 2000, None])
def test_what_a_node_has_spoilt_is_said(tmp_path: Path, data: bytes | None) -> None:
    path = came(tmp_path, "script-0/attempt-1-x", {"a": "1" * 3000})
    path.write_bytes(path.read_bytes()[:2000] if data is None else data)
    with pytest.raises(NotFound, match=rf"^what train wrote has not come back whole: {path}: "):
        pull(VIEW, tmp_path, "", tmp_path / "to")


def test_a_small_file_of_a_node_fills_no_disk(tmp_path: Path) -> None:
    path = came(tmp_path, "script-0/attempt-1-x", {"a": "1"})
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 64 << 20)
    (tmp_path / "real").write_text("1")
    subprocess.run(["tar", "-C", str(tmp_path), "--sparse", "-cf", str(path), "hole", "real"], check=True)
    to = tmp_path / "to"
    assert pull(VIEW, tmp_path, "", to) == [to / "real"]
    subprocess.run(["gzip", "-k", str(path)], check=True)
    path.with_suffix(".tar.gz").replace(path)
    with pytest.raises(NotFound, match="has not come back whole"):
        pull(VIEW, tmp_path, "", to)


def test_fetched_again_all_is_there_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = came(tmp_path, "script-0/attempt-1-x", {"a": "1"})
    to = tmp_path / "to"
    to.mkdir()
    (tmp_path / "mine").write_text("mine")
    (to / "a").symlink_to(tmp_path / "mine")
    for _ in range(2):
        pull(VIEW, tmp_path, "", to)
        assert (to / "a").read_text() == "1"
    assert (tmp_path / "mine").read_text() == "mine"
    came(tmp_path, "script-0/attempt-2-x", {"a": "2"}, at=path.stat().st_mtime + 1)

    def full(_: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(InputError) as caught:
        pull(VIEW, tmp_path, "", to)
    assert caught.value.message == f"{to}/a: cannot be written: no space left on device"
    assert [(one.name, one.read_text()) for one in to.iterdir()] == [("a", "1")]
