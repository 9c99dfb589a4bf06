"""How smg is started, and what is read from it."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.errors import InputError
from remuda.base.prometheus import parse, quantile, total
from remuda.node.child.machine import ENDING, UNHEALTHY, Life, Probed, Spawned, Start, Tick, step
from remuda.plan.front import RouterSettings, router_group
from remuda.plan.model import HOST_MARK, PORT_MARK, Endpoint, Group, Role, Secret
from remuda.serving.router import NO_KEYS, Keys, router_named
from remuda.serving.smg import beside, summarize
from remuda.serving.smg_launcher import LABEL, LOOPBACK, WaitingRoom, WaitingRoomServer, parser
from remuda.wire.child import ChildSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINT = Endpoint(port=8080, router="router", model="tiny")


def group(**more: Any) -> Group:
    endpoint = more.pop("endpoint", ENDPOINT)
    return router_group("smg", RouterSettings(endpoint, more.pop("replicas", 2), **more))


def flag(made: Group, name: str) -> str:
    argv = made.command.argv
    return argv[argv.index(name) + 1]


@pytest.mark.parametrize(
    ("replicas", "policy", "expected"),
    [(1, "", "round_robin"), (2, "", "cache_aware"), (9, "", "cache_aware"), (2, "power_of_two", "power_of_two")],
)
def test_policy(replicas: int, policy: str, expected: str) -> None:
    assert flag(group(replicas=replicas, policy=policy), "--policy") == expected


@pytest.mark.parametrize(
    ("router", "expected"),
    [("http://127.0.0.1:9000", "http://127.0.0.1:4000/metrics"), ("http://10.0.0.7:9000", "http://10.0.0.7:4000/metrics"),
     ("http://[fd00::7]:9000", "http://[fd00::7]:4000/metrics")],
)  # fmt: skip
def test_metrics_are_read_where_the_router_is(router: str, expected: str) -> None:
    assert beside(router, "http://127.0.0.1:4000/metrics") == expected


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="fastest") as refused:
        group(policy="fastest")
    assert "cache_aware" in refused.value.hint


def test_it_holds_the_port_of_the_endpoint() -> None:
    made = group()
    assert made.role is Role.ROUTER
    assert made.count == 1
    assert made.listen is not None
    assert (made.listen.port, made.listen.fixed, made.listen.public) == (8080, True, False)
    assert (flag(made, "--host"), flag(made, "--port")) == (HOST_MARK, PORT_MARK)
    assert made.probe is not None
    assert made.probe.path == "/health"


def probed(seconds: int, *, answers_at: int = 0) -> Life:
    """A router that was ready, and answered once after so many seconds if at all."""
    made = group()
    assert made.probe is not None
    probe = replace(made.probe, bearer="")
    spec = ChildSpec(token="t", workload="w", task="router/0", attempt=1, argv=["smg"], run_dir="/r", probe=probe)
    life, _ = step(spec, Life(), Start(), 0.0)
    for event in (Spawned(), Probed(200)):
        life, _ = step(spec, life, event, 0.0)
    for now in range(1, seconds + 1):
        life, _ = step(spec, life, Probed(200) if now == answers_at else Probed(0, "late"), float(now))
        life, _ = step(spec, life, Tick(), float(now))
    return life


def test_a_router_is_begun_again_when_it_does_not_answer_for_a_minute_and_not_when_it_is_busy() -> None:
    assert probed(60).phase == UNHEALTHY
    assert probed(62).phase == ENDING
    assert probed(100, answers_at=50).phase == UNHEALTHY
    probe = group().probe
    assert probe is not None
    assert probe.timeout_s == 10.0, "a late answer is one"


def test_keys_go_by_reference() -> None:
    endpoint = ENDPOINT.model_copy(update={"api_key": Secret(file="/keys/api")})
    made = group(endpoint=endpoint, control_key=Secret(file="/keys/control"))
    assert {secret.file for secret in made.command.secret_env.values()} == {"/keys/api", "/keys/control"}
    assert not any("/keys" in part for part in (*made.command.argv, *made.command.env.values()))
    assert flag(made, "--api-key-env") in made.command.secret_env
    assert flag(made, "--control-key-env") in made.command.secret_env


def test_without_keys_no_secret_is_asked_for() -> None:
    made = group()
    assert made.command.secret_env == {}
    assert not any("key" in part for part in made.command.argv)


def test_the_launcher_reads_what_is_rendered() -> None:
    argv = group(extra_args=("--queue-size", "7")).command.argv
    options = parser().parse_args(argv[4:])
    assert options.model == "tiny"
    assert options.smg[-2:] == ["--queue-size", "7"]
    assert "--disable-tokenizer-autoload" in options.smg


def test_names() -> None:
    assert router_named("smg").name == "smg"
    with pytest.raises(InputError, match="traefik"):
        router_named("traefik")
    assert repr(Keys("a1", "b2", "c3")) == repr(NO_KEYS)


METRICS = """
# HELP smg_http_responses_total x
smg_http_responses_total{path="/v1/chat/completions",status_code="200",error_code=""} 8
smg_http_responses_total{path="/v1/chat/completions",status_code="503",error_code="a \\"b\\" }"} 2
smg_http_responses_total{path="/workers",status_code="200",error_code=""} 99
smg_http_request_duration_seconds_sum{method="POST",path="/v1/chat/completions"} 5
smg_http_request_duration_seconds_count{method="POST",path="/v1/chat/completions"} 10
smg_http_request_duration_seconds_bucket{path="/v1/chat/completions",le="0.1"} 4
smg_http_request_duration_seconds_bucket{path="/v1/chat/completions",le="1"} 9
smg_http_request_duration_seconds_bucket{path="/v1/chat/completions",le="+Inf"} 10
smg_worker_requests_total{worker="http://a:1",model="tiny"} 7
smg_worker_requests_active{worker="http://a:1"} 3
smg_worker_retries_total{worker_type="regular",endpoint="chat"} 2
not a sample
broken{ 1
odd_value nan_no
"""


def test_stats() -> None:
    workers = [
        {"url": "http://b:1", "is_healthy": False, "labels": {}},
        {"url": "http://a:1", "is_healthy": True, "labels": {LABEL: "x"}},
    ]
    stats = summarize(workers, parse(METRICS))
    assert (stats.requests, stats.errors, stats.running, stats.retries) == (10, 2, 3, 2)
    assert (stats.mean_s, stats.p50_s, stats.p99_s) == (0.5, 1.0, 1.0)
    assert [(worker.url, worker.healthy, worker.requests) for worker in stats.workers] == [
        ("http://a:1", True, 7),
        ("http://b:1", False, 0),
    ]


def test_stats_without_metrics_are_zero() -> None:
    assert summarize([], ()).p99_s == 0.0
    assert total((), "x") == 0.0
    assert quantile(parse('x_bucket{le="+Inf"} 4'), "x", 0.5) == 0.0


def test_the_waiting_room_keeps_nothing_of_what_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody on the machine may send to it, and say that much will come."""
    monkeypatch.setattr(WaitingRoom, "timeout", 120)
    server = WaitingRoomServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), 120) as line:
            line.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000000\r\n\r\n")
            line.sendall(b"x" * (1 << 20))
            assert line.recv(1000).startswith(b"HTTP/1.0 503 ")
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def waiting_room() -> Iterator[int]:
    """Its port."""
    server = WaitingRoomServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_the_waiting_room_tells_nobody_but_smg_which_model_it_is(
    waiting_room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WaitingRoom, "key", "of smg")
    for key, status in (("", 401), ("Bearer wrong", 401), ("Bearer of smg", 200)):
        with closing(http.client.HTTPConnection(LOOPBACK, waiting_room, timeout=90)) as line:
            line.request("GET", "/v1/models", headers={"authorization": key})
            assert line.getresponse().status == status


def test_who_says_nothing_keeps_smg_out_of_no_waiting_room(waiting_room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitingRoom, "timeout", 120)
    with (
        socket.create_connection((LOOPBACK, waiting_room), 30),
        closing(http.client.HTTPConnection(LOOPBACK, waiting_room, timeout=90)) as smg,
    ):
        smg.request("GET", "/health")
        assert smg.getresponse().status == 200


def test_who_says_nothing_in_the_waiting_room_is_sent_away(waiting_room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitingRoom, "timeout", 0.05)
    with socket.create_connection((LOOPBACK, waiting_room), 120) as idle:
        assert idle.recv(1) == b""
