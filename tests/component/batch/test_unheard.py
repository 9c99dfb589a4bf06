"""Servers whose listen queue is short: what hangs in it is asked again long before the timeout, and the job says so."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from remuda.batch.show import summary_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]

ANSWER_S = 0.005


class Crowded:
    """Real sockets behind a listen queue of five; whoever is accepted is answered within milliseconds, again and again.

    Args:
        accept_s: between two connections that are accepted.
        workers: connections that are served at once; the others stay in the queue until one is closed.
    """

    def __init__(self, *, accept_s: float = 0.0, workers: int = 1000) -> None:
        self.asked: list[str] = []
        self._accept_s = accept_s
        self._free = threading.Semaphore(workers)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=5)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._free.release()
        for one in [self._listening, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in list(self._threads):
            thread.join(30)

    def _accept(self) -> None:
        while not self._over.wait(self._accept_s):
            self._free.acquire()
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(made)
            self._threads.append(threading.Thread(target=self._serve, args=(made,)))
            self._threads[-1].start()

    def _serve(self, made: socket.socket) -> None:
        # Whoever asks twice hangs up on one of them, be it within a question.
        with contextlib.suppress(OSError, ValueError), made, made.makefile("rb") as lines:
            while lines.readline():
                length = 0
                while (line := lines.readline().strip()) != b"":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                prompt = json.loads(lines.read(length))["prompt"] if length else ""
                if prompt:
                    with self._lock:
                        self.asked.append(prompt)
                time.sleep(ANSWER_S)
                text = json.dumps({"choices": [{"text": f"echo: {prompt}", "finish_reason": "stop"}]}).encode()
                made.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        self._free.release()


@pytest.fixture(autouse=True)
def asks_once() -> None:
    """Not here: who is asked twice is the subject."""


@pytest.mark.parametrize(
    "server", [{}, {"accept_s": 0.3}, {"workers": 2}, {"workers": 8}], ids=["short", "slow", "two", "eight"]
)
@pytest.mark.parametrize("bound", [0, 64])
def test_fifty_rows_against_a_listen_queue_of_five(
    prompts: Prompts, run: Run, rows: Rows, server: dict[str, Any], bound: int
) -> None:
    texts = [f"row {number}" for number in range(50)]
    with Crowded(**server) as crowded:
        began = time.monotonic()
        summary = run(crowded.url, prompts(texts), job="completion", max_concurrency=bound, timeout_s=300.0)
        took = time.monotonic() - began
        asked = list(crowded.asked)
    assert summary.failed == 0
    assert [row["result"] for row in rows()] == [f"echo: {text}" for text in texts]
    assert took < 150
    assert set(asked) == set(texts)
    # A question is on its way a second time only where the first had not got through.
    assert len(asked) <= len(texts) + summary.asked_again


def test_the_summary_says_who_was_asked_again(prompts: Prompts, run: Run) -> None:
    with Crowded(workers=2) as crowded:
        summary = run(crowded.url, prompts([f"row {n}" for n in range(50)]), job="completion", max_concurrency=64)
    assert summary.asked_again > 0
    line = next(line for line in summary_lines(summary) if "the first was not read" in line)
    assert line.startswith(f"{summary.asked_again} question")
