"""What is chosen when a workload is accepted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.supervise.build import group, workload

from remuda.backends.base import TaskKey
from remuda.base.errors import Conflict, InputError
from remuda.enter import words
from remuda.look.allocate import (
    check_count,
    check_replaceable,
    devices_by_task,
    differences,
    is_same,
    taken_gpus,
    with_devices,
    with_port,
)
from remuda.look.ports import Reserved
from remuda.plan.model import Command, Endpoint, Group, Kind, Listen, Resources, Role, Secret, Workload
from remuda.plan.relay import relay_group
from remuda.specs.kinds import KINDS
from remuda.supervise.model import Phase, Task, Want


def gpu_group(name: str = "replica", count: int = 2, gpus: int = 1) -> Group:
    return group(name, count).model_copy(update={"resources": Resources(gpus=gpus)})


def on(gpus: list[str], *groups: Group, **place: Any) -> Workload:
    return workload(*groups).model_copy(update={"place": {"gpus": gpus, **place}})


def test_every_task_gets_gpus() -> None:
    settled = with_devices(on(["0", "1", "2"], gpu_group(), group("router", 1)), {"1": "other"})
    assert settled.place["devices"] == {"replica": [["0"], ["2"]]}
    assert devices_by_task(settled) == {
        TaskKey("w", "replica", 0): ["0"],
        TaskKey("w", "replica", 1): ["2"],
    }


def test_without_need_nothing_is_chosen() -> None:
    plain = workload(group())
    assert with_devices(plain, {}) is plain
    assert devices_by_task(plain) == {}


def test_what_a_task_has_it_keeps() -> None:
    first = with_devices(on(["0", "1", "2", "3"], gpu_group()), {})
    more = with_devices(first, {}, {"replica": 3})
    assert more.place["devices"] == {"replica": [["0"], ["1"], ["2"]]}
    less = with_devices(more, {}, {"replica": 1})
    assert less.place["devices"] == more.place["devices"], "the surplus may still run"
    again = with_devices(less, {"3": "other"}, {"replica": 3})
    assert again.place["devices"] == more.place["devices"]


def test_what_others_took_meanwhile_is_not_taken_from_them() -> None:
    first = with_devices(on(["0", "1", "2"], gpu_group(count=1)), {})
    with pytest.raises(Conflict, match="2 GPUs are needed and 1 of this machine's 3 are free"):
        with_devices(first, {"1": "other"}, {"replica": 3})


def swarm(port: int = 0, router: str = "router", **listen: Any) -> Workload:
    front = group(router or "replica", 1, role=Role.ROUTER if router else Role.REPLICA)
    front = front.model_copy(update={"listen": Listen(port=port, **listen)})
    groups = (group(), front) if router else (front,)
    return workload(*groups, endpoint=Endpoint(router=router))


@pytest.mark.parametrize("router", ["router", ""])
def test_the_port_is_fixed_at_the_front(router: str, tmp_path: Path) -> None:
    settled = with_port(swarm(21500, router), [], Reserved(tmp_path, tmp_path))
    assert settled.endpoint is not None
    port = settled.endpoint.port
    assert port >= 21500
    assert settled.group(router or "replica").listen == Listen(port=port, fixed=True)
    if router:
        assert settled.group("replica").listen == Listen(port=8000)


def test_two_swarms_have_two_ports(tmp_path: Path) -> None:
    first = with_port(swarm(21600), [], Reserved(tmp_path, tmp_path))
    second = with_port(swarm(21600), [Want(first, running=True)], Reserved(tmp_path, tmp_path))
    assert first.endpoint is not None
    assert second.endpoint is not None
    assert second.endpoint.port != first.endpoint.port
    with pytest.raises(Conflict, match="belongs to 'w'"):
        with_port(swarm(first.endpoint.port, fixed=True), [Want(first, running=True)], Reserved(tmp_path, tmp_path))


@pytest.mark.parametrize(("host", "said"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "10.0.0.7")])
def test_on_a_cluster_the_relay_has_the_port(host: str, said: str, tmp_path: Path) -> None:
    """One that listens everywhere is told by the address that nodes reach."""
    plain = swarm(21700)
    relay = relay_group(Listen(port=21750, public=host == "0.0.0.0"), run_dir="/run/w", python="python")
    asked = plain.model_copy(
        update={
            "groups": (*plain.groups, relay),
            "endpoint": Endpoint(host=host, port=21750, router="router", relay="relay"),
        }
    )
    settled = with_port(asked, [], Reserved(tmp_path, tmp_path), "10.0.0.7")
    assert settled.endpoint is not None
    assert (settled.endpoint.host, settled.endpoint.port >= 21750) == (said, True)
    assert settled.group("router") == asked.group("router"), "the router's port is the node's to choose"
    assert settled.group("relay").listen == Listen(port=settled.endpoint.port, fixed=True, public=host == "0.0.0.0")
    assert is_same(settled, asked)


def test_without_endpoint_there_is_no_port(tmp_path: Path) -> None:
    plain = workload(group())
    assert with_port(plain, [], Reserved(tmp_path, tmp_path)) is plain


SECRET = Command(argv=("server",), secret_env={"KEY": Secret(file="/a")})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"uid": "u2"}, True),
        ({"labels": {"a": "b"}}, True),
        ({"folder": "/deployments/w", "files": {"/f": "text"}, "digest": "d"}, True),
        ({"place": {"gpus": ["0"]}}, True),
        ({"place": {"partition": "p"}}, False),
        ({"endpoint": Endpoint(port=1)}, False),
        ({"groups": (group().model_copy(update={"listen": Listen(port=9, fixed=True)}),)}, True),
        ({"groups": (group().model_copy(update={"resources": Resources(mem_field="backend.mem")}),)}, True),
        ({"groups": (group(count=3),)}, False),
        ({"groups": (group().model_copy(update={"command": Command(argv=("other",))}),)}, False),
        ({"groups": (group().model_copy(update={"command": SECRET}),)}, False),
        ({"name": "other"}, False),
        ({"run_dir": "/elsewhere"}, False),
    ],
)
def test_the_same_is_what_a_user_would_call_the_same(change: dict[str, Any], expected: bool) -> None:
    assert is_same(workload(), workload().model_copy(update=change)) is expected


def test_what_was_said_counts_and_not_how_it_is_rendered() -> None:
    old = workload(group()).model_copy(update={"digest": "d"})
    rendered = workload(group(count=3)).model_copy(update={"digest": "d"})
    assert is_same(old, rendered)
    assert not is_same(old, old.model_copy(update={"digest": "e"}))


def recorded() -> dict[str, dict[str, Any]]:
    """What an earlier version recorded of documents, by kind."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript((Path(__file__).parents[2] / "cases/homes/401b90f.sql").read_text())
        return {kind: json.loads(text) for kind, text in database.execute("SELECT kind, spec FROM workload")}


