"""`remuda gang` on a stand-in of a Kubernetes cluster: ranks that are Jobs, and two gangs that want the same GPUs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.kubernetes.test_runs import OnJobs
from tests.conftest import until

from remuda import Executor
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home

MEETING = "s3://bucket/x"
HERE = ("--backend", "kubernetes", "--image", "reg/t:1", "--rendezvous", MEETING)
QUICK: dict[str, Any] = {
    "backoff_base": 0.1, "backoff_max": 0.2, "quick_failure": 0, "kill_grace": 5, "gpu_check": False
}  # fmt: skip
FLAGS = [word for name, value in QUICK.items() for word in ("-s", f"{name}={json.dumps(value)}")]
TELLS = 'echo "$REPLICA_RANK/$REPLICA_COUNT $RANK/$WORLD_SIZE $RUN_ID $REMUDA_RENDEZVOUS $REMUDA_QUORUM"'
FAILS_ONCE = '#!/bin/sh\n[ "$RANK.$REMUDA_ATTEMPT" = 1.1 ] && exit 3\nuntil [ -e "$1" ]; do sleep 0.05; done\n'
#: Ends when all three were there at one time; what is asked to end was not.
MEETS = """\
#!/bin/sh
here="$1/$RUN_ID"
trap 'rm "$here.$RANK"; exit 0' TERM
touch "$here.$RANK"
until [ -e "$here.0" ] && [ -e "$here.1" ] && [ -e "$here.2" ]; do sleep 0.05; done
"""


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


def tasks(jobs: OnJobs, what: str, name: str = "train") -> list[Any]:
    return [task[what] for task in jobs.home.view(name)["tasks"]]


def test_a_gang_from_start_to_end(jobs: OnJobs) -> None:
    words = ("gang", "run", "-n", "3", "--gpus", "1", *HERE, *FLAGS, "--name", "train", "-s", "quorum=2")
    shown = jobs.home.run(*words, "--dry-run", "--", "sh", "-c", TELLS).stdout
    assert "# train.rank.0.1" in shown
    assert "and 2 tasks like it" in shown
    assert jobs.items("jobs") == []
    done = jobs.home.run(*words, "--wait", "--", "sh", "-c", TELLS)
    assert "train is accepted on kubernetes: 3 ranks, each with 1 GPU" in done.stderr.splitlines()
    for rank in range(3):
        said = jobs.home.run("logs", "train", "--rank", str(rank)).stdout
        assert said == f"{rank}/3 {rank}/3 train {MEETING} 2\n"
    names = {job["metadata"]["name"] for job in jobs.items("jobs")}
    assert (len(names), names) == (3, {*tasks(jobs, "native")})
    assert tasks(jobs, "attempt") == [1, 1, 1]
    assert len({pod["spec"]["nodeName"] for pod in jobs.items("pods")}) == 3


def test_a_rank_that_fails_returns_alone(jobs: OnJobs) -> None:
    go = jobs.home.root / "go"
    (jobs.home.root / "train.sh").write_text(FAILS_ONCE)
    (jobs.home.root / "gang.yaml").write_text(json.dumps({
        "kind": "gang", "ranks": 3, "script": "train.sh", "args": [str(go)], "rendezvous": MEETING, **QUICK,
        "backend": {"type": "kubernetes", "image": "reg/t:1"},
    }))  # fmt: skip
    jobs.home.run("gang", "up", "gang.yaml")
    until(lambda: tasks(jobs, "attempt") == [1, 2, 1] and jobs.home.view("train")["ready"] == 3, "all are there again")
    go.touch()
    jobs.until_phase("DONE")
    assert tasks(jobs, "attempt") == [1, 2, 1]
    assert re.search(r"rank/1 .* exit code 3", jobs.home.run("events", "train").stdout)
    assert len(jobs.items("jobs")) == 4


def test_two_that_hold_half_of_what_both_need_are_both_done(jobs: OnJobs) -> None:
    def open_nodes(*nodes: int, to: str) -> None:
        for node in nodes:
            key = ("nodes", "", f"node-{node}")
            jobs.bed.objects.edit(key, lambda doc: doc["metadata"]["labels"].update({to: "yes"}))

    open_nodes(1, 2, to="one")
    open_nodes(3, 4, to="two")
    (jobs.home.root / "meets.sh").write_text(MEETS)
    for name in ("one", "two"):
        (jobs.home.root / f"{name}.yaml").write_text(json.dumps({
            "kind": "gang", "name": name, "ranks": 3, "script": "meets.sh", "args": [str(jobs.home.root)], **QUICK,
            "rendezvous": MEETING, "resources": {"gpus": 1}, "assemble": 3, "backend": "kubernetes",
            "image": "reg/t:1", "node_selector": {name: "yes"},
        }))  # fmt: skip
        jobs.home.run("gang", "up", f"{name}.yaml")
    until(lambda: [jobs.home.view(name)["ready"] for name in ("one", "two")] == [2, 2], "each has two of three")
    open_nodes(1, 2, 3, 4, to="one")
    open_nodes(1, 2, 3, 4, to="two")
    until(lambda: all(jobs.home.view(name)["phase"] == "DONE" for name in ("one", "two")), "both are done")
    assert max(tasks(jobs, "attempt", "one") + tasks(jobs, "attempt", "two")) > 1
    assert {*tasks(jobs, "failures", "one"), *tasks(jobs, "failures", "two")} == {0}
    told = "".join(jobs.home.run("events", name, "-n", "999").stdout for name in ("one", "two"))
    assert re.search(r"all ranks are put back: \d of 3 in the queue for 3.0s \(`assemble`\), and 3 are needed", told)


def test_an_executor(jobs: OnJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    script = jobs.home.root / "fit.py"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, os\n"
        "print(json.dumps({'rank': int(os.environ['RANK']), **json.loads(os.environ['REMUDA_ARGS'])}))\n"
    )
    monkeypatch.chdir(jobs.home.root)
    for name, value in {**jobs.home.env, "REMUDA_HOME": str(jobs.home.paths.root)}.items():
        monkeypatch.setenv(name, value)
    jobs.home.run("host", "start")
    executor = Executor.of("kubernetes", image="reg/t:1", rendezvous=MEETING, **QUICK)
    found = executor.collect(executor.launch_replicas(2, str(script), {"lr": 0.5}), timeout=120)
    assert [(one["status"], one["exit_code"], one["result"]) for one in found] == [
        ("succeeded", 0, {"rank": rank, "lr": 0.5}) for rank in range(2)
    ]  # fmt: skip
