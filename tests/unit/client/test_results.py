"""What a run wrote elsewhere, as its user fetches it."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

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
