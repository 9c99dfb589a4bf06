"""What faces do with supervised runs: change, wait, follow. Runs in the user's process."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from remuda.base.errors import NotFound, RemudaError
from remuda.base.ids import api_path
from remuda.client import mirror, reconnect
from remuda.client.http import HostClient, connect

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


def names_group(words: Sequence[str], client: HostClient | None = None) -> bool:
    """Whether the second of two words is a group of the first, or indices of that array, and no workload of its own.

    Raises:
        NotFound: there is no workload that the first names.
    """
    if len(words) != 2:
        return False
    host = client or connect()
    view = host.get(api_path(words[0]))
    is_index = "array" in view["labels"] and (words[1][:1].isdigit() or "," in words[1])
    if not is_index and words[1] not in {task["task"].partition("/")[0] for task in view["tasks"]}:
        return False
    try:
        host.get(api_path(words[1]))
    except NotFound:
        return True
    return False


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
class FollowedLine:
    """One line of what a follower sees."""

    text: str
    is_output: bool = True
    """False: about the run, not of it."""


def follow(name: str, client: HostClient | None = None) -> Iterator[FollowedLine]:
    """Output of a run over all of its attempts, from now on until it has ended, with what happens in between."""
    host = client or connect()
    if look_up([name], host)[0]["run"] is None:
        yield from follow_all(name, host)
        return
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
            yield FollowedLine(line, is_output=False)
        while shown < begun_of(task):
            shown += 1
            for text in output(host, name, shown):
                yield FollowedLine(text)


def begun_of(task: Mapping[str, Any]) -> int:
    """How many attempts of a task have begun."""
    return int(task["attempt"]) - (task["phase"] in ("submitting", "pending"))


def output(host: HostClient, name: str, attempt: int, task: str = "") -> Iterator[str]:
    """What an attempt of a task writes until it ends; nothing of one that was never begun."""
    with suppress(NotFound):
        yield from reconnect.follow(host, api_path(name, "logs"), task=task, tail=0, attempt=attempt)


def follow_all(name: str, host: HostClient) -> Iterator[FollowedLine]:
    """Output of all tasks over all of their attempts, each line with its task, and what becomes of each of them."""
    follower = _Follower(host, name)
    Thread(target=follower.watch, daemon=True).start()
    while (said := follower.lines.get()) is not None:
        if isinstance(said, Exception):
            raise said
        yield said


class _Follower:
    """One thread that looks at the workload, and one for each task that has begun, which reads its output."""

    def __init__(self, host: HostClient, name: str) -> None:
        self._host = host
        self._name = name
        self.lines: SimpleQueue[FollowedLine | Exception | None] = SimpleQueue()
        """What there is to show; None at the end."""
        self._begun: dict[str, int] = {}
        """Attempts of each task that have begun."""
        self._is_over = False
        self._news = Condition()

    def watch(self) -> None:
        """Tell what becomes of the tasks, and begin to read each of them."""
        readers: dict[str, Thread] = {}
        told: dict[str, str] = {}
        try:
            for views in wait_ended([self._name], self._host):
                for view in views[0]["tasks"]:
                    task = str(view["task"])
                    with self._news:
                        self._begun[task] = begun_of(view)
                        self._news.notify_all()
                    if (news := _news(view)) != told.get(task):
                        told[task] = news
                        self.lines.put(FollowedLine(news, is_output=False))
                    if self._begun[task] and task not in readers:
                        readers[task] = Thread(target=self._read, args=(task,), daemon=True)
                        readers[task].start()
            self._end()
            for reader in readers.values():
                reader.join()
        except Exception as error:  # noqa: BLE001 - told by whoever reads the lines
            self._end()
            self.lines.put(error)
        self.lines.put(None)

    def _end(self) -> None:
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def _read(self, task: str) -> None:
        """The output of a task, one attempt after the other."""
        shown = 0
        with suppress(RemudaError):
            while self._has_begun(task, shown):
                shown += 1
                for text in output(self._host, self._name, shown, task):
                    self.lines.put(FollowedLine(f"{task}: {text}"))

    def _has_begun(self, task: str, shown: int) -> bool:
        """Whether there is an attempt behind the one that was shown, which is waited for until all is over."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._begun[task] > shown)
            return self._begun[task] > shown


def _news(task: dict[str, Any]) -> str:
    attempt = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    return f"{task['task']}: {task['phase']}{attempt}" + (f": {task['reason']}" if task["reason"] else "")
