"""What is handed to the node program, as a document."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.supervise.build import group, workload

from remuda.backends.base import Request, TaskKey, make_token, read_token
from remuda.backends.local.render import LocalSite, render
from remuda.backends.rundir import allocation_dir
from remuda.base.errors import InputError
from remuda.enter import words
from remuda.plan.model import Command, HealthProbe, Listen, Resources, Secret
from remuda.wire.child import ChildSpec

SITE = LocalSite(
    Path("/h/workloads"), Path("/h/node/program.pyz"), "/usr/bin/python3", Path("/h/host.json"), Path("/p")
)
OLD = ("remuda.serving.smg_launcher", "--model", "m")


def rendered(place: dict[str, Any] | None = None, index: int = 0, **changes: Any) -> tuple[ChildSpec, Any]:
    one = group().model_copy(update=changes)
    plan = workload(one).model_copy(update={"place": place or {}})
    key = TaskKey("w", "replica", index)
    made = render(Request(key, 3, make_token(key, 3, "u1"), plan, one), SITE)
    (text,) = made.files.values()
    return ChildSpec.from_json(text), made


def test_the_command_names_the_document() -> None:
    child, made = rendered()
    folder = "/h/workloads/w/replica-0/attempt-3-u1"
    assert (made.argv[0], made.argv[-3:]) == (SITE.python, (str(SITE.node_program), "child", f"{folder}/child.json"))
    assert list(made.files) == [f"{folder}/child.json"]
    assert made.env == {"REMUDA_TOKEN": "w.replica.0.3.u1"}
    assert (child.token, child.run_dir, child.task, child.attempt) == ("w.replica.0.3.u1", folder, "replica/0", 3)
    assert (child.host_file, child.port_locks, child.kill_grace_s) == ("/h/host.json", "/p", 10.0)


@pytest.mark.parametrize(
    ("python", "expected"),
    [(sys.executable, [*words("smg"), "--model", "m"]), ("/venv/bin/python", ["-m", *OLD])],
)
def test_a_plan_of_an_earlier_version_is_started_by_its_word(python: str, expected: list[str]) -> None:
    """By the host's own interpreter: another may have that earlier version, which knows no words."""
    child, _ = rendered(command=Command(argv=(python, "-m", *OLD)))
    assert child.argv == [python, *expected]


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        (None, (0, False, "127.0.0.1")),
        (Listen(), (20000, False, "127.0.0.1")),
        (Listen(port=8000, fixed=True), (8000, True, "127.0.0.1")),
        (Listen(port=9000, public=True), (9000, False, "0.0.0.0")),
    ],
)
def test_ports(listen: Listen | None, expected: tuple[int, bool, str]) -> None:
    child, _ = rendered(listen=listen)
    assert (child.port, child.port_fixed, child.bind_host) == expected


def test_the_commands_own_environment_wins_over_the_users() -> None:
    command = Command(argv=("x",), env={"B": "2", "C": "3"}, cwd="/data")
    child, _ = rendered({"env": {"A": "1", "B": "1"}}, command=command)
    assert (child.env, child.cwd, child.argv) == ({"A": "1", "B": "2", "C": "3"}, "/data", ["x"])


@pytest.mark.parametrize("index", [0, 1])
def test_gpus_that_were_given_are_all_that_is_seen(index: int) -> None:
    place = {"devices": {"replica": [["0", "1"], ["GPU-a", "GPU-b"]]}, "env": {"CUDA_VISIBLE_DEVICES": "7"}}
    child, _ = rendered(place, index, resources=Resources(gpus=2))
    assert child.env["CUDA_VISIBLE_DEVICES"] == ("0,1", "GPU-a,GPU-b")[index]


@pytest.mark.parametrize(
    ("of_user", "of_command", "gpus", "expected"),
    [
        pytest.param({}, {}, 1, "PCI_BUS_ID", id="as nvidia-smi counts"),
        pytest.param({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {}, 1, "FASTEST_FIRST", id="as its user says"),
        pytest.param({}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, 1, "FASTEST_FIRST", id="as its document says"),
        pytest.param({}, {}, 0, None, id="none are given"),
    ],
)
def test_in_which_order_gpus_are_counted(
    of_user: dict[str, str], of_command: dict[str, str], gpus: int, expected: str | None
) -> None:
    place = {"devices": {"replica": [["0"]]}, "env": of_user}
    command = Command(argv=("x",), env=of_command)
    child, _ = rendered(place, command=command, resources=Resources(gpus=gpus))
    assert child.env.get("CUDA_DEVICE_ORDER") == expected


def test_the_order_of_gpus_is_told_in_a_container_too() -> None:
    command = Command(argv=("x",), image="/i/e.sif")
    child, _ = rendered({"devices": {"replica": [["0"]]}}, command=command, resources=Resources(gpus=1))
    assert child.env["APPTAINERENV_CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize("place", [{}, {"devices": {}}, {"devices": {"replica": []}}, {"devices": {"rank": [["0"]]}}])
def test_gpus_that_were_not_given_are_an_error(place: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="w/replica/0 needs 1 GPUs"):
        rendered(place, resources=Resources(gpus=1))


def test_secrets_go_by_reference() -> None:
    refs = {"A": Secret(file="/k/a"), "B": Secret(env="B_KEY")}
    child, made = rendered(command=Command(argv=("x",), secret_env=refs))
    assert child.secret_env == {"A": {"file": "/k/a"}, "B": {"env": "B_KEY"}}
    assert not any("KEY" in name for name in made.env)


def test_probe_and_restart_arrive_whole() -> None:
    child, _ = rendered(probe=HealthProbe(path="/up", interval_s=3.0), metrics_path="/metrics")
    assert child.probe is not None
    assert (child.probe.path, child.probe.interval_s, child.metrics_path) == ("/up", 3.0, "/metrics")
    assert child.restart.policy == "on-failure"
    assert rendered(probe=None)[0].probe is None


def test_nothing_is_interpreted_on_the_way() -> None:
    nasty = "$(touch /tmp/x) `id` \"q\" 'a' \\ \t é\n{}"
    child, made = rendered(command=Command(argv=("x", nasty), env={"N": nasty}))
    assert (child.argv[1], child.env["N"]) == (nasty, nasty)
    assert json.loads(next(iter(made.files.values())))["argv"] == ["x", nasty]
    assert nasty not in made.argv


@pytest.mark.parametrize("name", ["w", "my.swarm.2", "a-b"])
def test_a_token_is_enough_to_find_the_directory(name: str) -> None:
    token = make_token(TaskKey(name, "replica", 12), 34, "u9")
    parts = read_token(token)
    assert (parts.workload, parts.group, parts.index, parts.attempt, parts.uid) == (name, "replica", 12, 34, "u9")
    assert allocation_dir(Path("/w"), token) == Path(f"/w/{name}/replica-12/attempt-34-u9")


@pytest.mark.parametrize("token", ["", "w", "w.replica.x.1.u", "a.b.c"])
def test_other_texts_are_no_tokens(token: str) -> None:
    with pytest.raises(ValueError, match=r"token|invalid literal"):
        read_token(token)
