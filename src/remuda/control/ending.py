"""Taking workloads down from the user's process: it waits until nothing is left, or says what is."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, HostUnreachable, Interrupted, NotFound, TimedOut, Unavailable
from remuda.control.client import HostClient, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_LOOK_AGAIN_S = 0.1
_FORCE_AFTER_S = 10.0
"""What is left of a workload that is down is asked to end, and killed after so long."""
_TELL_AFTER_S = 2.0
"""A wait that is shorter needs no progress."""
_OVER = frozenset({"waiting", "failed", "done", "stopped"})
"""Phases of tasks that have no allocation."""
_JOB = re.compile(r"\d+(_\d+)?")


def take_down(
    names: Sequence[str],
    *,
    everything: bool = False,
    wait_s: float = 120.0,
    remove: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Take workloads down; yields each name when nothing of it is left (at once when `wait_s` is 0).

    Args:
        names: of the workloads; those that are down already are fine.
        everything: all that are not down, too.
        wait_s: how long to wait for all of them together.
        remove: forget them afterwards.
        tell: is given a sentence when what still ends has changed, and the wait is a long one.

    Raises:
        TimedOut: something is left, or nobody can say whether it is; says what, and how to go on.
        Interrupted: Ctrl-C while waiting. They go on going down.
    """
    host = connect(start=bool(names))
    if everything:
        names = [*names, *(view["name"] for view in host.get("/workloads"))]
    waits = [_Wait(name) for name in dict.fromkeys(names)]
    host.post("/workloads/batch/down", {"names": [wait.name for wait in waits]})
    try:
        yield from _ended(host, waits, wait_s, remove=remove, tell=tell)
    except KeyboardInterrupt:
        left = ", ".join(wait.name for wait in waits if not wait.is_over)
        raise Interrupted(
            f"not waited for: {left}; the host goes on taking it down",
            hint=f"wait again: remuda down {left.replace(',', '')}",
        ) from None


def _ended(
    host: HostClient, waits: Sequence[_Wait], wait_s: float, *, remove: bool, tell: Callable[[str], None]
) -> Iterator[str]:
    begun = time.monotonic()
    while True:
        for wait in waits:
            if wait.is_over or (wait_s and not wait.look(host)):
                continue
            wait.is_over = True
            if remove:
                left_behind = _forget(host, wait.name, must=bool(wait_s))
                if left_behind:
                    tell(f"{left_behind} is left: remuda did not make it")
            yield wait.name
        left = [wait for wait in waits if not wait.is_over]
        passed = time.monotonic() - begun
        if not left:
            return
        if passed > wait_s:
            raise _not_down(left, wait_s)
        if passed > min(_TELL_AFTER_S, wait_s / 2):
            for wait in left:
                wait.tell(tell)
        time.sleep(_LOOK_AGAIN_S)


def _forget(host: HostClient, name: str, *, must: bool) -> str:
    """Forget it; a folder of it that the host does not remove, else empty."""
    try:
        answer = host.delete(f"/workloads/{name}")
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
        self.strays: list[Mapping[str, Any]] = []
        self.silence = ""
        """Why nobody can say whether something is left; empty when somebody can."""
        self._down_since = 0.0
        self._told = ""

    def look(self, host: HostClient) -> bool:
        """Whether nothing is left."""
        try:
            self.view = host.get(f"/workloads/{self.name}")
            return self.view["phase"] == "DOWN" and self._is_swept(host)
        except HostUnreachable:
            connect()  # the intent is recorded: whichever host comes goes on with it
        except NotFound:
            return True  # somebody else has removed it meanwhile, which needs it to be down
        return False

    def _is_swept(self, host: HostClient) -> bool:
        now = time.monotonic()
        self._down_since = self._down_since or now
        force = now - self._down_since > _FORCE_AFTER_S
        try:
            self.strays = host.post(f"/workloads/{self.name}/sweep", force=str(force).lower()) or []
            self.silence = ""
        except HostUnreachable:
            raise
        except Unavailable as error:
            self.silence = str(error)
            return False
        return not self.strays

    def jobs(self) -> list[str]:
        """Ids of the scheduler's jobs that are left, or may be."""
        natives = [task["native"] for task in self.view["tasks"] if task["phase"] not in _OVER]
        natives += [stray["native"] for stray in self.strays if stray["backend"] != "local"]
        return list(dict.fromkeys(native for native in natives if _JOB.fullmatch(native)))

    def left(self) -> str:
        """What is left, with its ids."""
        texts = [_task(task) for task in self.view["tasks"] if task["phase"] not in _OVER]
        if self.view["phase"] == "DOWN":
            texts = [_stray(stray) for stray in self.strays]
        return ", ".join(filter(None, texts)) or str(self.view["reason"])

    def sentence(self) -> str:
        """How it stands, as the rest of a sentence that begins with its name."""
        silence = self.silence or self.view.get("unreachable", "")
        if silence:
            left = f"; perhaps left: {self.left()}" if self.left() else ""
            return f"{silence}, so nobody can say whether it has ended{left}"
        return f"left: {self.left()}" if self.view else "the host does not answer"

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
    kind = "pid" if stray["backend"] == "local" else "job"
    return f"{stray['task']} ({kind} {stray['native']} on {stray['node'] or 'no node'})"


def _not_down(left: Sequence[_Wait], wait_s: float) -> TimedOut:
    """What did not end in time, and how to go on."""
    sentences = [f"{wait.name} is not down after {wait_s:.0f} s; {wait.sentence()}" for wait in left]
    names = " ".join(wait.name for wait in left)
    hint = f"its record is kept and the host goes on ending it; wait again: remuda down {names}"
    jobs = [job for wait in left if wait.view for job in wait.jobs()]
    if jobs:
        hint += f"; by hand: scancel {' '.join(jobs)}"
    return TimedOut("\n".join(sentences), hint=f"{hint}; afterwards remuda doctor tells what is left")
