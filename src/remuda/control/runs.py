"""What faces do with supervised runs: change, wait, follow. Runs in the user's process."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.base.errors import NotFound
from remuda.base.ids import api_path
from remuda.control import again, mirror
from remuda.control.client import HostClient, connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def change(verb: str, names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """`pause`, `unpause`, `down` or `restart` of several workloads; their views, in order.

    Every name is looked up before the first is changed.

    Raises:
        NotFound: there is none of one of the names.
        Conflict: the state of one forbids it.
    """
    host = client or connect()
    return list(host.post(f"/workloads/batch/{verb}", {"names": list(names)}))


def look_up(names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """Views of workloads, in order.

    Raises:
        NotFound: there is none of one of the names.
    """
    host = client or connect()
    return [host.get(api_path(name)) for name in names]


def ended(names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """Wait until runs have ended, over the ends of hosts; their last views."""
    return deque(wait_ended(names, client), maxlen=1).pop()


def wait_ended(names: Sequence[str], client: HostClient | None = None) -> Iterator[list[dict[str, Any]]]:
    """Views of runs until all have ended; the last ones are the ends."""
    from remuda.supervise.summary import ENDED

    over = lambda views: all(view["phase"] in ENDED for view in views)  # noqa: E731
    return mirror.wait(client or connect(), names, over)


@dataclass(frozen=True)
class Said:
    """One line of what a follower sees."""

    text: str
    is_output: bool = True
    """False: about the run, not of it."""


def follow(name: str, client: HostClient | None = None) -> Iterator[Said]:
    """Output of a run over all of its attempts, from now on until it has ended, with what happens in between."""
    host = client or connect()
    shown, told = 0, ""
    for views in wait_ended([name], host):
        view = views[0]
        task = view["tasks"][0] if view["tasks"] else None
        if task is None:
            continue
        line = f"{name}: {task['phase']}" + (f" on {task['node']}" if task["node"] else "")
        line += f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
        line += f": {task['reason']}" if task["reason"] else ""
        if line != told:
            told = line
            yield Said(line, is_output=False)
        while shown < begun_of(task):
            shown += 1
            for text in output(host, name, shown):
                yield Said(text)


def begun_of(task: Mapping[str, Any]) -> int:
    """How many attempts of a task have begun."""
    return int(task["attempt"]) - (task["phase"] in ("submitting", "pending"))


def output(host: HostClient, name: str, attempt: int, task: str = "") -> Iterator[str]:
    """What an attempt of a task writes until it ends; nothing of one that was never begun."""
    with suppress(NotFound):
        yield from again.follow(host, api_path(name, "logs"), task=task, tail=0, attempt=attempt)
