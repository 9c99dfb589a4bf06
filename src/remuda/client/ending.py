"""Taking workloads down from the user's process: it waits until nothing is left, or says what is."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, HostUnreachable, Interrupted, NotFound, TimedOut
from remuda.base.ids import api_path
from remuda.client import reconnect
from remuda.client.http import HostClient, connect, looking
from remuda.specs.places import is_here, traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_LOOK_AGAIN_S = 0.1
_HOST_WAITS_S = 0.5
"""For so long the host waits before it answers that some still end."""
_SWEEP_AGAIN_S = 0.5
"""Between two questions to backends about those that are down."""
_FORCE_AFTER_S = 10.0
"""What is left of a workload that is down is asked to end, and killed after so long."""
_TELL_AFTER_S = 2.0
"""A wait that is shorter needs no progress."""
_JOB = re.compile(r"\d+(_\d+)?")


def take_down(
    names: Sequence[str],
    *,
    uid: str = "",
    everything: bool = False,
    wait_s: float = 120.0,
    remove: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Take workloads down; yields each name when nothing of it is left (at once when `wait_s` is 0).

    Args:
        names: of the workloads; those that are down already are fine.
        uid: of the only one: no other that has its name by now is meant.
        everything: all that are not down, too.
        wait_s: how long to wait for all of them together.
        remove: forget them afterwards.
        tell: is given a sentence when what still ends has changed, and the wait is a long one.

    Raises:
        Conflict: another workload than `uid` has the name.
        TimedOut: something is left, or nobody can say whether it is; says what, and how to go on.
        Interrupted: Ctrl-C while waiting. They go on going down.
    """
    host = looking(starts=True) if names else connect(start=False)
    if everything:
        names = [*names, *(view["name"] for view in host.get("/workloads"))]
    waits = [_Wait(name) for name in dict.fromkeys(names)]
    meant = dict.fromkeys(names, uid) if uid else {}
    reconnect.post(host, "/workloads/batch/down", {"names": [wait.name for wait in waits], "uids": meant}, brief="true")
    try:
        yield from _ended(host, waits, wait_s, remove=remove, tell=tell)
    except KeyboardInterrupt:
        left = ", ".join(wait.name for wait in waits if not wait.is_over)
        raise Interrupted(
            f"not waited for: {left}; the host keeps taking it down",
            hint=f"wait again: remuda down {left.replace(',', '')}",
        ) from None


def wait_down(name: str, wait_s: float, host: HostClient) -> None:
    """Wait until nothing is left of what somebody else takes down.

    Raises:
        TimedOut: see `take_down`.
    """
    tuple(_ended(host, [_Wait(name)], wait_s, remove=False, tell=lambda _: None))


def _ended(
    host: HostClient, waits: Sequence[_Wait], wait_s: float, *, remove: bool, tell: Callable[[str], None]
) -> Iterator[str]:
    begun, looker, pause_s = time.monotonic(), _Looker(host), 0.0
    left = list(waits)
    while True:
        is_long = time.monotonic() - begun > min(_TELL_AFTER_S, wait_s / 2)
        if wait_s:
            pause_s = looker.look(left, told=is_long)
        for wait in left:
            wait.is_over |= not wait_s
            if wait.is_over:
                if remove and (left_behind := _forget(host, wait.name, must=bool(wait_s))):
                    tell(f"{left_behind} is left: remuda did not make it")
                yield wait.name
        left = [wait for wait in left if not wait.is_over]
        passed = time.monotonic() - begun
        if not left:
            return
        if passed > wait_s and is_long:
            raise _not_down(left, wait_s)
        if is_long:
            for wait in left:
                wait.tell(tell)
        time.sleep(pause_s)


