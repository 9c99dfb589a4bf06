"""What a person sees all day fits the terminal: `tests/cases/frames/NAME-WIDTH.txt` is what is drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.cli import show
from remuda.cli.look import nodes, status
from remuda.cli.runs import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = Path(__file__).parents[2] / "cases" / "frames"
NOW = 1_800_000_000.0
OUT = (
    "given up after 3 quick failures, exit code 3: FileNotFoundError: [Errno 2] No such file or directory: "
    "'/data/shards/shard-17.parquet' (remuda logs crashy --stderr)"
)


def run(name: str, phase: str, reason: str = "", **more: Any) -> dict[str, Any]:
    told = {"job_id": "", "node": "", "pool": "", "restarts": 0, "heartbeat_at": 0.0, "progress": {}, **more}
    return {"name": name, "phase": phase, "paused": False, "created_at": NOW - 3720, "reason": reason, "run": told}


RUNS = [
    run("crashy", "FAILED", OUT, restarts=3),
    run("train-llama-70b-long-context", "RUNNING", job_id="4711", node="a100-2", pool="gpu-a100", restarts=2,
        heartbeat_at=NOW - 4, progress={"step": 41200, "total": 100000, "loss": 2.51}),
    run("waits", "PENDING", "priority; Slurm says about 09:40", job_id="4712_3", pool="spot"),
]  # fmt: skip


def workload(name: str, kind: str, phase: str, ready: int, endpoint: str = "", reason: str = "") -> dict[str, Any]:
    return {"name": name, "kind": kind, "phase": phase, "ready": ready, "wanted": 4, "backend": "slurm",
            "endpoint": endpoint, "created_at": NOW - 11400, "reason": reason}  # fmt: skip


WORKLOADS = [
    workload("chat", "swarm", "RUNNING", 4, "http://127.0.0.1:9000"),
    workload("deepseek-r1", "deployment", "DEGRADED", 3, "http://127.0.0.1:9001",
             "prefill/1: node a100-2 lost (Xid 79), next attempt in 40 s, elsewhere"),
    workload("crashy", "run", "FAILED", 0, "", OUT),
]  # fmt: skip


NODES = [
    {"name": "a100-1", "state": "mixed", "gpus": 4, "gpus_free": 1, "gpu_type": "a100-80gb", "cpus": 64,
     "cpus_free": 12, "weight": 0.0, "pools": ["gpu-a100", "spot"], "ban": None, "is_avoided": False, "reason": ""},
    {"name": "a100-2", "state": "drained", "gpus": 4, "gpus_free": 0, "gpu_type": "a100-80gb", "cpus": 64,
     "cpus_free": 64, "weight": 2.5, "pools": ["gpu-a100", "spot"], "is_avoided": True, "reason": "Xid 79, RMA 4711",
     "ban": {"by": "anna@login1", "until": NOW + 7200, "reason": "GPU 3 has fallen off the bus"}},
    {"name": "cpu-1", "state": "idle", "gpus": 0, "gpus_free": 0, "gpu_type": "", "cpus": 128, "cpus_free": 128,
     "weight": 0.0, "pools": ["cpu"], "ban": None, "is_avoided": True, "reason": ""},
]  # fmt: skip
EXPLAINED = [
    "crashy is FAILED",
    f"  because {OUT}",
    "script/0: failed for 3m on a100-2, attempt 3",
    "what ended last (times in CET):",
    "  11-26 08:44:52  script/0 attempt 3: exit code 3 (cause: application)",
    "      | FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/shard-17.parquet'",
    "what to do next:",
    "  read what it wrote last: remuda logs crashy -n 50",
]


def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, width: int) -> str:
    """What is printed for a terminal of that width; 0: for a pipe."""
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(show, "is_terminal", lambda: bool(width))
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    if what == "list":
        runs.show_runs(RUNS)
    elif what == "nodes":
        nodes.draw_nodes(NODES)
    elif what == "explain":
        show.prose(EXPLAINED)
    else:
        status.show_list(WORKLOADS)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [0, 80, 100, 160])
@pytest.mark.parametrize("what", ["list", "status", "nodes", "explain"])
def test_a_frame(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, width: int) -> None:
    seen = drawn(monkeypatch, capsys, what, width)
    assert seen == (CASES / f"{what}-{width or 'piped'}.txt").read_text()
    assert not width or max(map(len, seen.splitlines())) <= width
    assert what == "nodes" or OUT in " ".join(line.strip() for line in seen.splitlines()), "a reason is whole"


def test_states_are_coloured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    show.prose(["crashy is FAILED", "  it has FAILED"])
    assert capsys.readouterr().out == "crashy is \x1b[31mFAILED\x1b[0m\n  it has FAILED\n"


@pytest.mark.parametrize(
    ("rows", "rarely", "width", "head"),
    [
        ([["a", "-", "x"]], ["b"], 0, "A  C"),
        ([["a", "1", "x"]], ["b"], 0, "A  B  C"),
        ([["a", "-", "x"]], [], 0, "A  B  C"),
        ([["a" * 30, "b" * 30, "x"]], ["b"], 40, f"{'A':<32}C"),
    ],
)
def test_columns_that_may_go(rows: Sequence[Sequence[str]], rarely: Sequence[str], width: int, head: str) -> None:
    assert "".join(show.tabled(["a", "b", "c"], rows, width, rarely)[0][0]) == head


def test_prose_goes_on_below_itself() -> None:
    _, block = show.tabled(["a", "why"], [["x", "one two three four five six"]], 24)
    assert ["".join(line) for line in block] == ["x  one two three four", "   five six"]


def test_an_array_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    phases = ["done"] * 12 + ["ready"] * 4 + ["waiting"] * 34
    tasks = [
        {"task": f"script/{index}", "phase": phase, "node": f"a100-{index % 4 + 1}" if phase == "ready" else "",
         "last_seen": NOW - index if phase == "ready" else 0.0, "attempt": 2 if index == 3 else int(phase != "waiting")}
        for index, phase in enumerate(phases, 1)
    ]  # fmt: skip
    array = {**run("sweep", "RUNNING"), "run": None, "tasks": tasks, "labels": {"array": "1-50%4"}}
    monkeypatch.setattr("time.time", lambda: NOW)
    runs.show_runs([array])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "STATE", "WHERE", "RESTARTS", "HEARTBEAT", "PROGRESS", "AGE"],
        ["sweep", "RUNNING", "a100-[1-4]", "1", "16s", "12/50", "done", "1h", "2m"],
    ]