def of_today(said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = KINDS[said["kind"]].model.model_validate(said).model_dump(mode="json", exclude_none=True)
    return found


@pytest.mark.parametrize("kind", ["swarm", "run", "gang", "deployment"])
def test_defaults_that_an_earlier_version_did_not_record_are_no_difference(kind: str) -> None:
    old = recorded()[kind]
    new = of_today(old)
    assert differences(json.dumps(old), json.dumps(new)) == {}
    assert differences(json.dumps(old), json.dumps({**new, "env": {"A": "1"}})) in (
        {"env.A": "- → 1", "env": "{} → -"}, {"env.A": "- → 1", "env.PYTHONPATH": "@STANDINS@ → -"},
    )  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), [({}, True), ({"gpu_type": "h100"}, False)])
def test_a_deployment_of_an_earlier_version_is_known_by_its_document(changes: dict[str, Any], expected: bool) -> None:
    said = recorded()["deployment"]
    new = workload(group(count=3)).model_copy(update={"digest": "d"})
    assert is_same(workload(), new, (json.dumps(said), json.dumps({**of_today(said), **changes}))) is expected
    assert not is_same(workload(), new, ("", json.dumps(said)))


@pytest.mark.parametrize(("port", "expected"), [(9000, True), (9001, False)])
def test_on_a_cluster_another_port_is_another_swarm(port: int, expected: bool) -> None:
    first, second = (workload(endpoint=Endpoint(host="", port=number)) for number in (9000, port))
    assert is_same(first, second) is expected


@pytest.mark.parametrize(("now", "expected"), [(words("relay"), True), (words("smg"), False)])
def test_a_program_of_ours_is_the_same_whatever_an_earlier_version_called_it(
    now: tuple[str, ...], expected: bool
) -> None:
    old, new = (
        workload(group().model_copy(update={"command": Command(argv=("py", *called, "--port", "1"))}))
        for called in (("-m", "remuda.serving.relay"), now)
    )
    assert is_same(old, new) is expected
    assert is_same(new, old) is expected


def test_where_a_secret_was_put_does_not_matter() -> None:
    elsewhere = Command(argv=("server",), secret_env={"KEY": Secret(env="B")})
    first, second = (group().model_copy(update={"command": command}) for command in (SECRET, elsewhere))
    assert is_same(workload(first), workload(second))


