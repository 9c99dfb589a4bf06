"""`remuda apply --sweep` as it is typed: which points on how many deployments, what is known, what the host is told."""

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
from remuda.plan.deployment.bench import TOGETHER, TOLD

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


def begun(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `apply --sweep`, and what it hands to the host."""
    sent: list[dict[str, Any]] = []

    def post(_host: object, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        assert path == "/campaigns"
        return {"name": body["name"], "bound": body["bound"], "rows": []}

    monkeypatch.setattr("remuda.cli.serve.sweeps.connect", lambda: None)
    monkeypatch.setattr("remuda.client.reconnect.post", post)
    code = main(["apply", "grid.yaml", "--sweep", "--no-wait", *words])
    return code, sent[0] if sent else {}


def measured_by(row: dict[str, Any]) -> list[tuple[int, list[int], int]]:
    """Input length, requests in flight and repeats of what the driver of a deployment is told."""
    (bench,) = (group for group in row["workload"]["groups"] if group["name"] == "bench")
    told = json.loads(bench["command"]["files"][TOLD])
    assert {one["name"] for one in told[TOGETHER]} == {one["load"]["name"] for one in told[TOGETHER]} == {told["name"]}
    loads = [one["load"] for one in told[TOGETHER]]
    return [(one["isl"], one["concurrency"], one["repeats"]) for one in loads]


@pytest.mark.usefixtures("folder")
def test_the_host_is_told_a_deployment_for_each_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = points(capsys)
    code, body = begun(monkeypatch, "--set", "sweep.repeats=2")
    assert (code, body["name"], body["kind"], body["bound"], body["again"]) == (0, "grid", "sweep", 2, True)
    assert [row["workload"]["name"] for row in body["rows"]] == list(dict.fromkeys(one["deployment"] for one in asked))
    assert [measured_by(row) for row in body["rows"]] == [[(64, [1, 4], 2), (128, [1, 4], 2)]] * 2
    assert [(row["outcome"], row["reason"]) for row in body["rows"]] == [("", "")] * 2
    assert all(row["workload"]["digest"] == row["workload"]["uid"] for row in body["rows"])
    err = capsys.readouterr().err
    assert "to measure: 8 points on 2 deployments, at most 2 at once; follow it: remuda sweep wait grid" in err


@pytest.mark.usefixtures("folder")
def test_known_deployments_are_done_and_without_a_new_point_no_host_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = PointStore(state_paths().root / "bench")
    for one in points(capsys):
        kept.write(replace(point(), id=one["address"], verdict="suspect"), [])
    code, body = begun(monkeypatch)
    shown = capsys.readouterr()
    assert (code, body) == (0, {})
    assert "nothing to measure: all points are known" in shown.err
    assert {row.split()[-1] for row in shown.out.splitlines()[1:]} == {"known"}
    _, first = begun(monkeypatch, "--set", "sweep.seqs=[8, 16, 32]")
    assert [row["outcome"] for row in first["rows"]] == ["done", "done", ""]
    _, more = begun(monkeypatch, "--set", "benchmark.concurrencies=[1, 4, 8]")
    assert [row["outcome"] for row in more["rows"]] == ["", ""]
    assert {row["address"] for row in more["rows"]}.isdisjoint(row["address"] for row in first["rows"])


def test_one_that_would_fail_is_told_to_the_host_with_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "grid.yaml").write_text(
        RECIPE.replace("./model", "'./{model}'").replace("{seqs:", "{model: [model, no], seqs:")
    )
    _, body = begun(monkeypatch, "--set", "sweep.seqs=8", "--set", "sweep.isl=64")
    first, second = body["rows"]
    assert first["outcome"] == ""
    assert (second["outcome"], second["reason"]) == ("failed", "grid.yaml:3:9: there is no folder of a model './no'")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sweep", "--dry-run", "--write", "d"], "--sweep is several deployments: it goes without --write"),
        (["--sweep", "--set", "benchmark.type=manual"], "--set benchmark.type: manual measures no points"),
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
