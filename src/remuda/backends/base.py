"""A place where tasks run, behind few verbs that can each be called again after a crash."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from remuda.wire.place import Place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from remuda.plan.model import Group, Pool, Workload
    from remuda.wire.fault import Fault
    from remuda.wire.report import Report


class Feature(StrEnum):
    """What a backend can do beyond the common verbs; listed, never guessed."""

    EXCLUDE_NODES = auto()
    """Can be told where not to run."""
    POOLS = auto()
    """Has several places to choose from."""


@dataclass(frozen=True, order=True)
class TaskKey:
    """One task: the `index`-th of a group of a workload."""

    workload: str
    group: str
    index: int

    def __str__(self) -> str:
        return f"{self.workload}/{self.group}/{self.index}"


def make_token(key: TaskKey, attempt: int, uid: str) -> str:
    """Name of one allocation for ever: two workloads of one name differ in `uid`, two tries in `attempt`."""
    return f"{key.workload}.{key.group}.{key.index}.{attempt}.{uid}"


SHARING: Final = frozenset({"rank", "prefill", "decode", "agg", "frontend", "balancer"})
"""Groups whose tasks may share an allocation (`Workload.pack`); no service of a deployment has such a name."""


def pack_token(token: str) -> str:
    """Name of the allocation that the tasks of a pack share, by the token of any of them; of others, one of nothing."""
    parts = read_token(token)
    return make_token(TaskKey(parts.workload, "pack" if parts.group in SHARING else "_", 0), parts.attempt, parts.uid)


@dataclass(frozen=True)
class Token:
    """A token taken apart."""

    workload: str
    group: str
    index: int
    attempt: int
    uid: str


def read_token(token: str) -> Token:
    """Take a token apart.

    Raises:
        ValueError: it was not made by `make_token`.
    """
    parts = token.rsplit(".", 4)
    if len(parts) != 5:
        raise ValueError(f"{token!r} is not an allocation's token")
    workload, group, index, attempt, uid = parts
    return Token(workload, group, int(index), int(attempt), uid)


_TOKEN = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\.[a-z0-9_-]+\.[0-9]+\.[0-9]+\.[a-z0-9]{8}(-[1-9][0-9]*)?")


def is_token(name: str) -> bool:
    """Whether a name that somebody's job or process has is a token of ours: it has all of its parts, in their shape."""
    return _TOKEN.fullmatch(name) is not None


@dataclass(frozen=True)
class Request:
    """One allocation to make. Same token, same allocation, however often it is submitted."""

    key: TaskKey
    attempt: int
    token: str
    workload: Workload
    group: Group
    exclude_nodes: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = ()
    """Where to ask for it: one pool, several to hedge, none for the workload's own place."""


@dataclass(frozen=True)
class Rendered:
    """Exactly what `submit` sends; a dry run prints it."""

    token: str
    argv: tuple[str, ...]
    """The command that hands it to the scheduler, or starts it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path -> text; written before anything is sent."""
    env: Mapping[str, str] = field(default_factory=dict)
    together: Together | None = None
    """How it is sent with others that were asked for by the same command; None: alone."""
    pack: str = ""
    """Token of the pack that it is part of: those with the same are one call and one allocation. Empty: of none."""


@dataclass(frozen=True)
class Together:
    """One allocation's part in a call that makes many. Those with equal `argv` may share it."""

    argv: tuple[str, ...]
    """The call, as it would be for this one only."""
    files: Mapping[str, str]
    """Absolute path -> text, in place of `Rendered.files`."""
    link: tuple[str, str] | None = None
    """Path and target of a symbolic link: what is shared finds what is its own by it. None: it needs none."""


#: `Observed.native_state` when the exit code is the child's own, so that it cannot be taken for the node program's.
CHILD_ENDED = "child ended"


class Life(Enum):
    """What a backend knows of an allocation."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"
    """The backend answers that it knows no such allocation (any more)."""


class Ending(StrEnum):
    """How an allocation ended, in words that all schedulers share."""

    NONE = ""
    """It lives, or its exit code says all."""
    CANCELLED = "cancelled"
    """Somebody ended it with the scheduler's own tools; `Observed.by` says who, where that is known."""
    PREEMPTED = "preempted"
    TIME_LIMIT = "time-limit"
    NODE_FAILED = "node-failed"
    OUT_OF_MEMORY = "out-of-memory"
    LOST = "lost"
    """The scheduler lost it: its controller was restarted without what it knew."""
    NOT_STARTED = "not-started"
    """The scheduler gave it a node, and nothing of it ever ran there."""
    GROUP = "group"
    """It shared its allocation with another task, and ended because that one did."""


