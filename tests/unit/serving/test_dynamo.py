"""What Dynamo's frontend lists, and what that says of the workers that run."""

from __future__ import annotations

import http.server
import json
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from remuda.plan.model import Role
from remuda.serving.dynamo import DynamoRouter, instances
from remuda.serving.router import Member

if TYPE_CHECKING:
    from collections.abc import Iterator


def one(component: str, endpoint: str = "generate") -> dict[str, Any]:
    return {"component": component, "endpoint": endpoint, "namespace": "dynamo", "instance_id": 1}


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ({"status": "healthy", "instances": []}, {}),
        ({"status": "healthy"}, {}),
        ([], {}),
        ({"instances": [one("prefill"), one("prefill", "worker_kv_query"), one("backend"), one("backend"), "x"]},
         {Role.PREFILL: 1, Role.DECODE: 2}),
        ({"instances": [one("prefill"), one("tensorrt_llm"), one("tensorrt_llm_encode")]},
         {Role.PREFILL: 1, Role.DECODE: 1}),
    ],
)  # fmt: skip
def test_only_what_takes_requests_counts(health: Any, expected: dict[Role, int]) -> None:
    assert dict(instances(health)) == expected


@pytest.fixture
def frontend() -> Iterator[str]:
    """One that is healthy and lists one prefill worker and nobody else."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"status": "healthy", "instances": [one("prefill")]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


async def test_workers_that_it_does_not_list_are_pending(frontend: str) -> None:
    members = frozenset({Member("http://a", Role.PREFILL), Member("http://b", Role.DECODE)})
    assert (await DynamoRouter().sync(frontend, members)).pending == {"http://b"}
    stats = await DynamoRouter().stats(frontend)
    assert [worker.url for worker in stats.workers] == ["prefill-0"]
    assert stats.retries == -1, "a count that never comes is not waited for"
