"""Services of a deployment: which there are, how each is started, who waits for whom and who is told what."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.supervise.build import workload

from remuda.base.errors import InputError
from remuda.plan import order
from remuda.plan.deployment.services import addressed, gates, image_of, service_env, service_groups, services, terminal
from remuda.plan.model import Command, Group, Role
from remuda.specs.deployment import DeploymentSpec

ROLES: dict[str, Any] = {"prefill": {}, "decode": {}}
MINE = {"name": "mine", "command": ["serve", "--at={host}:{port}"]}
SLURM = {"backend": {"type": "slurm"}, "container": "/d.sqsh"}
ETCD, NATS = "http://__REMUDA_ADDRESS_etcd__", "nats://__REMUDA_ADDRESS_nats__"
BY_ETCD = {"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": ETCD}


def spec(*mine: dict[str, Any], **said: Any) -> DeploymentSpec:
    return DeploymentSpec.model_validate(
        {"model": {"path": "/m"}, "engine": "mocker", "roles": ROLES, "services": mine, **said}
    )


def groups(*mine: dict[str, Any], **said: Any) -> tuple[Group, ...]:
    return service_groups(spec(*mine, **said), "/run", "u1", frontend="frontend")


@pytest.mark.parametrize(
    ("said", "names", "env"),
    [
        pytest.param({}, [], {}, id="none"),
        pytest.param({"dynamo": {"discovery": "etcd"}}, ["etcd"], BY_ETCD, id="discovery"),
        pytest.param({"dynamo": {"request_plane": "nats"}}, ["nats"], {"NATS_SERVER": NATS}, id="requests"),
        pytest.param({"dynamo": {"event_plane": "nats"}}, ["nats"], {"NATS_SERVER": NATS}, id="events"),
        pytest.param({"services": [{"name": "e", "type": "etcd"}]}, ["e"],
                     {**BY_ETCD, "ETCD_ENDPOINTS": "http://__REMUDA_ADDRESS_e__"}, id="of another name"),
        pytest.param({"services": [{"name": "e", "type": "etcd"}], "dynamo": {"discovery": "file"}}, ["e"], {},
                     id="by files all the same"),
        pytest.param({"services": [{"name": "e", "type": "etcd", "external": "h:1"}]}, ["e"],
                     {**BY_ETCD, "ETCD_ENDPOINTS": "http://h:1"}, id="external"),
        pytest.param({"services": [{"name": "e", "type": "etcd", "external": "https://h:1"}]}, ["e"],
                     {**BY_ETCD, "ETCD_ENDPOINTS": "https://h:1"}, id="external with its scheme"),
        pytest.param({"services": [{**MINE, "enabled": False}]}, [], {}, id="switched off"),
        pytest.param({"dynamo": {"version": "0.8.0"}, **SLURM}, ["etcd", "nats"],
                     {**BY_ETCD, "NATS_SERVER": NATS, "DYN_EVENT_PLANE": "nats"}, id="older"),
        pytest.param({"dynamo": {"version": "1.0.0"}, **SLURM}, [], {}, id="newer"),
        pytest.param({"dynamo": {"version": "0.8.0"}, "container": "/d.sqsh"}, [], {}, id="older, by an interpreter"),
        pytest.param({"dynamo": {"version": "0.8.0"}, "backend": {"type": "slurm"}}, [], {}, id="older, no image"),
        pytest.param({"dynamo": {"version": "0.8.0", "discovery": "etcd"}, "frontend": {"type": "smg"}, **SLURM}, [],
                     {}, id="no dynamo"),
    ],
)  # fmt: skip
def test_which_there_are(said: dict[str, Any], names: list[str], env: dict[str, str]) -> None:
    found = spec(**{"services": [], **said})
    assert [service.name for service in services(found)] == names
    assert service_env(found) == env


def test_how_etcd_and_nats_are_started() -> None:
    etcd, nats = groups(dynamo={"discovery": "etcd", "request_plane": "nats"})
    assert etcd.command.argv == (
        "etcd", "--data-dir", "/run/services/u1/etcd",
        "--listen-client-urls", "http://__REMUDA_HOST__:__REMUDA_PORT__",
        "--advertise-client-urls", "http://__REMUDA_HOST__:__REMUDA_PORT__",
        "--listen-peer-urls", "http://127.0.0.1:__REMUDA_PORT_peer__",
        "--initial-cluster", "default=http://127.0.0.1:__REMUDA_PORT_peer__",
        "--initial-advertise-peer-urls", "http://127.0.0.1:__REMUDA_PORT_peer__",
    )  # fmt: skip
    assert nats.command.argv == (
        "nats-server", "-a", "__REMUDA_HOST__", "-p", "__REMUDA_PORT__", "-js", "-sd", "/run/services/u1/nats",
    )  # fmt: skip
    seen = [(one.role, one.count, one.listen and one.listen.port, one.probe and one.probe.path) for one in (etcd, nats)]
    assert seen == [(Role.SERVICE, 1, 2379, "/health"), (Role.SERVICE, 1, 4222, "")]
    assert [one.listen and one.listen.fixed for one in (etcd, nats)] == [False, False]


def test_how_mooncake_is_started() -> None:
    (master,) = groups({"name": "m", "type": "mooncake-master", "args": {"eviction_ratio": 0.1}})
    assert master.command.argv == (
        "mooncake_master", "--rpc_address=__REMUDA_HOST__", "--rpc_port=__REMUDA_PORT__",
        "--metrics_host=__REMUDA_HOST__", "--metrics_port=__REMUDA_PORT_metrics__",
        "--enable_http_metadata_server=true", "--http_metadata_server_host=__REMUDA_HOST__",
        "--http_metadata_server_port=__REMUDA_PORT_metadata__", "--eviction_ratio", "0.1",
    )  # fmt: skip
    assert (master.listen and master.listen.port, master.probe and master.probe.path) == (50051, "")


def test_on_slurm_it_says_the_name_of_its_node_and_runs_in_its_image() -> None:
    (etcd,) = groups(dynamo={"discovery": "etcd"}, **SLURM)
    assert "http://__REMUDA_NODE__:__REMUDA_PORT__" in etcd.command.argv
    own = {"name": "etcd", "type": "etcd", "container": "/e.sqsh"}
    assert [image_of(spec(**SLURM, **said), "etcd") for said in ({"dynamo": {"discovery": "etcd"}}, {})] == [
        "/d.sqsh"
    ] * 2
    assert image_of(spec(own, **SLURM), "etcd") == "/e.sqsh"
    assert image_of(spec(own), "etcd") == ""


def test_size_of_messages_is_a_file_of_nats() -> None:
    (nats,) = groups({"name": "n", "type": "nats", "options": {"max_payload_mb": 8}, "args": {"max_connections": 9}})
    assert nats.command.argv[-4:] == ("-c", "__REMUDA_FILES__/nats.conf", "--max_connections", "9")
    assert nats.command.files == {"nats.conf": "max_payload: 8MB\n"}


@pytest.mark.parametrize(
    ("said", "listens", "path"),
    [
        pytest.param({"command": ["x"]}, None, None, id="runs"),
        pytest.param({}, (6800, False), None, id="has a port"),
        pytest.param({"command": ["x"], "env": {"AT": "{port}"}}, (6800, False), None, id="by its environment"),
        pytest.param({"readiness": {"port": 9000}}, (9000, True), "", id="port"),
        pytest.param({"readiness": {"tcp": "127.0.0.1:9000"}}, (9000, True), "", id="tcp"),
        pytest.param({"readiness": {"tcp": "{host}:{port}"}}, (6800, False), "", id="tcp, any port"),
        pytest.param({"readiness": {"http": {"path": "/ok"}}}, (6800, False), "/ok", id="http"),
        pytest.param({"readiness": {"http": {"path": "/ok", "port": 9000, "status": 200}}}, (9000, True), "/ok",
                     id="http at a port"),
        pytest.param({"type": "etcd", "readiness": {"port": 2379}}, (2379, True), "/health", id="etcd"),
    ],
)  # fmt: skip
def test_when_it_counts_as_started(said: dict[str, Any], listens: tuple[int, bool] | None, path: str | None) -> None:
    (group,) = groups({**MINE, **said})
    assert (group.listen and (group.listen.port, group.listen.fixed)) == listens
    assert (group.probe and group.probe.path) == path


@pytest.mark.parametrize("path", ["/ok\r\nX-Key: 1", "/o k", "/ö", "/\0"])
def test_a_path_is_one_word_of_a_request(path: str) -> None:
    with pytest.raises(InputError, match="`http` has port 0 and path"):
        groups({**MINE, "readiness": {"http": {"path": path}}})


def test_how_long_it_may_take() -> None:
    (group,) = groups({**MINE, "readiness": {"port": 1, "timeout_seconds": 7, "interval_seconds": 3}})
    assert group.probe is not None
    assert (group.probe.startup_timeout_s, group.probe.interval_s) == (7, 3)


def test_the_order() -> None:
    found = spec(
        {**MINE, "name": "first", "start": "infra"}, {**MINE, "name": "second"},
        {**MINE, "name": "any", "critical": False}, {**MINE, "name": "beside", "start": "with_workers"},
        {**MINE, "name": "last", "start": "after_frontend"}, {"name": "far", "type": "etcd", "external": "h:1"},
    )  # fmt: skip
    made = service_groups(found, "/run", "u1", frontend="frontend")
    assert {group.name: group.after for group in made} == {
        "first": (), "second": ("first",), "any": ("first",), "beside": (), "last": ("frontend",),
    }  # fmt: skip
    assert gates(found) == ("first", "second")


def told(text: str, *mine: dict[str, Any], after: tuple[str, ...] = ()) -> Group:
    found = spec(*mine)
    worker = Group(
        name="decode", role=Role.DECODE, count=1, after=after, command=Command(argv=("w", text), env={"A": text})
    )
    return addressed(found, (worker, *service_groups(found, "/run", "u1", frontend="frontend")))[0]


@pytest.mark.parametrize(
    ("mine", "value", "after"),
    [
        ({**MINE}, "x=__REMUDA_ADDRESS_mine__", ("mine",)),
        ({**MINE, "critical": False}, "x=__REMUDA_ADDRESS_mine__", ("mine",)),
        ({"name": "mine", "external": "tcp://h:1"}, "x=h:1", ()),
    ],
)
def test_an_address_is_told_and_waited_for(mine: dict[str, Any], value: str, after: tuple[str, ...]) -> None:
    worker = told("x={address:mine}", mine)
    assert (worker.command.argv, worker.command.env) == (("w", value), {"A": value})
    assert worker.after == after


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        ({**MINE, "name": "other"}, "decode needs the address of 'mine', but no service of that name has one"),
        ({"name": "mine", "command": ["x"]}, "decode needs the address of 'mine'"),
        ({**MINE, "enabled": False}, "decode needs the address of 'mine'"),
    ],
)
def test_an_address_that_nobody_has(mine: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        told("{address:mine}", mine)


def test_an_address_in_the_environment_of_everything_is_told_to_workers_alone() -> None:
    (group,) = groups(MINE, env={"AT": "{address:mine}", "B": "{port}"}, secret_env={"KEY": {"file": "/k"}})
    assert (group.command.env, list(group.command.secret_env)) == ({"B": "{port}"}, ["KEY"])
    (etcd,) = groups(dynamo={"discovery": "etcd"}, secret_env={"KEY": {"file": "/k"}})
    assert etcd.command.secret_env == {}, "which needs none"


def test_other_braces_stay() -> None:
    assert told('{"a": {"port": 1}, {address}}').command.argv == ("w", '{"a": {"port": 1}, {address}}')


def test_the_deployment_ends_with_one_that_is_terminal() -> None:
    found = spec({**MINE, "terminal": True, "start": "after_frontend"})
    (group,) = service_groups(found, "/run", "u1", frontend="frontend")
    assert terminal(found) == "mine"
    assert (group.restart.policy, group.replace.policy) == ("never", "never")
    assert terminal(spec(MINE)) is None
    with pytest.raises(InputError, match="ends with one service, not with mine and other"):
        terminal(spec({**MINE, "terminal": True}, {**MINE, "name": "other", "terminal": True}))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"type": "ray"}, "how a service of type ray is started is not known"),
        ({"type": "lmcache-server"}, "how a service of type lmcache-server is started is not known"),
        ({**MINE, "readiness": {"log": {"pattern": "up"}}}, "lines of mine cannot be waited for yet"),
        ({**MINE, "readiness": {"tcp": "elsewhere:80"}}, "asked at its own port, not at 'elsewhere:80'"),
        ({**MINE, "readiness": {"http": {"path": "/", "status": 204}}}, "readiness must be an HTTP 200 check"),
        ({**MINE, "readiness": {"http": {"path": "x"}}}, "has port 0 and path 'x'"),
        ({**MINE, "readiness": {"http": "/"}}, "`http` is a mapping"),
        ({**MINE, "placement": {"per": "node"}}, "mine would run on several nodes"),
        ({**MINE, "placement": {"node": "all"}}, "mine would run on several nodes"),
        ({"type": "nats", "options": {"max_payload_mb": "1; x"}}, "max_payload_mb must be 1 to 64"),
        ({"type": "nats", "options": {"store": "x"}}, "nats has no option 'store'"),
        ({**MINE, "name": "etcd"}, "etcd is the name of the service that Dynamo needs"),
    ],
)
def test_what_cannot_be_started(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        groups({"name": "mine", **said}, dynamo={"discovery": "etcd"})


def test_one_with_a_command_may_have_any_type() -> None:
    (group,) = groups({**MINE, "type": "ray"})
    assert group.command.argv == ("serve", "--at=__REMUDA_HOST__:__REMUDA_PORT__")


def test_who_waits_for_whom_can_be_followed() -> None:
    """A circle is refused where the workload is accepted."""
    found = spec({**MINE, "start": "after_frontend"})
    front = Group(name="frontend", role=Role.ROUTER, count=1, command=Command(argv=("f", "{address:mine}")))
    made = addressed(found, (front, *service_groups(found, "/run", "u1", frontend="frontend")))
    with pytest.raises(InputError, match="groups wait for each other"):
        order.check(workload(*made))
