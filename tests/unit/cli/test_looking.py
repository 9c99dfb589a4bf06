"""Commands that only look, and words that are wrong, leave an empty place empty: no host, no directory."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import HostUnreachable
from remuda.cli import main
from remuda.client import http
from remuda.client.http import looking
from remuda.client.recordings import profiler

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = "error: nothing is called 'nope'\n  `remuda status` lists what there is\n"


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("REMUDA_HOME", str(home))
    monkeypatch.setattr(http, "start_host", lambda *_: pytest.fail("a host was started"))
    return home


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["status"], 0, "nothing runs\n", ""),
        (["status", "--all", "--json"], 0, "[]\n", ""),
        (["status", "nope"], 3, "", NOTHING),
        (["status", "--watch", "nope"], 3, "", NOTHING),
        (["explain", "nope"], 3, "", NOTHING),
        (["events", "nope"], 3, "", NOTHING),
        (["swarm", "describe", "nope"], 3, "", NOTHING),
        (["logs", "nope"], 3, "", NOTHING),
        (["logs", "nope", "--follow"], 3, "", NOTHING),
        (["list"], 0, "no runs; start one: remuda run train.sh\n", ""),
        (["swarm", "list"], 0, "no swarm is up\n", ""),
        (["down", "nope"], 3, "", NOTHING),
        (["stop", "nope", "other"], 3, "", NOTHING),
        (["down", "--json", "nope"], 3, None, ""),
        (["db", "prune", "--older-than", "soon"], 2, "",
         "error: --older-than: 'soon' is not a duration\n  write seconds, 90s, 1h30m, 2d or 36:00:00\n"),
    ],
)  # fmt: skip
def test_an_empty_home_stays_empty(
    empty: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, out: str | None, err: str
) -> None:
    assert main(words) == code
    seen = capsys.readouterr()
    assert (seen.out if out is not None else None, seen.err) == (out, err)
    assert not empty.exists()


def test_a_driver_without_the_folder_of_a_job(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "drive", str(empty)]) == 2
    assert capsys.readouterr().err == f"error: {empty} is not the folder of a job\n  `remuda job list` shows jobs\n"


@pytest.mark.parametrize("left", ["host.sock", "host.json", "workloads/train"])
def test_where_a_host_died_or_the_database_was_lost_one_is_started(
    empty: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    started: list[object] = []
    monkeypatch.setattr(http, "start_host", lambda *_: started.append(_))
    (empty / left).parent.mkdir(parents=True)
    (empty / left).touch()
    looking()
    assert len(started) == 1


def test_who_watches_sees_the_host_that_comes(empty: Path) -> None:
    watching = looking()
    assert watching.get("/workloads") == []
    empty.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(empty / "host.sock"))
        with pytest.raises(HostUnreachable, match="the host does not answer on"):
            watching.get("/workloads")


@pytest.mark.parametrize("words", [["analyze", "exp1"], ["export", "exp1"], ["analyze", "--plot", "a.png", "exp1"]])
def test_recordings_are_read_with_pyarrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["profiler", *words]) == 2
    sentence = "error: to read a recording takes pyarrow, which is not installed\n  pip install 'remuda[batch]'\n"
    assert capsys.readouterr().err == sentence


def test_a_recording_ends_and_stays_without_pyarrow(
    empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from remuda.client import ending

    ended: list[str] = []

    def take_down(names: list[str], **_: object) -> list[str]:
        ended.extend(names)
        return names

    folder = empty / "recordings" / "exp1"
    folder.mkdir(parents=True)
    (folder / "spool").write_text(json.dumps({"kept": True}))
    monkeypatch.setattr(profiler, "running", lambda: ["exp1"])
    monkeypatch.setattr(ending, "take_down", take_down)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["profiler", "stop"]) == 2
    what = f"exp1 has ended, and stays in {folder}: to make one file of it takes"
    assert f"error: {what} pyarrow, which is not installed\n  pip install" in capsys.readouterr().err
    assert ended == ["exp1"]
    assert (folder / "spool").exists()
