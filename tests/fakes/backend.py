"""A place where tasks run in memory only, and which is silent, refuses, loses and forgets when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remuda.backends.base import Cluster, Feature, Handle, Life, Log, Observed, Rendered, Request, Stray
from remuda.base.errors import BackendUnreachable, Impossible, Rejected
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.wire.place import Place

LIVING = frozenset({Life.PENDING, Life.RUNNING})


@dataclass
class Made:
    """One allocation as it really is, whatever the supervisor believes."""

    seen: Observed
    reports: int = 0
    asked: int = 0
    """How often it was asked kindly to end."""
    is_stubborn: bool = False
    """It ends only when it is killed."""
    lines: list[str] = field(default_factory=list)
    """Its output."""


class FakeBackend:
    """Runs allocations as entries of a dict. `FakeBackend` is the truth: many supervisors may share one.

    Attributes:
        made: every allocation that ever was, by token.
        calls: every verb that was called, with the tokens it was called with.
        silent: verbs that raise `BackendUnreachable`; nothing happens.
        refuse: token -> reason; `submit` answers with `Rejected`.
        refuses_for_good: `submit` answers with `Impossible` instead.
        lose_answers: verbs that do what they are told and whose answer is lost.
        hook: called with `before VERB` and `after VERB` around what a verb does; may raise.
        starts_at_once: what is submitted runs; otherwise it stays pending until `start`.
        holds: what is submitted is held until it is released.
        has: what `cluster` answers.
        requests: what was rendered, by token.
        home: state directory that `list_all` tells of each.
    """

    features: frozenset[Feature] = frozenset()
    poll_s = 1.0
    hurry_s = 1.0

    def __init__(self, clock: Clock, name: str = "fake") -> None:
        self.name = name
        self.made: dict[str, Made] = {}
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.silent: set[str] = set()
        self.refuse: dict[str, str] = {}
        self.refuses_for_good = False
        self.lose_answers: set[str] = set()
        self.hook: Callable[[str], None] = _nothing
        self.starts_at_once = True
        self.holds = False
        self.has = Cluster(nodes=(), pools=())
        self.requests: dict[str, Request] = {}
        self.home = ""
        self._clock = clock

    # The protocol

    def render(self, request: Request) -> Rendered:
        """What `submit` would send. Pure."""
        self.requests[request.token] = request
        return Rendered(token=request.token, argv=("fake-submit", request.token, *request.group.command.argv))

    def as_sent(self, rendered: Sequence[Rendered]) -> Sequence[Rendered]:
        """Each is sent alone."""
        return rendered

    async def check(self, calls: Sequence[Rendered]) -> None:
        """Nothing."""

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Make allocations; one of the same token is left alone."""
        self._begin("submit", [item.token for item in rendered])
        outcomes = [self._make(item.token) for item in rendered]
        self._end("submit")
        return outcomes

    def _make(self, token: str) -> Handle | Exception:
        if token in self.refuse:
            return (Impossible if self.refuses_for_good else Rejected)(self.refuse[token])
        if token not in self.made:
            life = Life.RUNNING if self.starts_at_once and not self.holds else Life.PENDING
            native = f"job-{len(self.made) + 1}"
            self.made[token] = Made(Observed(life, native=native, node="fake-node", held=self.holds))
        return Handle(token, self.made[token].seen.native)

    async def release(self, handles: Sequence[Handle]) -> None:
        """Let what was submitted held start."""
        self._begin("release", [handle.token for handle in handles])
        for handle in handles:
            one = self.made.get(handle.token)
            if one is not None and one.seen.held:
                life = Life.RUNNING if self.starts_at_once else Life.PENDING
                one.seen = replace(one.seen, held=False, life=life)
        self._end("release")

    async def amend(self, waiting: Mapping[Handle, Rendered]) -> None:
        """Keep what those that wait were told last in `requests`."""
        if not waiting:
            return
        self._begin("amend", [handle.token for handle in waiting])
        self._end("amend")

    async def cluster(self) -> Cluster:
        """The nodes that a test set."""
        self._begin("cluster", [])
        return self.has

    async def find(self, tokens: Sequence[str]) -> Mapping[str, Handle]:
        """Those of `tokens` that were made and are not forgotten."""
        self._begin("find", tokens)
        known = {token: Handle(token, self.made[token].seen.native) for token in tokens if self._is_known(token)}
        self._end("find")
        return known

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all handles; GONE for what was never made or is forgotten."""
        self._begin("observe", [handle.token for handle in handles])
        gone = Made(Observed(Life.GONE))
        answers = {handle.token: self.made.get(handle.token, gone).seen for handle in handles}
        self._end("observe")
        return answers

    async def cancel(self, handle: Handle, *, force: bool = False) -> None:
        """End it, unless it is stubborn and not forced; what was not made yet is never made."""
        verb = "kill" if force else "cancel"
        self._begin(verb, [handle.token])
        one = self.made.get(handle.token)
        if one is None:
            self.made[handle.token] = Made(Observed(Life.ENDED, reason="cancelled before it started", exit_code=85))
        elif one.seen.life in LIVING:
            one.asked += not force
            if force or not one.is_stubborn:
                self.end(handle.token, 0 if not force else 137)
        self._end(verb)

    async def list_all(self) -> Sequence[Stray]:
        """What was made and has not ended."""
        self._begin("list_all", [])
        strays = [
            Stray(token, one.seen.native, one.seen.life, node=one.seen.node, home=self.home)
            for token, one in self.made.items()
            if one.seen.life in LIVING
        ]
        self._end("list_all")
        return strays

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """End it, unless it is stubborn and not forced."""
        self._begin("remove", [stray.token])
        one = self.made.get(stray.token)
        if one is not None and one.seen.life in LIVING and (force or not one.is_stubborn):
            self.end(stray.token, 0 if not force else 137)
        self._end("remove")

    def logs(self, handle: Handle, *, follow: bool = False, tail: int = 0, after: Place | None = None) -> Log:
        """Its lines; nothing more ever comes, so `follow` makes no difference, and there are no places."""
        del follow, after
        one = self.made.get(handle.token)
        return Log.of(one.lines[-tail:] if one is not None else ())

    # What a test makes happen

    def start(self, token: str) -> None:
        """Let a pending allocation run."""
        one = self.made[token]
        one.seen = replace(one.seen, life=Life.RUNNING)

    def end(self, token: str, code: int = 1, **more: object) -> None:
        """Let an allocation end by itself; `more` are other fields of `Observed`."""
        one = self.made[token]
        ended = replace(one.seen, life=Life.ENDED, exit_code=code, ended_at=self._clock.now())
        one.seen = replace(ended, **more)  # type: ignore[arg-type]

    def lose(self, token: str) -> None:
        """Let the backend forget an allocation."""
        self.made[token].seen = Observed(Life.GONE)

    def report(self, token: str, state: str = "ready") -> Report:
        """What the node program of a running allocation says next."""
        one = self.made[token]
        one.reports += 1
        return Report(
            token=token, attempt=int(token.split(".")[-2]), seq=one.reports, at=self._clock.now(), state=state,
            node="fake-node", url=f"http://{token}.invalid:80", pid=1000 + one.reports, reason=f"is {state}",
        )  # fmt: skip

    def living(self, prefix: str = "") -> list[str]:
        """Tokens that begin with `prefix` and may run now, in the order in which they were made."""
        return [token for token, one in self.made.items() if one.seen.life in LIVING and token.startswith(prefix)]

    def count(self, verb: str) -> int:
        """How often a verb was called."""
        return sum(name == verb for name, _ in self.calls)

    def _is_known(self, token: str) -> bool:
        return token in self.made and self.made[token].seen.life is not Life.GONE

    def _begin(self, verb: str, tokens: Sequence[str]) -> None:
        self.calls.append((verb, tuple(tokens)))
        if verb in self.silent:
            raise BackendUnreachable(f"{self.name} does not answer {verb}")
        self.hook(f"before {verb}")

    def _end(self, verb: str) -> None:
        self.hook(f"after {verb}")
        if verb in self.lose_answers:
            raise BackendUnreachable(f"the answer of {self.name} to {verb} was lost")


def _nothing(_: str) -> None:
    """No hook."""
