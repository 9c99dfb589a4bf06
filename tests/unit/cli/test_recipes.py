"""`remuda resolve` as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from remuda.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

RECIPE = """\
base:
  name: tiny
  model: {path: r1, container: /c.sqsh, precision: fp8}
  resources: {gpu_type: h100, gpus_per_node: 8, prefill_nodes: 2, decode_nodes: 2, prefill_workers: 2,
              decode_workers: 2}
  reporting: {status: {endpoint: x}}
override_wide: {resources: {decode_workers: 4}}
override_tp2: {backend: {sglang_config: {decode: {tp: 2}}}}
"""


def test_a_recipe_with_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "srtslurm.yaml").write_text("default_account: a\nmodel_paths: {r1: /models/r1}\n")
    assert main(["resolve", "r.yaml:*wide", "--set", "resources.prefill_workers=1"]) == 0
    said = capsys.readouterr()
    rows = {line.split()[0]: line.split()[1:] for line in said.out.splitlines()}
    assert rows["roles.decode.workers"] == ["4", "r.yaml:7"]
    assert rows["roles.prefill.workers"] == ["1", "--set", "resources.prefill_workers"]
    assert rows["model.path"][0] == "/models/r1"
    assert rows["backend.account"][0] == "a"
    assert said.err == (
        f"note: cluster file {tmp_path}/srtslurm.yaml\n"
        "note: r.yaml:6: `reporting` is not used: status, events and results are always kept\n"
    )


def test_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(["resolve", "r.yaml", "--backend", "local", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["selector"] for one in data] == ["override_wide", "override_tp2"]
    assert {"key": "backend.type", "value": "local", "origin": "built-in"} in data[0]["values"]


def test_a_cluster_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(["resolve", str(tmp_path / "r.yaml"), "--cluster", "nowhere.yaml"]) == 2
    assert "there is no cluster file 'nowhere.yaml', which --cluster names" in capsys.readouterr().err
