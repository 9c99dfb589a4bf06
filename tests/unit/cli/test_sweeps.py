"""`remuda apply --sweep --dry-run` as it is typed: which points on how many deployments, and what is known."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bench.test_store import point

from remuda.base.disk.paths import state_paths
from remuda.bench.store import PointStore
from remuda.cli import main

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = """\
kind: deployment
name: grid
model: {path: ./model, name: m}
engine: mocker
roles: {agg: {args: {max-num-seqs: '{seqs}'}}}
benchmark: {type: sa-bench, isl: '{isl}', osl: 8, concurrencies: [1, 4]}
sweep: {seqs: [8, 16], isl: [64, 128], max_running: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "grid.yaml").write_text(RECIPE)
    return tmp_path


def points(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["apply", "grid.yaml", "--sweep", "--dry-run", "--json", *words]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["points"]
    return found


def test_points_that_differ_in_the_client_share_a_deployment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "grid.yaml", "--sweep", "--dry-run"]) == 0
    head, *rows, _, points, missing = capsys.readouterr().out.splitlines()
    assert head.split() == ["PARAMETERS", "LOAD", "DEPLOYMENT", "STATE"]
    assert [row.split()[:3] for row in rows] == [
        [f"seqs={seqs}", f"isl={isl}", f"c={load}"] for seqs in (8, 16) for isl in (64, 128) for load in (1, 4)
    ]
    names = [row.split()[3] for row in rows]
    assert len(set(names[:4])) == len(set(names[4:])) == 1
    assert len(set(names)) == 2
    assert all(name.startswith("grid-") for name in names)
    assert points == "8 points on 2 deployments, at most 2 at once"
    assert missing == "to measure: 8 points on 2 deployments"
    assert not (folder / "home").exists(), "nothing is written"


def test_what_counts_is_known_until_something_of_it_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked, kept = points(capsys), PointStore(state_paths().root / "bench")
    assert len({one["address"] for one in asked}) == 8
    for one, verdict in zip(asked, ("valid", "suspect", "invalid"), strict=False):
        kept.write(replace(point(), id=one["address"], verdict=verdict), [])
    assert [one["state"] for one in points(capsys)] == ["known", "known", *["new"] * 6]
    assert [one["state"] for one in points(capsys, "--set", "sweep.repeats=2")][:3] == ["in part", "in part", "new"]
    for same in (["-n", "other"], ["--set", "frontend.port=9999"], ["--set", "home_directory=/elsewhere"]):
        assert [one["address"] for one in points(capsys, *same)] == [one["address"] for one in asked]
    os.utime(folder / "model/config.json", (1, 1))
    assert {one["state"] for one in points(capsys)} == {"new"}, "another model may lie there"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sweep"], "--sweep shows what would be measured: it takes --dry-run, without --write"),
        (["--sweep", "--dry-run", "--write", "d"], "--sweep shows what would be measured: it takes --dry-run"),
        (
            ["--sweep", "--dry-run", "--set", "benchmark.type=manual"],
            "--set benchmark.type: manual measures no points\n  known: sa-bench, sglang-bench",
        ),
        (
            ["--sweep", "--dry-run", "--set", "sweep.seqs=[]"], "--set sweep.seqs: `sweep.seqs` has no values",
        ),
        (["--dry-run"], "grid.yaml:7:1: unknown key 'sweep'"),
    ],
)  # fmt: skip
def test_what_is_wrong(folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", str(folder / "grid.yaml"), *words]) == 2
    assert sentence in capsys.readouterr().err
