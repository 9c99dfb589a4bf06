"""A client's copy of the board, and waiting by it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.client.streams import Streaming, lines_of

from remuda.base.errors import Conflict, HostUnreachable, NotFound, RemudaError, Unavailable
from remuda.client import mirror, reconnect
from remuda.client.mirror import Mirror, Told, wait
from remuda.host.feed import FeedFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_frames_are_read_whatever_is_between_them() -> None:
    text = 'retry: 2000\n\nid: 1-a.3\nevent: delta\ndata: {"rows": {}}\n\n: beat\n\nevent: bye\ndata: {}\n\nevent: cut'
    assert list(mirror.frames(text.split("\n"))) == [Told("1-a.3", "delta", {"rows": {}}), Told("", "bye", {})]


def test_a_snapshot_tells_all_and_what_is_gone() -> None:
    client: Any = None
    copy = Mirror(client)
    first = {"w/a": {"state": "pending", "rate": ""}, "w/b": {"state": "running"}}
    assert copy.take(Told("1-a.1", "snapshot", {"rows": first})) == first
    second = {"w/a": {"state": "running", "rate": ""}, "w/c": {"state": "running"}}
    assert copy.take(Told("2-b.7", "snapshot", {"rows": second})) == {
        "w/a": {"state": "running", "rate": ""}, "w/b": None, "w/c": {"state": "running"},
    }  # fmt: skip
    assert (copy.rows, copy.id) == (second, "2-b.7")


class Host(Streaming):
    """Counts who asks for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        return {"name": path.rpartition("/")[2], "phase": str(len(self.asked))}


class Saying(Host):
    """A host that sends these rows, one delta after the other, and ends; then the next one comes, and at last none."""

    error: RemudaError = Conflict("no stream here")

    def __init__(self, *lives: list[dict[str, Any]]) -> None:
        super().__init__()
        self.lives = list(lives)
        self.since: list[object] = []

    def lines(self, path: str, quiet_s: Callable[[], float], /, **query: Any) -> Iterator[str]:
        self.since.append(query["since"])
        if not self.lives:
            raise self.error
        for rows in self.lives.pop(0):
            yield from lines_of(FeedFrame("delta", json.dumps({"rows": rows}).encode(), f"1-a.{len(self.since)}"))


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why the next host was waited for."""
    told: list[str] = []
    monkeypatch.setattr(reconnect.Waiting, "wait", lambda _, error: told.append(error.message))
    monkeypatch.setattr(mirror, "_LOOK_AGAIN_S", 0.0)
    return told


def test_who_waits_asks_only_for_what_has_changed(waited: list[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"w/a": {"state": "pending"}, "w/b": {"state": "pending"}}, {"w/c": {"state": "running"}},
        {"t/a/replica/0": {"rate": "7 tok/s", "gpus": "8"}}, {"t/b/replica/0": {"state": "ready"}}, {"w/a": None},
    ]  # fmt: skip
    host: Any = Saying(rows)
    told = wait(host, ["a", "b"], lambda views: views[0]["phase"] == "4")
    seen = [[view["phase"] for view in views] for views in told]
    assert seen == [["1", "2"], ["1", "3"], ["4", "3"]]
    assert waited == []


def test_it_goes_on_with_the_next_host(waited: list[str]) -> None:
    host: Any = Saying([{"w/a": {"state": "pending"}}], [{"w/a": {"state": "running"}}])
    assert len(list(wait(host, ["a"], lambda views: len(host.asked) == 2))) == 2
    assert host.since == [None, "1-a.1"]
    assert waited == ["the host has ended"]


@pytest.mark.parametrize("error", [Conflict("no stream here"), Unavailable("64 follow already")])
def test_a_host_that_does_not_tell_is_looked_at_again_and_again(error: RemudaError) -> None:
    host: Any = Saying()
    host.error = error
    assert [views[0]["phase"] for views in wait(host, ["a"], lambda views: views[0]["phase"] == "3")] == ["1", "2", "3"]


def test_a_limit_ends_it_after_at_least_one_look() -> None:
    host: Any = Host()
    assert len(list(wait(host, ["herd"], limit_s=0.01))) == 1
    assert len(list(wait(host, ["herd"], limit_s=-1.0))) == 1


@pytest.mark.parametrize("names", [{"a"}, None, {"b"}])
def test_ticks_go_on_while_nothing_changes(names: set[str] | None) -> None:
    ended = threading.Event()

    class Quiet(Saying):
        def lines(self, path: str, quiet_s: Callable[[], float], /, **query: Any) -> Iterator[str]:
            yield from super().lines(path, quiet_s, **query)
            ended.wait(60)
            raise HostUnreachable("it went away")

    host: Any = Quiet([{"w/a": {"state": "pending"}}, {"w/a": {"state": "running"}}, {"w/a": {"rate": "1"}}])
    host.error = NotFound("that was all")
    found = mirror.ticks(host, names, 0.01)
    told = [next(found) for _ in range(20)]
    assert told[0] is True, "at first, whatever there is"
    assert told[3:] == [False] * 17
    assert len(host.since) == 1, "it was asked once"
    ended.set()
    with pytest.raises(NotFound):
        list(found)


@pytest.mark.parametrize(
    ("delta", "names", "with_numbers"),
    [
        ({"w/a": {"state": "running"}, "h": {"head": "1 item"}}, {"a"}, {"a"}),
        ({"t/a/replica/0": {"rate": "7 tok/s"}, "t/b/replica/0": None}, {"b"}, {"a", "b"}),
        ({}, set(), set()),
    ],
)
def test_whose_rows_have_changed(delta: dict[str, Any], names: set[str], with_numbers: set[str]) -> None:
    assert (mirror.touched(delta), mirror.touched(delta, numbers=True)) == (names, with_numbers)
