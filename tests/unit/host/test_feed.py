"""Frames: one look for all, exactly what was missed, and copies that are equal to the board whatever came between."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.streams import lines_of

from remuda.base.errors import Unavailable
from remuda.client.mirror import Mirror, frames
from remuda.host import feed as feeds
from remuda.host.feed import BoardFeed, FeedFrame, Viewer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Board:
    """Rows that are changed by hand."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {"h": {"head": ""}}
        self.delta: dict[str, dict[str, Any] | None] = {}
        self.looks: list[bool] = []

    def look(self, *, numbers: bool) -> dict[str, dict[str, Any] | None]:
        self.looks.append(numbers)
        delta, self.delta = self.delta, {}
        return delta

    def put(self, row: str, state: str) -> None:
        self.rows[row] = {"name": row, "state": state}
        self.delta[row] = {"name": row, "state": state}

    def drop(self, row: str) -> None:
        if self.rows.pop(row, None):
            self.delta[row] = None


class Bed:
    """A feed over such a board, in invented time."""

    def __init__(self) -> None:
        self.board: Any = Board()
        self.time = 100.0
        self.lines: list[dict[str, Any]] = [{"id": 7, "workload": "a"}]
        self.is_silent = False
        self.feed = BoardFeed(cast("Any", self.board), 17, lambda: self.time, self.story)

    def story(self, after: int | None) -> list[dict[str, Any]]:
        if self.is_silent:
            raise Unavailable("locked")
        return self.lines[-1:] if after is None else [line for line in self.lines if line["id"] > after]

    def put(self, row: str, state: str) -> None:
        self.board.put(row, state)
        self.feed.tick()

    def join(self, topics: Any = ("board",), since: str = "", **more: Any) -> tuple[Viewer, list[FeedFrame]]:
        viewer = Viewer(topics, since, **more)
        return viewer, self.feed.join(viewer)


