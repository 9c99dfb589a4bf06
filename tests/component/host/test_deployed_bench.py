"""Deployments that end with their benchmark: real processes, and a stand-in for Dynamo (`tests/standins/dynamo`)."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.bench.test_command import serving
from tests.conftest import Home, until

if TYPE_CHECKING:
    import subprocess

STANDINS = Path(__file__).parents[2] / "standins"


@pytest.fixture(scope="module")
def place(shared_home: Home) -> Home:
    (shared_home.root / "model").mkdir()
    (shared_home.root / "model/config.json").write_text("{}")
    return shared_home


def recipe(home: Home, benchmark: dict[str, Any], **more: Any) -> list[str]:
    """The words that bring up one worker that prefills and two that decode, and measure them."""
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    document = {
        "kind": "deployment", "name": "apart", "model": {"path": str(home.root / "model"), "name": "tiny"},
        "python": sys.executable, "engine": "mocker", "env": {"PYTHONPATH": path},
        "roles": {"prefill": {}, "decode": {"workers": 2}}, "benchmark": benchmark, **more,
    }  # fmt: skip
    (home.root / "apart.yaml").write_text(json.dumps(document))
    return ["apply", "apart.yaml"]


def check_gone(home: Home) -> None:
    until(lambda: not home.tokens(), "nothing of it is left")
    assert [
        task["task"] for task in home.view("apart")["tasks"] if task["phase"] not in ("stopped", "done", "failed")
    ] == []


def test_its_points_and_its_verdict_are_the_end_of_it(place: Home) -> None:
    load = {"type": "sa-bench", "isl": 40, "osl": 8, "concurrencies": [1, 2], "num_prompts_mult": 12}
    done = place.run(*recipe(place, load), check=False)
    assert done.returncode in (10, 11), f"{done.stdout}\n{done.stderr}\n{place.log()}"
    view = place.view("apart")
    folder = Path(view["run_dir"], "bench")
    verdict = json.loads((folder / "verdict.json").read_text())
    points = [json.loads((folder / name / "point.json").read_text()) for name in verdict["points"]]

    assert [point["load"]["concurrency"] for point in points] == [1, 2], done.stderr
    assert [point["load"]["requests"] for point in points] == [12, 24]
    assert [point["meta"]["deployment"] for point in points] == ["apart", "apart"]
    assert all(point["metrics"]["failed"] == 0 and point["metrics"]["output_tokens"] for point in points)
    # So few requests are at best suspect; on a machine that is busy they are invalid.
    code = 10 if "invalid" in [point["verdict"] for point in points] else 11
    assert (verdict["exit_code"], done.returncode, place.task("apart", "bench/0")["exit_code"]) == (code, code, code)
    assert view["phase"] == "FAILED"
    assert verdict["verdict"] in view["reason"]
    check_gone(place)
    foreseen = json.loads(place.run("apply", "apart.yaml", "--sweep", "--dry-run", "--json").stdout)["points"]
    assert [one["address"] for one in foreseen] == [point["id"] for point in points]

    results = [json.loads((folder / name / "vllm.json").read_text()) for name in verdict["points"]]
    assert [result["max_concurrency"] for result in results] == [1, 2]
    assert all((folder / name / "requests.parquet").stat().st_size for name in verdict["points"])
    kept = json.loads(place.run("bench", "list", "--json").stdout)
    assert [point["name"] for point in kept] == verdict["points"]
    for name, number in zip(verdict["points"], (1, 2), strict=True):
        assert re.search(rf"^{name} +c={number} ", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert f"apart has ended with its benchmark (code {code}): {verdict['verdict']}; results: {folder}" in done.stderr
    assert re.search(r"c=1: (suspect|invalid)\n {2}V", done.stderr), "each point is told when it is measured"


def test_a_command_knows_the_endpoint_and_goes_on_without_the_terminal(place: Home) -> None:
    script = 'env > "$SRT_LOG_DIR/seen"; echo asked $SRT_ENDPOINT; until [ -e "$GO" ]; do sleep 0.1; done'
    command = {"type": "custom", "command": ["/bin/sh", "-c", script]}
    go = place.root / "go"
    (place.root / "key").write_text("k-90ab3f")
    key = {"file": str(place.root / "key")}
    words = recipe(place, {**command, "env": {"GO": str(go), "SRT_JOB_NAME": "mine"}}, api_key=key)
    watching = place.start(*words)
    seen = Path(place.paths.workload("apart"), "bench/seen")
    try:
        until(lambda: said(watching).startswith("asked http://127.0.0.1:"), "its output is shown")
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=180)
    finally:
        watching.kill()
    assert watching.returncode == 130
    assert "apart keeps running without this terminal\n  its benchmark: remuda logs apart --task bench/0 -f" in err
    assert place.view("apart")["phase"] == "RUNNING"
    endpoint = place.view("apart")["endpoint"]
    found = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert {name: value for name, value in found.items() if name.startswith("SRT_")} == {
        "SRT_FRONTEND_HOST": "127.0.0.1", "SRT_FRONTEND_PORT": endpoint.rpartition(":")[2], "SRT_ENDPOINT": endpoint,
        "SRT_MODEL_NAME": "tiny", "SRT_JOB_NAME": "mine", "SRT_LOG_DIR": str(seen.parent),
    }  # fmt: skip
    assert found["OPENAI_API_KEY"] == "k-90ab3f"
    go.touch()
    until(lambda: place.view("apart")["phase"] == "DONE", "it has ended with its command")
    assert place.task("apart", "bench/0")["exit_code"] == 0
    check_gone(place)
    wrong = place.run(*recipe(place, {"type": "custom", "command": ["no-such-program"]}), check=False)
    assert (wrong.returncode, place.view("apart")["phase"]) == (2, "FAILED")
    assert "benchmark.command: 'no-such-program' cannot be started: No such file or directory" in wrong.stdout


def test_answers_are_scored_once_and_end_it(place: Home) -> None:
    questions = {"type": "lm-eval", "tasks": ["sums"], "limit": 8}
    done = place.run(*recipe(place, questions), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{place.log()}"
    view = place.view("apart")
    folder = Path(view["run_dir"], "bench")
    (name,) = json.loads((folder / "verdict.json").read_text())["points"]
    point = json.loads((folder / name / "point.json").read_text())
    assert (view["phase"], point["verdict"], point["accuracy"]["asked"]) == ("DONE", "valid", 8)
    assert (point["config"], point["meta"]["deployment"]) == (view["labels"]["config"], "apart")
    assert len((folder / name / "answers.jsonl").read_text().splitlines()) == 8
    assert re.search(rf"^{name} +sums +8 .* 0\.000 ± 0\.000 +valid$", done.stdout, re.MULTILINE), done.stdout
    check_gone(place)
    again = place.run(*recipe(place, questions), check=False)
    assert (again.returncode, json.loads(place.run("bench", "list", "--json").stdout)[-1]["name"]) == (0, name)
    check_gone(place)


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ({"type": "lm-eval", "tasks": ["sumss"]}, "error: tasks: there is no task 'sumss'\n  did you mean 'sums'"),
        ({"type": "gpqa"}, "the questions of gpqa are gated, and no token is named"),
        ({"type": "gsm8k", "tasks_dir": "nowhere"}, "there is no folder"),
        (
            {"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1], "validity": {"V6.lgg": 1}},
            "there is no threshold 'V6.lgg'\n  did you mean V6.lag?",
        ),
    ],
)
def test_a_benchmark_that_cannot_be_made_brings_nothing_up(place: Home, benchmark: dict[str, Any], said: str) -> None:
    before = place.view("apart")["uid"] if (place.paths.workload("apart")).exists() else ""
    done = place.run(*recipe(place, benchmark), check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert not before or place.view("apart")["uid"] == before


def test_on_a_cluster_it_measures_what_the_endpoints_file_names(place: Home) -> None:
    folder = place.root / "elsewhere"
    folder.mkdir()
    load = {"kind": "benchmark", "model": "tiny", "isl": 40, "osl": 8, "concurrency": [2]}
    told = {"name": "apart", "backend": "slurm", "run_dir": str(folder), "load": load, "requests_each": 6,
            "warmup_each": 1}  # fmt: skip
    (folder / "deployed.json").write_text(json.dumps(told))
    with serving() as url:
        (folder / "endpoint.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "router": url}))
        done = place.run("job", "drive", str(folder), check=False)
    verdict = json.loads((folder / "bench/verdict.json").read_text())
    (name,) = verdict["points"]
    assert done.returncode == verdict["exit_code"]
    assert done.returncode in (10, 11)
    point = json.loads((folder / "bench" / name / "point.json").read_text())
    assert (point["endpoint"], point["load"]["requests"], point["load"]["warmup"]) == (url, 12, 2)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "\n".join(process.communicate())
    return line
