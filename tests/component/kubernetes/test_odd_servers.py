"""What the client makes of answers that no cluster which stands in gives: of proxies, of old and new servers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.fakes.clock import FakeClock

from remuda.backends.kubernetes import client as client_module
from remuda.backends.kubernetes.checking import Exists
from remuda.backends.kubernetes.client import KubernetesClient
from remuda.backends.kubernetes.config import Access
from remuda.base.errors import BackendUnreachable, Conflict, Impossible, InputError, NotFound, Rejected, RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

GROUPS = {"groups": [{"versions": [{"groupVersion": "batch/v1"}]}, {"versions": []}]}


@dataclass
class Odd:
    """A server that answers all in one way."""

    url: str = ""
    answer: Callable[[web.Request], Any] = lambda _: web.json_response({"kind": "Any"})
    asked: list[web.Request] = field(default_factory=list)

    def says(self, status: int, reason: str = "", message: str = "", **details: str) -> None:
        said = {"kind": "Status", "reason": reason, "message": message, "details": details, "code": status}
        self.answer = lambda _: web.json_response(said, status=status)


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    made = Odd()

    async def handle(request: web.Request) -> web.StreamResponse:
        made.asked.append(request)
        answer = made.answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer  # type: ignore[no-any-return]

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def client(odd: Odd, clock: FakeClock) -> AsyncIterator[KubernetesClient]:
    made = KubernetesClient(Access(odd.url, "ml", "context here of /k", token="T0KEN"), clock, timeout_s=5)
    yield made
    await made.close()


@pytest.mark.parametrize("status", [302, 400, 403, 404, 409, 410, 422, 500, 502, 503, 504])
@pytest.mark.parametrize("body", ["<html>moved</html>", "", "[]", '{"error": "no"}'])
async def test_who_answers_for_the_server_says_nothing_of_it(
    client: KubernetesClient, odd: Odd, status: int, body: str
) -> None:
    """A page of 404 is no «there is none of that name»."""
    odd.answer = lambda _: web.Response(status=status, text=body, headers={"Location": "/elsewhere"})
    for verb in (client.read("jobs", "j"), client.delete("jobs", "j"), client.list("pods"), client.create("jobs", {})):
        with pytest.raises(BackendUnreachable) as raised:
            await verb
        assert str(raised.value) == f"the API server {odd.url} answered {status}, but not with a status of Kubernetes"
    assert {request.path for request in odd.asked} <= {
        f"/apis/batch/v1/namespaces/ml/jobs{below}" for below in ("", "/j")
    } | {"/api/v1/namespaces/ml/pods"}, "nobody follows it elsewhere"


@pytest.mark.parametrize(
    "body", ["<html>log in</html>", "", "null", "[]", '{"items": [', '{"items": []}', '{"error": "no"}']
)
async def test_a_page_is_no_list(client: KubernetesClient, odd: Odd, body: str) -> None:
    odd.answer = lambda _: web.Response(text=body)
    with pytest.raises(BackendUnreachable, match=r"answered, but not with an object of Kubernetes$"):
        await client.list("pods")


async def test_half_an_answer(client: KubernetesClient, odd: Odd) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"items": []}')
        assert request.transport is not None
        request.transport.close()
        return response

    odd.answer = half
    with pytest.raises(BackendUnreachable, match=r"cannot be reached: "):
        await client.list("pods")


REFUSALS: list[tuple[int, str, str, dict[str, str], type[RemudaError], str]] = [
    (404, "NotFound", "not found", {"name": "ml", "kind": "namespaces"}, NotFound, "not found"),
    (404, "NotFound", "could not find the requested resource", {}, Rejected, "could not find the requested resource"),
    (409, "AlreadyExists", "object is being deleted", {"name": "j"}, Exists, "object is being deleted"),
    (409, "Conflict", "cannot be fulfilled", {"name": "j"}, Conflict, "cannot be fulfilled"),
    (409, "Conflict", "on resourcequotas: modified", {"name": "q"}, BackendUnreachable, "on resourcequotas: modified"),
    (400, "BadRequest", "you said Bearer T0KEN", {}, Rejected, "you said Bearer ********"),
    (403, "Forbidden", "exceeded quota: q,\n\x1b[1mused", {}, Rejected, "exceeded quota: q, used"),
    (413, "RequestEntityTooLarge", "limit is 3145728", {}, Impossible, "limit is 3145728"),
    (422, "Invalid", "x" * 5000, {}, Impossible, "x" * 999 + "…"),
    (503, "ServiceUnavailable", "starting", {}, BackendUnreachable, "starting"),
    (504, "Timeout", "took too long", {}, BackendUnreachable, "took too long"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "reason", "message", "details", "kind", "says"), REFUSALS)
async def test_what_a_refusal_means(
    client: KubernetesClient, odd: Odd, status: int, reason: str, message: str, details: dict[str, str],
    kind: type[RemudaError], says: str,
) -> None:  # fmt: skip
    odd.says(status, reason, message, **details)
    with pytest.raises(RemudaError) as raised:
        await client.create("jobs", {})
    assert (type(raised.value), str(raised.value)) == (kind, f"the API server {odd.url}: {says}")


async def test_no_token_goes_where_everybody_reads(client: KubernetesClient, odd: Odd) -> None:
    await client.create("jobs", {"kind": "Job"})
    headers = odd.asked[0].headers
    assert "Authorization" not in headers
    assert (headers["Content-Type"], headers["User-Agent"]) == ("application/json", "remuda")
    await client.patch("jobs", "j", {})
    assert odd.asked[1].headers["Content-Type"] == "application/merge-patch+json"


async def test_who_stands_between(client: KubernetesClient, odd: Odd) -> None:
    odd.answer = lambda _: web.json_response({"kind": "PodList", "items": [{}]})
    other = KubernetesClient(replace(client.access, server="http://cluster.invalid/k8s", proxy=odd.url))
    assert len(await other.list("pods")) == 1
    assert odd.asked[0].headers["Host"] == "cluster.invalid"
    assert odd.asked[0].path == "/k8s/api/v1/namespaces/ml/pods"
    await other.close()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({"major": "1", "minor": "29+"}, (1, 29)),
        ({"major": "1", "minor": "36"}, (1, 36)),
        ({}, None),
        ({"major": ""}, None),
    ],
)
async def test_versions(
    client: KubernetesClient, odd: Odd, said: dict[str, str], version: tuple[int, int] | None
) -> None:
    odd.answer = lambda _: web.json_response(said)
    if version:
        assert await client.version() == version
    else:
        with pytest.raises(BackendUnreachable, match=r"does not say its version$"):
            await client.version()


@pytest.mark.parametrize(
    ("served", "path"),
    [(["v1alpha2"], "v1alpha2"), (["v1beta1"], "v1beta1"), (["v1alpha2", "v1beta1"], "v1beta1"), (["v1alpha1"], "")],
)
async def test_pod_groups_where_they_are(
    client: KubernetesClient, odd: Odd, clock: FakeClock, served: list[str], path: str
) -> None:
    group = {"versions": [{"groupVersion": f"scheduling.k8s.io/{version}"} for version in served]}
    said: dict[str, Any] = {"/api": {"versions": ["v1"]}, "/apis": {"groups": [group, *GROUPS["groups"]]}}
    odd.answer = lambda request: web.json_response({"kind": "Any"} | said.get(request.path, {}))
    assert await client.discover() == {"v1", "batch/v1", *(f"scheduling.k8s.io/{version}" for version in served)}
    if not path:
        with pytest.raises(Rejected, match=r"serves no PodGroups$"):
            await client.create("podgroups", {})
        assert len(odd.asked) == 2
        clock.advance(601)
        said["/apis"] = {"groups": [{"versions": [{"groupVersion": "scheduling.k8s.io/v1beta1"}]}]}
        path = "v1beta1"
    await client.create("podgroups", {})
    assert odd.asked[-1].path == f"/apis/scheduling.k8s.io/{path}/namespaces/ml/podgroups"


@pytest.mark.parametrize("after", [None, "0", "Wed, 21 Oct 2026 07:28:00 GMT", "-5", "²"])
async def test_a_server_that_does_not_say_when_is_asked_every_second(
    client: KubernetesClient, odd: Odd, clock: FakeClock, after: str | None
) -> None:
    said = {"kind": "Status", "message": "busy"}
    headers = {} if after is None else {"Retry-After": after}
    odd.answer = lambda _: web.json_response(said, status=429, headers=headers)
    began = clock.now()
    with pytest.raises(BackendUnreachable, match=r": busy$"):
        await client.list("pods")
    assert (clock.now() - began, len(odd.asked)) == (20, 21)


async def test_a_line_without_an_end(client: KubernetesClient, odd: Odd) -> None:
    async def long(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(40):
            await response.write(b"x" * 65536)
        await response.write(b"\nend\n")
        return response

    odd.answer = long
    async with aclosing(client.log("p", container="main")) as blocks:
        pieces = [piece async for piece in blocks]
    assert b"".join(pieces) == b"x" * 65536 * 40 + b"\nend\n"
    assert max(map(len, pieces)) < 3 << 20
    assert len(pieces) > 1


async def test_a_log_that_is_cut_has_not_ended(client: KubernetesClient, odd: Odd) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntw")
        assert request.transport is not None
        request.transport.close()
        return response

    odd.answer = cut
    async with aclosing(client.log("p", container="main", follow=True)) as blocks:
        assert await anext(blocks) == b"one\n"
        with pytest.raises(BackendUnreachable, match=r"cannot be reached: "):
            await anext(blocks)


async def test_a_log_that_is_silent_for_long_is_given_up(
    client: KubernetesClient, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_QUIET_S", 0.3)
    ended = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntw")
        await ended.wait()
        return response

    odd.answer = silent
    async with aclosing(client.log("p", container="main", follow=True, since="2026-01-01T00:00:00Z")) as blocks:
        assert await anext(blocks) == b"one\n"
        with pytest.raises(BackendUnreachable, match=r"did not answer in time$"):
            await anext(blocks)
    ended.set()
    query = odd.asked[0].query
    assert dict(query) == {
        "container": "main", "sinceTime": "2026-01-01T00:00:00Z", "follow": "true", "timestamps": "true"
    }  # fmt: skip


async def test_a_compressed_list(client: KubernetesClient, odd: Odd) -> None:
    def packed(_: web.Request) -> web.Response:
        response = web.json_response({"kind": "PodList", "items": [{"n": number} for number in range(5000)]})
        response.enable_compression()
        return response

    odd.answer = packed
    assert len(await client.list("pods")) == 5000


async def test_nobody_is_there(client: KubernetesClient) -> None:
    other = KubernetesClient(replace(client.access, server="http://127.0.0.1:9"))
    with pytest.raises(BackendUnreachable, match=r"^the API server http://127.0.0.1:9 cannot be reached: "):
        await other.list("pods")
    await other.close()
    nowhere = KubernetesClient(replace(client.access, server="https://cluster.invalid"))
    with pytest.raises(BackendUnreachable, match=r"^the API server https://cluster.invalid cannot be reached: "):
        await nowhere.list("pods")
    await nowhere.close()


async def test_what_the_server_takes_for_a_stranger(client: KubernetesClient, odd: Odd) -> None:
    odd.answer = lambda _: web.Response(status=401, text="<html>log in</html>")
    with pytest.raises(InputError, match=r"rejects the credentials of context here of /k$"):
        await client.list("pods")
