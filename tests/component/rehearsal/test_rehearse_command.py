"""`remuda rehearse` as a person types it: table, JSON, pictures, and sentences where something is missing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.cli import main

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["rehearse", "--nodes", "64", "--days", "5", "--repeat", "2"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def test_the_table_compares_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--failures", "rsc"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("60 of 64 nodes for 5 days; failures: Meta RSC, ")
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert "effective training time" in rows
    assert "hours, lost work" in rows
    assert "restarts, gpu" in rows
    assert out.count("requeue") >= 2
    assert "assumed (--assume NAME=VALUE): people_h 4," in out


def test_json_is_complete_and_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("3", "3", "4"):
        assert main([*SMALL, "--json", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    data = json.loads(texts[0])
    assert {"nodes", "days", "failures", "source", "job", "assumptions", "policies", "notes"} <= set(data)
    assert len(data["policies"][0]["runs"]) == 2


def test_a_trace_is_played_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.csv").write_text("time_h,node,kind,repair_h\n10,3,crash,2\n20,9,network,\n")
    words = ["--failures", "trace.csv", "--nodes", "12", "--days", "2", "--repeat", "1", "--policy", "remuda"]
    assert main(["rehearse", *words, "--run-nodes", "10", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["policies"][0]["restarts"] == {"crash": 1, "network": 1}
    assert data["source"] == "2 interruptions of trace.csv"


@pytest.mark.parametrize(
    ("name", "begin"), [("out.svg", b"<?xml"), ("out.png", b"\x89PNG"), ("out.html", b"<!doctype html>")]
)
def test_a_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, begin: bytes) -> None:
    assert main([*SMALL, "--plot", name]) == 0
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(begin)
    assert capsys.readouterr().err.endswith(f"drawn: {name}\n")
    if name == "out.html":
        assert b"<svg" in drawn
        assert b"sbatch --requeue: lost nodes" in drawn


def test_a_picture_of_another_kind_is_refused_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "--nodes", "100000", "--days", "365", "--plot", "out.pdf"]) == 2
    assert capsys.readouterr().err == (
        "error: --plot: the picture's name must end with .svg, .png, .html, not 'out.pdf'\n"
    )


def test_without_matplotlib_one_sentence_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*SMALL, "--plot", "out.svg"]) == 2
    assert capsys.readouterr().err == (
        "error: --plot: a picture needs matplotlib, which is not installed\n  pip install 'remuda[plot]'\n"
    )


def test_a_wrong_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--set", "checkpont_every=5m"]) == 2
    assert "checkpoint_every" in capsys.readouterr().err


def test_long_work_tells_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cli.setup.rehearse._SAY_EVERY_S", 0.0)
    assert main([*SMALL, "--policy", "requeue"]) == 0
    assert capsys.readouterr().err == "rehearsed 1 of 2\n"