@dataclass(frozen=True)
class Handle:
    """An allocation as the backend names it. `token` is ours, `native` the backend's (job id, pid, pod)."""

    token: str
    native: str = ""


@dataclass(frozen=True)
class Observed:
    """One answer about one allocation."""

    life: Life
    native: str = ""
    native_state: str = ""
    """The backend's own word, raw."""
    node: str = ""
    reason: str = ""
    """Why it is pending, or how it ended, in the backend's words."""
    exit_code: int | None = None
    signal: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    evidence: str = ""
    """Last log lines or the like, for `explain`; at most 4,000 characters."""
    report: Report | None = None
    """Newest report in the run directory, where the backend sees it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last numbers of a script that has ended."""
    ending: Ending = Ending.NONE
    befell: Ending = Ending.NONE
    """What the scheduler did to it where its child ended with code 0, which is told first: `ending` is NONE then."""
    by: str = ""
    """Who cancelled it."""
    held: bool = False
    """Accepted, and waiting for `release`."""
    never: str = ""
    """Not empty: it can never start as it was asked for; says why."""
    pool: str = ""
    """Where it runs, or waits if that is one."""
    requeues: int = 0
    """How often the scheduler itself put it back into its queue."""
    limit_at: float = 0.0
    """When its time limit ends it."""
    faults: tuple[Fault, ...] = ()
    """What the node program found in the output."""
    ran_s: float = 0.0
    """How long the child ran, where the node program said so."""
    nodes: tuple[str, ...] = ()
    """All nodes of an allocation that spans several, when it is not known which of them its end speaks of; `node` is
    the first of them, or, with `nodes` empty, the one that failed."""
    mute: str = ""
    """Why no report may have come of one that should have reported by now; told where none has."""
    unread: bool = False
    """What the allocation writes could not be read just now: that it is silent says nothing."""
    lingers: bool = False
    """The scheduler has ended it, and its node has not said yet that nothing of it is left."""


@dataclass(frozen=True)
class Stray:
    """An allocation that has not ended, found by its name alone: whoever asked for it, whenever, from whatever home."""

    token: str
    native: str
    """The backend's own name of it: a job id, or the pids of its processes with commas between them."""
    life: Life
    """PENDING or RUNNING."""
    native_state: str = ""
    """The backend's own word, raw."""
    node: str = ""
    since: float = 0.0
    """When it was submitted or began, seconds since the epoch; 0 where nobody says."""
    home: str = ""
    """State directory from which it was started; empty where nothing of it tells."""


@dataclass(frozen=True)
class Node:
    """One machine of a scheduler."""

    name: str
    state: str
    """The scheduler's own word(s), in lower case."""
    usable: bool
    """Whether new work may start there, now or later."""
    pools: tuple[str, ...] = ()
    reason: str = ""
    """Why it is not usable, in the scheduler's words."""
    cpus: int = 0
    cpus_free: int = 0
    mem_bytes: int = 0
    gpus: int = 0
    gpus_free: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolInfo:
    """One pool of a scheduler, e.g. a partition."""

    name: str
    is_up: bool = True
    is_default: bool = False
    max_time_s: float = 0.0
    """0: no limit."""
    priority: int = 0
    preempt: str = ""
    """How work there is preempted, raw; empty: not at all."""


@dataclass(frozen=True)
class Cluster:
    """What a scheduler has."""

    nodes: tuple[Node, ...]
    pools: tuple[PoolInfo, ...]
    array_size: int = 0
    """Indices of an array are below it; 0: not known."""


