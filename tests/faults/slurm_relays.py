"""Clients that ask the one address of a swarm without pause."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = json.dumps({"model": "herd-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
CLIENTS = 6


class Asked:
    """What clients saw."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """`200`, another status with the error's code, or what broke the connection."""
        self.stop = threading.Event()

    @property
    def good(self) -> int:
        """Whole answers."""
        return self.answers["200"]

    def keep_asking(self, address: str, key: str) -> None:
        """One client: one connection for as long as that goes."""
        parts = urlsplit(address)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        while not self.stop.is_set():
            try:
                connection.request("POST", "/v1/chat/completions", BODY, headers)
                response = connection.getresponse()
                said = json.loads(response.read())
                code = said["error"].get("code") if response.status != 200 else ""
                self.answers[f"{response.status} {code}".strip()] += 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.answers[repr(error)] += 1
                connection.close()
            self.stop.wait(0.02)
        connection.close()


@contextmanager
def asking(address: str, key: str = "") -> Iterator[Asked]:
    """Several clients for as long as the block lasts, which begins when they have answers."""
    asked = Asked()
    threads = [threading.Thread(target=asked.keep_asking, args=(address, key)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: asked.good >= 20, "clients get answers")
        yield asked
    finally:
        asked.stop.set()
        for thread in threads:
            thread.join()


def only_waited(asked: Asked) -> bool:
    """Whether every request was answered, or told after its wait that no router is there: none was lost."""
    return asked.answers.keys() <= {"200", "503 no_router"}