def run(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(act())


def waiting(viewer: Viewer) -> list[FeedFrame]:
    return [viewer.frames.get_nowait() for _ in range(viewer.frames.qsize())]


@pytest.fixture
def bed() -> Bed:
    return Bed()


async def test_the_first_frame_is_a_snapshot_and_deltas_follow(bed: Bed) -> None:
    viewer, (first,) = bed.join(["board"])
    assert (first.event, first.id) == ("snapshot", f"{bed.feed.epoch}.0")
    assert json.loads(first.data) == {"at": 100.0, "schema": 1, "rows": {"h": {"head": ""}}}
    bed.put("w/a", "pending")
    (delta,) = waiting(viewer)
    assert (delta.event, delta.id) == ("delta", f"{bed.feed.epoch}.1")
    assert json.loads(delta.data)["rows"] == {"w/a": {"name": "w/a", "state": "pending"}}
    bed.feed.tick()
    assert waiting(viewer) == [], "nothing has changed"


async def test_all_viewers_are_told_the_same_object(bed: Bed) -> None:
    viewers = [bed.join(["board"])[0] for _ in range(3)]
    bed.put("w/a", "pending")
    told = [waiting(viewer)[0] for viewer in viewers]
    assert told[0] is told[1] is told[2]
    assert bed.feed.missed("")[0] is bed.feed.missed("")[0], "a snapshot is made once"


async def test_who_comes_back_is_told_exactly_what_was_missed(bed: Bed) -> None:
    bed.join(["board"])
    for number in range(5):
        bed.put("w/a", str(number))
    _, known = bed.join(["board"], f"{bed.feed.epoch}.2")
    assert [frame.id.rpartition(".")[2] for frame in known] == ["3", "4", "5"]
    assert bed.join(["board"], f"{bed.feed.epoch}.5")[1] == []


async def test_what_changed_while_nobody_looked_is_one_delta(bed: Bed) -> None:
    viewer, _ = bed.join(["board"])
    bed.feed.leave(viewer)
    bed.board.put("w/a", "pending")
    bed.board.put("w/a", "running")
    _, (delta,) = bed.join(["board"], f"{bed.feed.epoch}.0")
    assert json.loads(delta.data)["rows"] == {"w/a": {"name": "w/a", "state": "running"}}


@pytest.mark.parametrize(("missed", "event"), [(600, "delta"), (601, "snapshot")])
def test_so_many_deltas_are_kept_and_no_more(bed: Bed, missed: int, event: str) -> None:
    for number in range(1000):
        bed.put("w/a", str(number))
    known = bed.feed.missed(f"{bed.feed.epoch}.{1000 - missed}")
    assert {frame.event for frame in known} == {event}
    assert len(known) == (600 if event == "delta" else 1)


@pytest.mark.parametrize("since", ["", "x", "17-0000.1", "EPOCH.2", "EPOCH.-1", "EPOCH.", "EPOCH.²"])
def test_an_id_that_means_nothing_here_gives_a_snapshot(bed: Bed, since: str) -> None:
    bed.put("w/a", "pending")
    assert [frame.event for frame in bed.feed.missed(since.replace("EPOCH", bed.feed.epoch))] == ["snapshot"]


def test_deltas_that_are_large_are_not_kept_for_ever(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RING_BYTES", 1000)
    for number in range(9):
        bed.put("w/a", f"{number}" * 400)
    assert len(bed.feed.missed(f"{bed.feed.epoch}.8")) == 1
    assert bed.feed.missed(f"{bed.feed.epoch}.1")[0].event == "snapshot"


async def test_numbers_are_looked_at_once_a_second_or_every_five_of_many_rows(bed: Bed) -> None:
    def looked(seconds: float) -> int:
        bed.board.looks.clear()
        for _ in range(round(seconds * 10)):
            bed.time += 0.1
            bed.feed.tick()
        return sum(bed.board.looks)

    bed.feed.tick()
    assert looked(10.05) in (9, 10)
    bed.board.rows.update({f"t/{number}": {} for number in range(5001)})
    assert looked(10.05) in (1, 2)
    bed.time -= 50.0
    bed.feed.tick()
    assert bed.board.looks[-1], "a clock that was set back stops nothing"


async def test_nobody_looks_nothing_is_looked_at(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TICK_S", 0.001)
    viewer, _ = bed.join(["board"])
    await asyncio.sleep(0.05)
    assert len(bed.board.looks) > 1
    bed.feed.leave(viewer)
    await asyncio.sleep(0.01)
    count = len(bed.board.looks)
    await asyncio.sleep(0.05)
    assert len(bed.board.looks) == count


async def test_who_does_not_read_is_closed_and_the_others_are_not(bed: Bed) -> None:
    closed: list[str] = []
    deaf, _ = bed.join(["board"], close=lambda: closed.append("deaf"))
    other, _ = bed.join(["board"], close=lambda: closed.append("other"))
    for number in range(feeds.QUEUE + 5):
        assert closed == (["deaf"] if number > feeds.QUEUE else [])
        bed.put("w/a", str(number))
        waiting(other)
    assert closed == ["deaf"]
    assert deaf.frames.qsize() == feeds.QUEUE


async def test_lines_of_stories_come_once_and_from_where_one_was(bed: Bed) -> None:
    viewer, known = bed.join(["events"])
    assert known == [], "old ones were not asked for"
    bed.lines.append({"id": 8, "workload": "a"})
    bed.put("w/a", "running")
    bed.feed.tick()
    (frame,) = waiting(viewer)
    assert (frame.event, frame.id, json.loads(frame.data)) == ("events", "", [{"id": 8, "workload": "a"}])
    bed.lines.append({"id": 9, "workload": "b"})
    _, (back,) = bed.join(["events"], after=7)
    assert [line["id"] for line in json.loads(back.data)] == [8, 9]
    assert [json.loads(frame.data)[0]["id"] for frame in waiting(viewer)] == [9]


async def test_a_database_that_does_not_answer_delays_lines(bed: Bed) -> None:
    viewer, _ = bed.join(["events"])
    bed.lines.append({"id": 8, "workload": "a"})
    bed.is_silent = True
    bed.put("w/a", "running")
    assert waiting(viewer) == []
    bed.is_silent, bed.time = False, bed.time + 2
    bed.feed.tick()
    assert len(waiting(viewer)) == 1


async def test_a_bug_does_not_end_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TICK_S", 0.001)
    monkeypatch.setattr(feeds, "NUMBERS_S", 0.001)
    viewer, _ = bed.join(["board"])
    look, bed.board.look = bed.board.look, None
    await asyncio.sleep(0.02)
    bed.board.look = look
    bed.board.put("w/a", "running")
    assert (await viewer.next(5.0) or FeedFrame("", b"")).event == "delta"


async def test_at_the_end_all_are_told_so(bed: Bed) -> None:
    async def told() -> list[str]:
        return [frame.event if frame else "" async for frame in bed.feed.frames(Viewer())]

    viewers = [asyncio.create_task(told()) for _ in range(3)]
    await asyncio.sleep(0)
    await bed.feed.end()
    assert await asyncio.gather(*viewers) == [["snapshot", "bye"]] * 3
    assert await told() == ["snapshot", "bye"], "one that comes too late"


async def test_a_long_poll_gets_what_is_there_or_waits(bed: Bed) -> None:
    (snapshot,) = await bed.feed.next(Viewer(since=""), 0.0)
    assert await bed.feed.next(Viewer(since=snapshot.id), 0.01) == []
    asked = asyncio.create_task(bed.feed.next(Viewer(since=snapshot.id), 60.0))
    await asyncio.sleep(0)
    bed.put("w/a", "running")
    assert [frame.event for frame in await asked] == ["delta"]
    assert [frame.event for frame in await bed.feed.next(Viewer(since=snapshot.id), 0.0)] == ["delta"]


async def test_where_nothing_happens_there_is_a_beat(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BEAT_S", 0.001)
    told = bed.feed.frames(Viewer())
    assert [(await anext(told)) is None for _ in range(3)] == [False, True, True]
    await told.aclose()
    assert not bed.feed.viewers


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.sampled_from(["pending", "running"])),
        st.tuples(st.just("drop"), st.sampled_from("abc"), st.just("")),
        st.tuples(st.just("tick"), st.just(""), st.just("")),
        st.tuples(st.just("read"), st.just(""), st.just("")),
        st.tuples(st.just("leave"), st.just(""), st.just("")),
        st.tuples(st.just("host"), st.just(""), st.just("")),
    ),
    max_size=40,
)


@given(acts=ACTS)
def test_any_interleaving_ends_equal_to_a_fresh_snapshot(acts: list[tuple[str, str, str]]) -> None:
    async def act() -> None:
        bed, client = Bed(), None
        mirror = Mirror(client)  # type: ignore[arg-type]
        viewer, known = bed.join(["board"])

        def take(told: list[FeedFrame]) -> None:
            for frame in frames(line for one in told for line in lines_of(one)):
                mirror.take(frame)

        take(known)
        for what, row, state in acts:
            match what:
                case "put":
                    bed.board.put(row, state)
                case "drop":
                    bed.board.drop(row)
                case "tick":
                    bed.feed.tick()
                case "read":
                    take(waiting(viewer))
                case "leave":
                    bed.feed.leave(viewer)
                    viewer, known = bed.join(["board"], mirror.id)
                    take(known)
                case _:
                    bed.feed = BoardFeed(bed.board, 18, lambda: bed.time, bed.story)
                    bed.board.delta = {}
                    viewer, known = bed.join(["board"], mirror.id)
                    take(known)
        bed.feed.tick()
        take(waiting(viewer))
        assert mirror.rows == json.loads(bed.feed.missed("")[0].data)["rows"]
        assert mirror.id == bed.feed.missed("")[0].id

    run(act)