class _Looker:
    """Asks the host how all stand that are waited for: one question, however many they are."""

    def __init__(self, host: HostClient) -> None:
        self._host = host
        self._swept_at = float("-inf")
        self._has_looked = False

    def look(self, waits: Sequence[_Wait], *, told: bool) -> float:
        """Take in how they stand; seconds until the next look.

        Args:
            waits: those that are waited for.
            told: ask about those that still end, too: what is left of a thousand is much to tell.
        """
        begun = time.monotonic()
        # Backends are asked about all at once when all are down, and meanwhile now and then about those that are.
        swept = not self._has_looked or (
            begun - self._swept_at >= _SWEEP_AGAIN_S and any(wait.is_down for wait in waits)
        )
        force = [wait.name for wait in waits if wait.is_stubborn(begun)]
        # What was seen to be down is only to be swept; the host waits for the others, which is cheaper than to ask.
        wait_s = 0.0 if all(wait.is_down for wait in waits) else _HOST_WAITS_S
        names = [wait.name for wait in waits]
        body = {"names": names, "swept": swept, "told": told, "wait_s": wait_s, "force": force}
        by_name = {wait.name: wait for wait in waits}
        try:
            for view in self._host.post("/workloads/batch/ending", body):
                by_name[view["name"]].take(view, begun)
        except HostUnreachable:
            connect()  # the intent is recorded: whichever host comes goes on with it
        self._has_looked, now = True, time.monotonic()
        if swept and any(wait.is_down for wait in waits):
            self._swept_at = now
        if all(wait.is_down for wait in waits):
            return _SWEEP_AGAIN_S
        return max(0.0, _LOOK_AGAIN_S - (now - begun))


def _forget(host: HostClient, name: str, *, must: bool) -> str:
    """Forget it; a folder of it that the host does not remove, else empty."""
    try:
        answer = host.delete(api_path(name))
    except NotFound:
        return ""
    except Conflict:
        if must:
            raise
        return ""
    return str(answer["left"]) if answer else ""


class _Wait:
    """One workload that is to be down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.view: Mapping[str, Any] = {}
        self._down_since = 0.0
        self._told = ""

    def take(self, view: Mapping[str, Any], now: float) -> None:
        """Note how it stands."""
        self.view, self.is_over = view, bool(view["over"])
        self._down_since = self._down_since or now if view["phase"] == "DOWN" else 0.0

    @property
    def is_down(self) -> bool:
        """Whether the supervisor has nothing more to end."""
        return bool(self.view) and self.view["phase"] == "DOWN"

    def is_stubborn(self, now: float) -> bool:
        """Whether what is left of it was asked to end long ago."""
        return self._down_since > 0 and now - self._down_since > _FORCE_AFTER_S

    def jobs(self) -> list[str]:
        """Ids of the scheduler's jobs that are left, or may be."""
        natives = [task["native"] for task in self.view["left"]]
        natives += [stray["native"] for stray in self.view["strays"] if not is_here(stray["backend"])]
        return list(dict.fromkeys(native for native in natives if _JOB.fullmatch(native)))

    def left(self) -> str:
        """What is left, with its ids."""
        texts = [_task(task) for task in self.view["left"]]
        if self.view["phase"] == "DOWN":
            texts = [_stray(stray) for stray in self.view["strays"]]
        return ", ".join(filter(None, texts)) or str(self.view["reason"])

    def sentence(self) -> str:
        """How it stands, as the rest of a sentence that begins with its name."""
        if not self.view:
            return "the host does not answer"
        if self.view["silence"]:
            left = f"; perhaps left: {self.left()}" if self.left() else ""
            return f"{self.view['silence']}, so whether it has ended is unknown{left}"
        return f"left: {self.left()}"

    def tell(self, tell: Callable[[str], None]) -> None:
        """Say how it stands, if that has changed."""
        text = f"{self.name} still ends; {self.sentence()}"
        if text != self._told:
            tell(text)
        self._told = text


def _task(task: Mapping[str, Any]) -> str:
    if _JOB.fullmatch(task["native"]):
        return f"{task['task']} (job {task['native']} on {task['node'] or 'no node'})"
    return f"{task['task']} (pid {task['pid']} on {task['node']})" if task["pid"] else ""


def _stray(stray: Mapping[str, Any]) -> str:
    return f"{stray['task']} ({traits(stray['backend']).unit} {stray['native']} on {stray['node'] or 'no node'})"


def _not_down(left: Sequence[_Wait], wait_s: float) -> TimedOut:
    """What did not end in time, and how to go on."""
    sentences = [f"{wait.name} is not down after {wait_s:.0f} s; {wait.sentence()}" for wait in left]
    names = " ".join(wait.name for wait in left)
    hint = f"its record is kept and the host keeps ending it; wait again: remuda down {names}"
    jobs = [job for wait in left if wait.view for job in wait.jobs()]
    if jobs:
        hint += f"; by hand: scancel {' '.join(jobs)}"
    return TimedOut("\n".join(sentences), hint=f"{hint}; afterwards remuda doctor shows what is left")
