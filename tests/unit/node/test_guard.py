"""When a guard ends what runs on its node, and how long a new attempt waits for the guards before it."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from remuda.node.guard import member_line
from remuda.node.guard.guard import GAP_S, WORRY_S, FirstNodeWatch
from remuda.node.guard.guard_client import Unguarded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Fence:
    """Answers at once, when it is asked."""

    def __init__(self) -> None:
        self.broken_by = ""
        self.next = ""
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        self.broken_by = self.next


class Pair:
    """A guard's watch and the first node's end of its line, in time that the test makes."""

    def __init__(self) -> None:
        here, self.there = socket.socketpair()
        self.line = member_line.MemberLine(here)
        self.fence = Fence()
        self.watch = FirstNodeWatch(self.line, self.fence, 60.0)  # type: ignore[arg-type]
        # Whole, so that sums are exact: on the machine's own clock a limit may be passed by a rounding.
        self.now = self.line.heard_at = self.watch._said_at = self.watch._turned_at = 1000.0

    def after(self, seconds: float, *, said: bytes = b"", step: float = 1.0) -> str:
        """What the watch says when so long has passed, in steps."""
        self.there.sendall(said) if said else None
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            why = self.watch.turn(self.now)
            if why:
                return why
        return ""


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.there.close()
    made.line.close()


def test_while_the_first_node_is_heard_the_file_system_is_left_alone(pair: Pair) -> None:
    for _ in range(50):
        pair.line.heard_at = pair.now  # a beat came
        assert pair.after(WORRY_S - 1) == ""
    assert pair.fence.asked == 0


def test_a_silent_first_node_is_borne_for_a_while_and_no_longer(pair: Pair) -> None:
    assert pair.after(59) == ""
    assert pair.after(3) == "nothing was heard of the first node for 61 s"


def test_in_a_silence_another_attempt_is_seen_at_once(pair: Pair) -> None:
    pair.fence.next = "w.script.0.2.u counts now, not w.script.0.1.u"
    assert pair.after(WORRY_S) == ""
    assert pair.after(2) == pair.fence.next


def test_a_line_that_ends_and_a_word_that_it_must(pair: Pair) -> None:
    assert pair.after(1, said=b'{"end": true}\n') == "the first node says so"
    pair.there.close()
    assert pair.after(1) == "the first node has gone"


def test_what_this_program_itself_did_not_hear_is_nobodys_silence(pair: Pair) -> None:
    """Stopped for two minutes, or the machine slept: the first node has all of its time again."""
    assert pair.after(5) == ""
    assert pair.after(GAP_S + 110, step=GAP_S + 110) == ""
    assert pair.after(59) == ""
    assert pair.after(3).startswith("nothing was heard")


def attempt(root: Path, number: int, **files: float) -> Path:
    """An attempt's directory with files that are so many seconds old."""
    folder = root / f"attempt-{number}-abcd1234"
    (folder / "guards").mkdir(parents=True)
    for name, age in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.write_text("75.0\n" if name.endswith("here") else "")
        os.utime(path, (time.time() - age, time.time() - age))
    return folder


@pytest.mark.parametrize(
    ("files", "least", "most"),
    [
        pytest.param({"guards__n2_here": 500}, 0, 0, id="its time is over: the first node is not heard since"),
        pytest.param({"guards__n2_here": 500, "heartbeat": 0}, 74, 75, id="the first node lived a moment ago"),
        pytest.param({"guards__n2_here": 500, "heartbeat": 30}, 43, 45, id="it lived half a minute ago"),
        pytest.param({"guards__n2_here": 500, "heartbeat": 0, "guards__n2_lost": 70}, 3, 5, id="lost before that"),
        pytest.param({"guards__n2_here": 500, "heartbeat": 40, "exit_json": 5}, 68, 70, id="it said its last word"),
        pytest.param({"guards__n2_here": 500, "heartbeat": 0, "guards__n2_ended": 1}, 0, 0, id="nothing is left"),
        pytest.param({"heartbeat": 0}, 0, 0, id="no guard ever came"),
        pytest.param({"guards__n2_here": -5000, "heartbeat": -9000}, 74, 75, id="a clock that was set back"),
    ],
)
def test_how_long_a_new_attempt_waits_for_a_guard(
    tmp_path: Path, files: dict[str, float], least: float, most: float
) -> None:
    begun = time.monotonic()
    attempt(tmp_path, 1, **files)
    unguarded = Unguarded(attempt(tmp_path, 3), 1000.0)
    late = time.monotonic() - begun  # by so much are all the files older now
    waits = next(seconds for seconds in range(200) if not unguarded.look(1000.0 + seconds))
    assert least - late <= waits <= most + 1
    if waits:
        assert unguarded.look(999.0) == []


def test_it_waits_for_each_guard_of_each_attempt_until_it_has_said_that_nothing_is_left(tmp_path: Path) -> None:
    first = attempt(tmp_path, 1, guards__n2_here=9, guards__n3_here=9, heartbeat=0)
    second = attempt(tmp_path, 2, guards__n4_here=9, heartbeat=0)
    own = attempt(tmp_path, 3, guards__n5_here=9, heartbeat=0)
    unguarded = Unguarded(own, 0.0)
    assert unguarded.look(1.0) == ["n2", "n3", "n4", "n5"], "also of an earlier start in the same directory"
    for folder, node in ((first, "n3"), (second, "n4"), (own, "n5"), (first, "n2")):
        assert node in unguarded.look(2.0)
        (folder / "guards" / f"{node}.ended").write_text("")
    assert unguarded.look(3.0) == []