@pytest.mark.parametrize(
    ("backend", "count", "fits"), [("local", 200, True), ("local", 201, False), ("slurm", 5000, True)]
)
def test_a_machine_carries_so_many_tasks(backend: str, count: int, fits: bool) -> None:
    """`scale NAME 100000` would leave a machine without processes, for everybody on it."""
    asked = workload(group("replica", 1)).model_copy(update={"backend": backend})
    if fits:
        check_count(asked, "replica", count)
        return
    with pytest.raises(InputError) as refused:
        check_count(asked, "replica", count)
    assert refused.value.message == f"'w' cannot have {count} tasks 'replica' on this machine: 200 at most"


@pytest.mark.parametrize(
    ("kind", "words"), [(Kind.RUN, "--gpus 0"), (Kind.SWARM, "gpus_per_replica: 0")], ids=["run", "swarm"]
)
def test_how_to_do_without_gpus_is_said_in_the_words_of_its_kind(kind: Kind, words: str) -> None:
    with pytest.raises(Conflict) as refused:
        with_devices(on([], gpu_group()).model_copy(update={"kind": kind}), {})
    assert refused.value.hint == f"to run without GPUs: {words}"


def test_nobody_carries_any_number_of_tasks() -> None:
    """Each of them is written down, so a slip of the pen would keep the host busy for minutes."""
    asked = workload(group("replica", 1)).model_copy(update={"backend": "slurm"})
    with pytest.raises(InputError, match=r"^'w' cannot have 100000000 tasks 'replica': 100000 at most$"):
        check_count(asked, "replica", 100_000_000)


@pytest.mark.parametrize(
    ("running", "count", "phases", "taken"),
    [
        pytest.param(True, 2, (), "01", id="not begun yet"),
        pytest.param(True, 2, (Phase.READY, Phase.DONE), "01", id="one has ended, and may be begun again"),
        pytest.param(True, 2, (Phase.DONE, Phase.DONE), "", id="it is over"),
        pytest.param(True, 1, (Phase.READY, Phase.STOPPING), "01", id="a surplus one still ends"),
        pytest.param(True, 1, (Phase.READY, Phase.STOPPED), "0", id="a surplus one has ended"),
        pytest.param(False, 2, (Phase.STOPPING, Phase.STOPPED), "0", id="taken down, and one still ends"),
        pytest.param(False, 2, (Phase.STOPPED, Phase.STOPPED), "", id="down"),
    ],
)
def test_who_holds_gpus(running: bool, count: int, phases: tuple[Phase, ...], taken: str) -> None:
    placed = with_devices(on(["0", "1"], gpu_group()), {})
    keys = [TaskKey("w", "replica", index) for index in range(len(phases))]
    tasks = {key: Task(key, "local", phase, attempt=1) for key, phase in zip(keys, phases, strict=True)}
    want = Want(placed, running=running, counts={"replica": count})
    assert taken_gpus([(want, tasks)]) == dict.fromkeys(taken, "w")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('{"a": 1, "b": {"c": 2}}', '{"b": {"c": 2}, "a": 1}', {}),
        ('{"replicas": 2, "router": {"type": "smg"}}', '{"replicas": 4, "router": {"type": "nginx"}}',
         {"replicas": "2 → 4", "router.type": "smg → nginx"}),
        ('{"a": 1}', '{"b": [1, 2]}', {"b": "- → [1, 2]", "a": "1 → -"}),
        ('{"env": {"MY_TOKEN": "x1"}}', '{"env": {"MY_TOKEN": "x2"}}', {"env.MY_TOKEN": "******** → ********"}),
        ("", '{"a": 1}', {}),
    ],
)  # fmt: skip
def test_what_two_documents_say_otherwise(old: str, new: str, changed: dict[str, str]) -> None:
    assert differences(old, new) == changed


def test_what_is_up_is_told_with_what_differs() -> None:
    want, said = Want(workload(group()), running=True), {"replicas": 2, "a": 1, "b": 1, "c": 1, "d": 1}
    other = {key: value + 1 for key, value in said.items()}
    with pytest.raises(Conflict) as caught:
        check_replaceable(want, {}, Kind.SWARM, (json.dumps(said), json.dumps(other)))
    told = "replicas 2 → 3, a 1 → 2, b 1 → 2, c 1 → 2, and 1 more"
    assert str(caught.value) == f"swarm 'w' is up already, with other settings: {told}"
    assert caught.value.hint.startswith("for the replicas alone: remuda scale w 3; else take it down first")
