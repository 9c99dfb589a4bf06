"""The misbehaving engine does what it is told to."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENGINE = [sys.executable, "-m", "tests.fakes.engine", "--port", "0"]


@pytest.fixture
def engine() -> Iterator[Callable[..., tuple[str, subprocess.Popen[str]]]]:
    """Start one; its address and process."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> tuple[str, subprocess.Popen[str]]:
        process = subprocess.Popen([*ENGINE, *flags], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().split()[-1], process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ask(url: str, *, timeout_s: float = 60.0, **body: Any) -> tuple[int, str]:
    data = json.dumps({"messages": [{"role": "user", "content": "hello"}], **body}).encode()
    try:
        with urllib.request.urlopen(f"{url}/v1/chat/completions", data, timeout=timeout_s) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def health(url: str, *, timeout_s: float = 60.0) -> int:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_it_answers_and_counts(engine: Any) -> None:
    url, _ = engine("--name", "one")
    status, text = ask(url, max_tokens=3)
    answer = json.loads(text)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "the old horse"
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["system_fingerprint"] == "one"
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as metrics:
        assert b'vllm:generation_tokens_total{model_name="tiny"} 3' in metrics.read()


def test_streams_end_with_done_and_tell_usage(engine: Any) -> None:
    url, _ = engine()
    _, text = ask(url, max_tokens=3, stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    assert [json.loads(event)["choices"][0]["delta"]["content"] for event in events[:3]] == ["the ", "old ", "horse "]
    assert json.loads(events[3])["usage"]["total_tokens"] > 3


def test_it_refuses(engine: Any) -> None:
    url, _ = engine("--status", "503")
    assert (ask(url)[0], health(url)) == (503, 503)


def test_it_is_deaf(engine: Any) -> None:
    url, _ = engine("--deaf")
    assert health(url, timeout_s=0.3) == 0


def test_it_is_late(engine: Any) -> None:
    url, _ = engine("--slow", "3.0")
    start = time.monotonic()
    assert ask(url)[0] == 200
    assert time.monotonic() - start > 3.0

    def took() -> float:
        start = time.monotonic()
        assert health(url) == 200
        return time.monotonic() - start

    assert min(took() for _ in range(5)) < 3.0


def test_it_hangs_in_the_middle_of_a_stream(engine: Any) -> None:
    url, _ = engine("--hang-mid-stream")
    body = json.dumps({"messages": [], "stream": True, "max_tokens": 4}).encode()
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as line:
        line.request("POST", "/v1/chat/completions", body)
        stream = line.getresponse()
        assert stream.readline().startswith(b"data: ")
        line.sock.settimeout(5)
        with stream, pytest.raises(TimeoutError):
            stream.read()
    assert health(url) == 200


def test_it_dies_at_the_request_it_was_told(engine: Any) -> None:
    url, process = engine("--die-after", "2")
    assert ask(url)[0] == 200
    with pytest.raises(OSError, match=r"closed|reset"):
        ask(url)
    assert process.wait(60) == 70


def test_it_dies_at_start() -> None:
    answer = subprocess.run([*ENGINE, "--die-at-start", "3"], capture_output=True, text=True, check=False)
    assert answer.returncode == 3
    assert "told to die" in answer.stderr


def test_its_health_fails_later(engine: Any) -> None:
    begun = time.monotonic()
    url, _ = engine("--unhealthy-after", "5.0")
    assert health(url) == 200 or time.monotonic() - begun > 5.0
    deadline = time.monotonic() + 60
    while health(url) == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert health(url) == 503
    assert ask(url)[0] == 200


def test_it_listens_late(engine: Any) -> None:
    start = time.monotonic()
    url, _ = engine("--start-delay", "0.5")
    assert time.monotonic() - start > 0.5
    assert health(url) == 200


def test_a_file_changes_its_mind(engine: Any, tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    url, _ = engine("--control", str(control))
    assert ask(url)[0] == 200
    for document, expected in (
        ('{"mode": "500"}', 500),
        ('{"mode": "500", "status": 429}', 429),
        ('{"mode": "unheard"}', 200),
        ("{ torn", 200),
        ('{"mode": "ok"}', 200),
    ):
        control.write_text(document)
        assert ask(url)[0] == expected, document


def test_it_keeps_connections_and_takes_nonsense(engine: Any) -> None:
    url, _ = engine()
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert connection.recv(100) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in connection.recv(1000)


def test_it_starts_light() -> None:
    code = "import tests.fakes.engine, sys; print({'aiohttp', 'pydantic', 'uvloop', 'numpy'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
