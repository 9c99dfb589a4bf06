"""What nobody foresaw reaches the user as a sentence with an id, and the log as a traceback under that id."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from remuda.base.asker import asking
from remuda.base.errors import HostFault, RemudaError
from remuda.client.http import _error_of
from remuda.host.faults import ErrorBoundary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

LOG = Path("/home/me/.remuda/host.log")


def application() -> FastAPI:
    app = FastAPI()
    app.add_middleware(ErrorBoundary, log=LOG)

    @app.get("/broken")
    async def broken() -> None:
        raise KeyError("no such thing")

    @app.get("/half")
    async def half() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise RuntimeError("half of it")

        return StreamingResponse(parts())

    @app.get("/gone")
    async def gone() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise ConnectionResetError  # what a server's `send` raises

        return StreamingResponse(parts())

    @app.get("/fine")
    async def fine() -> dict[str, int]:
        return {"a": 1}

    @app.post("/asking")
    async def who() -> str:
        return asking.get()

    return app


async def ask(path: str, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = ()) -> tuple[int, bytes]:
    """Status and body of an answer, without any network."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("x", 1), "client": ("y", 2),
             "asgi": {"version": "3.0", "spec_version": "2.4"}}  # fmt: skip
    await application()(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_an_exception_is_a_sentence_with_an_id_that_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    status, body = await ask("/broken")
    assert status == 500
    error = _error_of(body, status, "GET /broken")
    assert type(error) is HostFault
    assert error.exit_code == 9
    said = re.fullmatch(r"unexpected internal error \(KeyError: 'no such thing'\), id (\w{8})", str(error))
    assert said is not None, str(error)
    assert f"grep -A 40 {said[1]} {LOG}" in error.hint
    (record,) = [one for one in caplog.records if said[1] in one.getMessage()]
    assert "GET /broken" in record.getMessage()
    assert "raise KeyError" in logging.Formatter().format(record), "with its traceback"


async def test_an_answer_that_has_begun_ends_and_the_log_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="half of it"):
        await ask("/half")
    assert any("fault" in record.getMessage() and "GET /half" in record.getMessage() for record in caplog.records)


async def test_who_goes_away_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    with suppress(ClientDisconnect):
        await ask("/gone")
    # What was left of other tests may say something whenever it is collected.
    assert not [record for record in caplog.records if record.name.startswith("remuda")]


async def test_what_is_well_passes() -> None:
    assert await ask("/fine") == (200, json.dumps({"a": 1}, separators=(",", ":")).encode())


def test_it_is_one_of_ours() -> None:
    assert issubclass(HostFault, RemudaError)


@pytest.mark.parametrize(
    ("header", "who"),
    [
        (b"anna@login1", "anna@login1"),
        (b"an\x1b[2Jna\xff\xc3\xa9", "anna\ufffd\u00e9"),
        (b"a" * 90, "a" * 79 + "\u2026"),
        (b"", ""),
    ],
)  # fmt: skip
async def test_who_asks_is_known_to_what_is_done_and_to_nothing_after_it(header: bytes, who: str) -> None:
    assert await ask("/asking", "POST", [(b"x-remuda-by", header)]) == (
        200,
        json.dumps(who, ensure_ascii=False).encode(),
    )
    assert await ask("/asking", "POST") == (200, b'""')
