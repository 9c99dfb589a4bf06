"""Prefill and decode as groups of one workload: counted, scaled and restarted by role, behind a real router."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.serving.load import chat
from tests.conftest import Home, until
from tests.ports import free_port

from remuda.base.ids import new_suffix
from remuda.plan.front import RouterSettings, router_group
from remuda.plan.model import (
    HOST_MARK,
    PORT_MARK,
    Command,
    Endpoint,
    Group,
    HealthProbe,
    Kind,
    Listen,
    Replace,
    RestartRule,
    Role,
    Workload,
    named_mark,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.real
ENDPOINT = Endpoint(router="router", model="tiny")


def servers(role: Role, count: int, env: Mapping[str, str]) -> Group:
    argv = (sys.executable, "-m", "tests.fakes.engine", "--host", HOST_MARK, "--port", PORT_MARK, "--model", "tiny")
    return Group(
        name=role.value, role=role, count=count, command=Command(argv=argv, env=dict(env)), listen=Listen(),
        # An engine that stands still for a moment stays what it is.
        probe=HealthProbe(interval_s=1.0, timeout_s=60.0, unhealthy_restart_after_s=600.0),
        restart=RestartRule(policy="never"), replace=Replace(backoff_initial_s=0.1), kill_grace_s=2.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Home:
    """One that prefills and two that decode, up."""
    router = router_group("smg", RouterSettings(ENDPOINT, 2, apart=True, python=sys.executable))
    workload = Workload(
        name="pair", kind=Kind.DEPLOYMENT, uid=new_suffix(8), backend="local", endpoint=ENDPOINT,
        run_dir=str(shared_home.paths.workload("pair")),
        groups=(
            servers(Role.PREFILL, 1, {"BOOTSTRAP": named_mark("bootstrap")}),
            servers(Role.DECODE, 2, {}),
            router.model_copy(update={"listen": Listen(port=free_port())}),
        ),
    )  # fmt: skip
    shared_home.run("host", "start")
    shared_home.client.post("/workloads", {"workload": json.loads(workload.model_dump_json()), "spec": ""})
    until(lambda: is_whole(shared_home, 3), "all are members")
    return shared_home


def is_whole(home: Home, members: int) -> bool:
    view = home.view("pair")
    return view["phase"] == "RUNNING" and len((view["router"] or {"members": []})["members"]) == members


def tasks(home: Home) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in home.view("pair")["tasks"]}


def answers(home: Home) -> bool:
    """Whether a request is answered, of which each does its part."""
    request = urllib.request.Request(home.view("pair")["endpoint"] + "/v1/chat/completions")
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, json.dumps(chat("hello")).encode(), timeout=60) as answer:
            return bool(json.load(answer)["choices"])
    except urllib.error.HTTPError:
        return False


def test_each_role_is_counted_and_both_do_their_part(pair: Home) -> None:
    until(lambda: answers(pair), "a request is answered")
    assert "phase     RUNNING: prefill 1/1, decode 2/2 ready" in pair.run("status", "pair").stdout
    assert "prefill 1/1, decode 2/2" in pair.run("status").stdout
    assert {name: sorted(task["ports"]) for name, task in tasks(pair).items()} == {
        "prefill/0": ["bootstrap"], "decode/0": [], "decode/1": [], "router/0": [],
    }  # fmt: skip


def test_the_output_of_a_role_names_its_tasks(pair: Home) -> None:
    lines = pair.run("logs", "pair", "--role", "decode").stdout.splitlines()
    assert {line.partition(": ")[0] for line in lines} == {"decode/0", "decode/1"}
    told = [
        json.loads(line) for line in pair.run("logs", "pair", "--role", "decode", "-n1", "--json").stdout.splitlines()
    ]
    assert [one["task"] for one in told] == ["decode/0", "decode/1"]
    wrong = pair.run("logs", "pair", "--role", "encode", check=False)
    assert (wrong.returncode, wrong.stderr.splitlines()[1]) == (3, "  roles that ran: decode, prefill, router")


def test_one_role_is_scaled_and_restarted_and_the_other_left_alone(pair: Home) -> None:
    before = tasks(pair)
    assert pair.run("scale", "pair", "3", check=False).returncode == 2
    assert "scaling pair: prefill 1/1, decode 2/3" in pair.run("scale", "pair", "decode=3").stderr
    until(lambda: is_whole(pair, 4), "a third that decodes")
    follows = pair.start("logs", "pair", "--role", "prefill", "-f")
    assert follows.stdout is not None
    assert follows.stdout.readline().startswith("prefill/0: ")

    assert "prefill of pair is being restarted" in pair.run("restart", "pair", "prefill").stderr
    until(lambda: tasks(pair)["prefill/0"]["attempt"] == 2 and is_whole(pair, 4), "another prefill")
    until(lambda: answers(pair), "a request is answered")
    now = tasks(pair)
    assert {name: task["attempt"] for name, task in now.items() if name != "prefill/0"} == {
        "decode/0": 1, "decode/1": 1, "decode/2": 1, "router/0": 1,
    }  # fmt: skip
    assert all(now[name]["pid"] == before[name]["pid"] for name in ("decode/0", "decode/1", "router/0"))
    out, _ = follows.communicate(timeout=180)
    assert all(line.startswith("prefill/0: ") for line in out.splitlines())
    assert follows.returncode == 0, "it ends with the attempt"
    nowhere = pair.run("restart", "pair", "encode", check=False)
    assert (nowhere.returncode, nowhere.stderr.splitlines()[0]) == (3, "error: nothing is called 'encode'")
