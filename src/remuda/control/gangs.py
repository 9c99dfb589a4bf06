"""What faces do with gangs: plan, start, follow, look at their rounds. Runs in the user's process."""

from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError, RemudaError, TimedOut
from remuda.base.ids import api_path
from remuda.control import ending, runs
from remuda.control.client import HostClient, connect
from remuda.control.runs import Said

if TYPE_CHECKING:
    from collections.abc import Iterator


INSTALL = "pip install 'remuda[gang]'"
_LEFT_S = 120.0
"""How long the ranks of a gang that has failed are waited for; the host ends them, whoever looks."""


def ended(name: str, client: HostClient | None = None) -> dict[str, Any]:
    """Wait until a gang has ended, and until nothing is left of the ranks that one which failed has let down."""
    host = client or connect()
    view = runs.ended([name], host)[0]
    if view["phase"] == "FAILED":
        with suppress(TimedOut):
            ending.wait_down(name, _LEFT_S, host)
    return view


def follow(name: str, client: HostClient | None = None) -> Iterator[Said]:
    """Output of all ranks over all of their attempts, each line with its rank, and what becomes of each of them.

    Ends when the gang has ended.
    """
    follower = _Follower(client or connect(), name)
    Thread(target=follower.watch, daemon=True).start()
    while (said := follower.lines.get()) is not None:
        if isinstance(said, Exception):
            raise said
        yield said


class _Follower:
    """One thread that looks at the gang, and one for each rank that reads its output."""

    def __init__(self, host: HostClient, name: str) -> None:
        self._host = host
        self._name = name
        self.lines: SimpleQueue[Said | Exception | None] = SimpleQueue()
        """What there is to show; None at the end."""
        self._begun: dict[str, int] = {}
        """Attempts of each rank that have begun."""
        self._is_over = False
        self._news = Condition()

    def watch(self) -> None:
        """Tell what becomes of the ranks, and begin to read each of them."""
        readers: dict[str, Thread] = {}
        told: dict[str, str] = {}
        try:
            for views in runs.wait_ended([self._name], self._host):
                for task in views[0]["tasks"]:
                    rank = str(task["task"])
                    with self._news:
                        self._begun[rank] = runs.begun_of(task)
                        self._news.notify_all()
                    if (news := _news(task)) != told.get(rank):
                        told[rank] = news
                        self.lines.put(Said(news, is_output=False))
                    if rank not in readers:
                        readers[rank] = Thread(target=self._read, args=(rank,), daemon=True)
                        readers[rank].start()
            ended(self._name, self._host)
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

    def _read(self, rank: str) -> None:
        """The output of a rank, one attempt after the other."""
        shown = 0
        with suppress(RemudaError):
            while self._has_begun(rank, shown):
                shown += 1
                for text in runs.output(self._host, self._name, shown, rank):
                    self.lines.put(Said(f"{rank}: {text}"))

    def _has_begun(self, rank: str, shown: int) -> bool:
        """Whether there is an attempt behind the one that was shown, which is waited for until all is over."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._begun[rank] > shown)
            return self._begun[rank] > shown


def _news(task: dict[str, Any]) -> str:
    attempt = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    return f"{task['task']}: {task['phase']}{attempt}" + (f": {task['reason']}" if task["reason"] else "")


def rounds(target: str, run_id: str = "", client: HostClient | None = None) -> dict[str, Any]:
    """What the ranks have trained together so far.

    Args:
        target: name of a gang, or URL of a rendezvous.
        run_id: of what is trained, with a URL.
        client: of the host.

    Raises:
        InputError: it is no gang, or which run is meant is not said, or what reads a rendezvous is not installed.
        NotFound: there is no gang of that name.
    """
    from remuda.plan.gang import RENDEZVOUS, RUN_ID
    from remuda.plan.kinds import Kind

    url = target
    if "://" in target:
        if not run_id:
            raise InputError("a rendezvous may have several runs in it", hint="say which: --run-id ID", where="URL")
    else:
        view = (client or connect()).get(api_path(target))
        if view["kind"] != Kind.GANG:
            raise InputError(f"{target!r} is a {view['kind']}, which has no rounds", where="NAME")
        url, run_id = view["labels"][RENDEZVOUS], run_id or view["labels"][RUN_ID]
    try:
        from remuda.gang.rounds import summary
    except ImportError as error:
        raise InputError(f"rounds cannot be read without numpy and obstore ({error})", hint=INSTALL) from error
    return summary(url, run_id).to_json()