class Log:
    """Output as it is read: iterate over it for lines, or over `blocks()`, which is much cheaper.

    Args:
        blocks: whole lines in UTF-8, each with its end; empty ones tell only that the place is known.
        place: up to where the blocks that came have gone.
    """

    def __init__(self, blocks: AsyncGenerator[bytes, None], place: Callable[[], Place] = Place) -> None:
        self._blocks = blocks
        self.place = place

    def blocks(self) -> AsyncGenerator[bytes, None]:
        """Whole lines in UTF-8, each with its end, as many as were at hand."""
        return self._blocks

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        async for block in self._blocks:
            for line in block.decode().split("\n")[:-1]:
                yield line

    @classmethod
    def later(cls, find: Callable[[], Awaitable[Log]]) -> Log:
        """Output of which has to be found out first where it is."""
        found: list[Log] = []

        async def blocks() -> AsyncGenerator[bytes, None]:
            found.append(await find())
            async with aclosing(found[0].blocks()) as pieces:
                async for piece in pieces:
                    yield piece

        return cls(blocks(), lambda: found[0].place() if found else Place())

    @classmethod
    def of(cls, lines: Iterable[str]) -> Log:
        """Output that is at hand."""
        return cls(_as_blocks(lines))


async def _as_blocks(lines: Iterable[str]) -> AsyncGenerator[bytes, None]:
    for line in lines:
        yield f"{line}\n".encode()


class Backend(Protocol):
    """A place where tasks run.

    Silence is `BackendUnreachable`, never an answer about an allocation. An unknown word from a scheduler raises
    `Rejected` with the raw text. Verbs are idempotent: the token in the allocation's name makes twins impossible.
    """

    name: str
    features: frozenset[Feature]
    poll_s: float
    """Seconds between two observations when nothing else happens."""
    hurry_s: float
    """The same while something is about to end; no shorter than the scheduler can bear."""

    def render(self, request: Request) -> Rendered:
        """Say what `submit` would send. Pure.

        Raises:
            InputError: the backend cannot express the request.
        """
        ...

    def as_sent(self, rendered: Sequence[Rendered]) -> Sequence[Rendered]:
        """`rendered` as it is sent, for eyes: allocations that one call makes together are one item. Pure."""
        ...

    async def check(self, calls: Sequence[Rendered]) -> None:
        """Ask whether the backend would take `calls` as they are; nothing is started. Silence is no refusal.

        Raises:
            InputError: it refuses one for good; `where` is the field of the document that it speaks of.
            BackendUnreachable: it does not answer, and without having asked it nothing is to be accepted.
        """
        ...

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Start allocations, or find those of the same token. One outcome per request, in order.

        `Rejected` in the result: refused for good. `BackendUnreachable`: nobody knows; call again.
        """
        ...

    async def release(self, handles: Sequence[Handle]) -> None:
        """Let allocations start that were submitted held (`Observed.held`), now that they are recorded. Repeatable.

        Raises:
            BackendUnreachable: no answer; call again.
        """
        ...

    async def cluster(self) -> Cluster:
        """What there is to run on; may be some seconds old.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    async def find(self, tokens: Sequence[str]) -> Mapping[str, Handle]:
        """Handles of allocations that exist (pending, running or ended but known). Absent tokens do not exist.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all `handles` in one call, by token. Every handle gets an answer; `GONE` is one.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    async def cancel(self, handle: Handle, *, force: bool = False) -> None:
        """Ask the allocation to end; `force` kills it. Absent is fine. `observe` tells when it has ended.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    async def list_all(self) -> Sequence[Stray]:
        """Every allocation of this user that has not ended and whose name is a token, whatever its age, home or host.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """Ask what `list_all` has named to end; `force` kills it. Absent is fine. Writes nothing into its home.

        Raises:
            BackendUnreachable: no answer.
        """
        ...

    def logs(self, handle: Handle, *, follow: bool = False, tail: int = 0, after: Place | None = None) -> Log:
        """Lines of the allocation's output, the last `tail` (0: all), then new ones while it lives if `follow`.

        With `after`, a place that was told before, those that come behind it.
        """
        ...


@runtime_checkable
class Amends(Backend, Protocol):
    """A backend that can change allocations that wait, which keep their place in its queue."""

    async def amend(self, waiting: Mapping[Handle, Rendered]) -> None:
        """Let allocations avoid the nodes that their `rendered` names, and no others. Those that began are left alone.

        Raises:
            BackendUnreachable: no answer, or some were not changed; call again.
        """
        ...
