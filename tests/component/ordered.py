"""A workload of four groups that wait for each other, and its life: the same on every backend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.conftest import until

from remuda.base.ids import new_suffix
from remuda.plan.model import INDEX_MARK, Command, Group, Kind, Replace, RestartRule, Role, Workload

if TYPE_CHECKING:
    from tests.conftest import Home

NAMES = ["service", "worker", "worker", "front", "generator"]
#: Says when it begins and when it is told to end, and ends by itself once it finds a file of its name.
PROGRAM = """
echo {name} >> began
trap 'echo {name} >> ended; exit 0' TERM
while ! rm {name}-$INDEX 2>/dev/null; do sleep 0.05; done
{end}
"""


def ordered(home: Home, backend: str, place: dict[str, object]) -> Workload:
    """A service, two workers after it, a front after both, and a generator that all of it ends with."""

    def group(name: str, *after: str, count: int = 1, policy: Any = "always") -> Group:
        text = PROGRAM.format(name=name, end="kill -9 $$" if name == "worker" else "exit 3")
        command = Command(argv=("/bin/sh", "-c", text), cwd=str(home.root), env={"INDEX": INDEX_MARK})
        return Group(
            name=name, role=Role.SCRIPT, count=count, command=command, after=after, kill_grace_s=60.0,
            restart=RestartRule(policy="never"), replace=Replace(policy=policy, backoff_initial_s=0.1),
        )  # fmt: skip

    groups = (
        group("generator", "front", policy="never"), group("front", "worker", "service"),
        group("worker", "service", count=2), group("service"),
    )  # fmt: skip
    return Workload(
        name="pd", kind=Kind.DEPLOYMENT, uid=new_suffix(8), backend=backend, groups=groups, ends_with="generator",
        run_dir=str(home.paths.workload("pd")), place=place,
    )  # fmt: skip


def post(home: Home, workload: Workload) -> None:
    home.client.post("/workloads", {"workload": json.loads(workload.model_dump_json()), "spec": ""})


def tasks(home: Home) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in home.view("pd")["tasks"]}


def lines(home: Home, name: str) -> list[str]:
    path = home.root / name
    return path.read_text().split() if path.exists() else []


def check_order(home: Home) -> None:
    """Nothing was submitted before all that it comes after was ready."""
    moves = [(line["task"], line["phase"]) for line in home.client.get("/workloads/pd/events")]
    for task, befores in {"worker/0": ["service/0"], "worker/1": ["service/0"], "generator/0": ["front/0"],
                          "front/0": ["worker/0", "worker/1", "service/0"]}.items():  # fmt: skip
        assert all(moves.index((before, "ready")) < moves.index((task, "submitting")) for before in befores), moves


def life(home: Home, backend: str, place: dict[str, object]) -> None:
    """Begun in order, a worker and the host killed, and ended by its generator."""
    home.run("host", "start")
    post(home, ordered(home, backend, place))
    until(lambda: home.view("pd")["phase"] == "RUNNING", "all of it runs")
    until(lambda: len(lines(home, "began")) == len(NAMES), "all of them say so")
    assert sorted(lines(home, "began")) == sorted(NAMES)
    check_order(home)
    (home.root / "worker-1").touch()
    until(lambda: sorted(lines(home, "began")) == sorted([*NAMES, "worker"]), "the worker is replaced")
    until(lambda: home.view("pd")["phase"] == "RUNNING", "all of it runs again")
    before = {name: (task["attempt"], task["pid"]) for name, task in tasks(home).items()}
    assert {name: attempt for name, (attempt, _) in before.items() if attempt > 1} == {"worker/1": 2}
    home.kill_host()
    home.run("host", "start")
    assert {name: (task["attempt"], task["pid"]) for name, task in tasks(home).items()} == before
    (home.root / "generator-0").touch()
    until(lambda: home.view("pd")["phase"] == "FAILED", "it ends with its generator")
    assert tasks(home)["generator/0"]["exit_code"] == 3
    assert lines(home, "ended") == ["front", "worker", "worker", "service"]
    until(lambda: not home.tokens(), "nothing is left")
    story = home.run("events", "pd").stdout
    assert story.count("ended by `ends_with`: generator/0 has ended with code 3; ended") == 4
    assert "waiting for these groups to be ready (`after`): worker, service" in story
    assert "pd is FAILED\n  because generator/0: " in home.run("explain", "pd").stdout
