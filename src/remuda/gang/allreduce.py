"""Average a vector over ranks that reach nothing but one bucket: the face of the room, and the only part that waits."""

from __future__ import annotations

import copy
import random
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from remuda.base.errors import InputError
from remuda.gang import environment, history, joining, machine
from remuda.gang.errors import Damaged, RankMissing
from remuda.gang.objects import codec as codecs
from remuda.gang.objects.bucket import Bucket, Counts, open_store
from remuda.gang.objects.keys import check_run_id
from remuda.gang.objects.layout import Layout, of_vector, refuse_non_finite, refuse_overflow
from remuda.gang.round import Round
from remuda.gang.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.gang.history import Follower
    from remuda.gang.objects.codec import Floats, Octets
    from remuda.gang.objects.keys import RunSeen

FIRST_POLL_S: Final = 0.05
LAST_POLL_S: Final = 2.0
_LOOK_ALL: Final = 10
"""Every so many polls the whole run is listed: for members that came or left, and for rounds that others finished."""


class ObjectStoreAllReduce:
    """Rounds of averaging over an object store. All ranks get the same bytes.

    A rank that dies costs the others at most `grace` (with a quorum) or the time until it is back (without one). Not
    safe to use from several threads.

    Args:
        url: `file://`, `s3://`, `gs://`, `az://` or `memory://`; None: REMUDA_RENDEZVOUS or RENDEZVOUS.
        run_id: folder of the run below it; None: RUN_ID.
        rank: of this copy, from 0; None: REPLICA_RANK, REPLICA_GROUP_ID or RANK.
        world_size: copies; None: REPLICA_COUNT, NUM_REPLICA_GROUPS or WORLD_SIZE. The first worker's counts.
        codec: how values travel: "fp32", "bf16" or "int8", the latter two with error feedback.
        quorum: copies that suffice for a round once `grace` has passed; None: a round waits for all of them.
        grace: seconds that the others have after the quorum is there.
        take_over: seconds without anything new after which others do what a copy left undone.
        timeout: seconds that a round may take.
        weight: of this copy's contributions, for example the samples it saw; may be set anew before each round.
        keep: newest rounds whose objects stay.
        state_every: rounds after which the state is written, where something follows the rounds (`DiLoCo`).
        multipart_bytes: size from which an object goes up in parts, which a slow network takes better; None: none does.
        clock: monotonic seconds, for tests.
        sleep: how to wait, for tests.

    Attributes:
        round: number of the next round, once the run is open.
        took_part: whether the last round has this copy's contribution in it.
        participants: copies whose contribution the last round has; 0 before the first one of this process.

    Raises:
        InputError: a value is wrong or not known.
    """

    def __init__(  # noqa: PLR0913
        self,
        url: str | None = None,
        *,
        run_id: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        codec: str = "fp32",
        quorum: int | None = None,
        grace: float = 60.0,
        take_over: float = 30.0,
        timeout: float = 1800.0,
        weight: float = 1.0,
        keep: int = 2,
        state_every: int = 10,
        multipart_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = environment.text(url, environment.URL, "the URL of the store")
        self.run_id = check_run_id(environment.text(run_id, environment.RUN_ID, "the run's id"))
        self.rank = environment.number(rank, environment.RANK, "the rank", 0)
        self.world_size = environment.number(world_size, environment.WORLD_SIZE, "the number of copies", 1)
        self.codec = codecs.check(codec)
        quorum = environment.quorum(quorum)
        if quorum is not None and not 1 <= quorum <= self.world_size:
            raise InputError(f"a quorum of {quorum} of {self.world_size} copies", hint="from 1 to all of them")
        if keep < 1 or state_every < 1:
            raise InputError("keep and state_every are at least 1")
        self.weight, self.timeout, self.keep, self.state_every = weight, timeout, keep, state_every
        self.round, self.took_part, self.participants = 0, False, 0
        self._quorum, self._grace, self._take_over = quorum, grace, take_over
        self._clock, self._sleep = clock, sleep
        self._bucket = Bucket(open_store(self.url), sleep, multipart_bytes=multipart_bytes)
        self._run: Run | None = None
        self._follower: Follower | None = None
        self._residual: Floats | None = None
        self._stored: Octets | None = None
        self._unfinished: Round | None = None
        self._errors: dict[int, Floats] = {}

    @property
    def counts(self) -> Counts:
        """Requests and bytes so far."""
        return self._bucket.counts

    @property
    def has_open_round(self) -> bool:
        """Whether this rank has given already to the next round: before it was started again, or before an error."""
        return self._stored is not None or self._unfinished is not None

    @property
    def residual(self) -> Floats | None:
        """What this rank still has to give: an update that was left out, or what the codec lost. Not a copy."""
        return self._residual

    def part(self, name: str) -> ObjectStoreAllReduce:
        """The same for a part of the model, which is a run of its own: RUN_ID.NAME. Only before the run is open."""
        if self._run is not None:
            raise InputError("the run is open")
        other = copy.copy(self)
        other.run_id = check_run_id(f"{self.run_id}.{name}")
        other._bucket, other._errors = Bucket(open_store(self.url), self._sleep), {}  # noqa: SLF001
        return other

    def open(self, layout: Layout, follower: Follower | None = None) -> None:
        """Join the run, or begin it; `round` is right afterwards. `allreduce` does so itself.

        Args:
            layout: of the vectors; must be that of the run.
            follower: is brought to the state after the last round, and follows from there.

        Raises:
            AnotherRun: the store holds another run of this name.
            Rejected: the store cannot do what is needed, or lets nobody in.
            Unavailable: it does not answer.
        """
        self._bucket.probe(self.run_id)
        world_size = joining.agree(self._bucket, self.run_id, layout, self.codec, self.world_size)
        run = self._run = Run(self._bucket, self.run_id, layout, self.codec, world_size)
        if not self.url.startswith("memory:"):
            run.use_threads()
        self._follower = follower
        seen = run.look()
        joining.check_size(run, seen, self.rank, self.world_size, self._quorum)
        joining.announce(run, seen, self.rank)
        if follower is not None:
            self._begin(run, seen, follower)
        else:
            self.round = seen.newest + 1
        self._residual, self._stored = joining.owed(run, self.rank, self.round)

    def _begin(self, run: Run, seen: RunSeen, follower: Follower) -> None:
        """Bring the follower to the state that the run is in."""
        base = seen.newest_state()
        if base is None and self._starts(run, seen) and history.write_state(run, history.START, follower.state()):
            return
        self._load(run, follower)
        if seen.newest >= 0:
            run.bucket.create(run.in_round(seen.newest + 1, "join", self.rank), b"{}")

    def _starts(self, run: Run, seen: RunSeen) -> bool:
        """Whether this rank writes the first state; others wait for it, and do it when it does not come."""
        until = self._clock() + self._take_over
        expected = seen.expected(run.world_size)
        while self.rank != min(expected, default=self.rank) and self._clock() < until:
            if run.look().newest_state() is not None:
                return False
            self._sleep(FIRST_POLL_S * 4)
        return True

    def _load(self, run: Run, follower: Follower) -> None:
        """Load the newest state, and apply the means since then."""
        for _ in range(5):
            try:
                base = run.look().newest_state()
                follower.load(history.read_state(run, history.START if base is None else base))
                self.round = (history.START if base is None else base) + 1
                self._catch_up(run, run.look())
            except FileNotFoundError:
                self._sleep(FIRST_POLL_S)  # A newer one was written, and this one cleared away.
            else:
                return
        raise Damaged(f"run {self.run_id!r} has no state that can be loaded")

    def _catch_up(self, run: Run, seen: RunSeen) -> None:
        """Apply the means of rounds that others finished.

        Raises:
            FileNotFoundError: they are gone.
        """
        if self._follower is None:
            self.round = seen.newest + 1
            return
        while self.round <= seen.newest:
            mean = np.empty(run.elements, np.float32)
            run.read_mean(self.round, mean)
            self._follower.apply(self.round, mean)
            self.round += 1

    def allreduce(self, vector: Floats) -> Floats:
        """One round: the mean of all contributions, weighted.

        The first call of a worker that was started again, and that finds its contribution to this round in the store,
        gives that one and not `vector`, which is the same work done twice. A call after one that raised goes on with
        what that one gave.

        Args:
            vector: (n,) float32, n the same in all calls and ranks; left unchanged.

        Returns:
            (n,) float32, the same bytes on every rank.

        Raises:
            RankMissing: copies did not come within `timeout`.
            InputError: a value is NaN, infinite or so large that the sum overflows; the vector or the weight is none.
            AnotherRun: another run has this name, or another process this rank.
            Unavailable: the store does not answer.

        Cost: with D encoded bytes and N ranks D + D/N up and about 2·D·(N-1)/N down; 3 or 4 puts, 2·(N-1) + 1 gets,
        and a listing a poll.
        """
        if vector.ndim != 1 or vector.dtype != np.float32:
            raise InputError(f"a vector of float32 is averaged, not {vector.dtype} of shape {vector.shape}")
        if self._run is None:
            self.open(of_vector(len(vector)))
        return self.reduce(None if self.has_open_round else vector.copy())

    def owe(self, vector: Floats) -> None:
        """Give `vector` with the next contribution.

        Args:
            vector: (elements,) float32; belongs to the store afterwards.

        Raises:
            InputError: a value is NaN or infinite, or the run is not open.
        """
        self._pending(self._opened(), vector)

    def catch_up(self) -> None:
        """Apply the rounds that others finished to the follower. Not while a round of this rank is open."""
        run = self._opened()
        seen = run.look()
        if seen.newest >= self.round:
            self._pass_over(run, seen)

    def reduce(self, vector: Floats | None) -> Floats:
        """Give `vector` and everything that is still owed, and take part in rounds until it was offered.

        Rounds that others finished meanwhile are applied to the follower first. Where this rank is left out of its
        round, it keeps all that it gave for the next one. Raises what `allreduce` raises.

        Args:
            vector: (elements,) float32; belongs to the store afterwards. None: only what is owed.

        Returns:
            The mean of the last round, (elements,) float32.
        """
        run = self._opened()
        refuse_overflow(np.empty(0, np.float32) if vector is None else vector, self.weight, run.world_size)
        pending = self._pending(run, vector)
        while True:
            one = self._next(run, pending)
            seen = one.look_all()
            if seen.newest >= self.round and not one.contributed:
                self._unfinished = None
                self._pass_over(run, seen)
                continue
            step = self._finish(one)
            self._unfinished = None
            if isinstance(step, machine.Behind):
                self._fall_back(run, one, pending)
                continue
            if self._follower is not None:
                self._follower.apply(self.round, one.mean)
            self.took_part = one.manifest is not None and self.rank in one.manifest
            self.participants = len(one.manifest or ())
            self.round += 1
            self._afterwards(run, one)
            if one.contributed:
                return one.mean

    def _opened(self) -> Run:
        if self._run is None:
            raise InputError("the run is not open", hint="call open() first")
        return self._run

    def _pending(self, run: Run, vector: Floats | None) -> Floats:
        """All that this rank has to give. An open round holds the array, else the vector's own becomes it: memory."""
        if vector is not None:
            if vector.shape != (run.elements,):
                raise InputError(f"the run averages {run.elements:,} values, and {vector.shape} were given")
            refuse_non_finite(vector, run.layout, "the update")
        if self._residual is None:
            self._residual = np.zeros(run.elements, np.float32) if vector is None else vector
        elif vector is not None and self._unfinished is not None:
            self._residual += vector
        elif vector is not None:
            vector += self._residual
            self._residual = vector
        return self._residual

    def _next(self, run: Run, pending: Floats) -> Round:
        """The round that an error interrupted, or a new one."""
        if self._unfinished is not None:
            return self._unfinished
        terms = machine.Terms(self.rank, run.world_size, self._quorum, self._grace, self._take_over)
        stored, self._stored = self._stored, None
        self._unfinished = Round(
            run, terms, self.round, pending, weight=self.weight, errors=self._errors, clock=self._clock, stored=stored
        )
        return self._unfinished

    def _finish(self, one: Round) -> machine.Done | machine.Behind:
        """Take part in a round until it is over."""
        began, pause, polls = self._clock(), FIRST_POLL_S, 0
        before: machine.Step | None = None
        while True:
            step = one.advance()
            if isinstance(step, (machine.Done, machine.Behind)):
                return step
            if not isinstance(step, machine.Wait):
                continue
            if self._clock() - began > self.timeout:
                raise self._missing(one, step)
            pause = FIRST_POLL_S if step != before else min(pause * 1.5, LAST_POLL_S)
            before = step
            self._sleep(pause * (0.75 + random.random() / 2))
            polls += 1
            if polls % _LOOK_ALL:
                one.look()
            else:
                one.look_all()

    def _missing(self, one: Round, step: machine.Wait) -> RankMissing:
        seen = one.look_all()
        last = {rank: joining.iso(seen.touched[rank]) if rank in seen.touched else None for rank in step.ranks}
        told = ", ".join(f"rank {rank} ({'last seen ' + at if at else 'never seen'})" for rank, at in last.items())
        return RankMissing(
            f"round {one.number} of {self.run_id!r} waited {self.timeout:g} s for {step.what} of {told or 'nobody'}",
            last,
            hint="start it again, or let a quorum go on without it: quorum=, grace=",
        )

    def _fall_back(self, run: Run, one: Round, pending: Floats) -> None:
        """The round was cleared away while this rank slept; its COMMIT says whether what was given is in the sum."""
        if not one.contributed:
            return
        given = run.bucket.find(run.in_round(one.number, "c", self.rank), run.contribution_bytes)
        commit = run.document(run.in_round(one.number, "COMMIT"))
        is_summed = given is None if commit is None else self.rank in commit["ranks"]
        is_taken = one.manifest is not None and self.rank in one.manifest
        if is_summed and not is_taken:
            pending[:] = 0
        elif not is_summed and is_taken and given is not None:
            # That manifest was written after the round was over: by this rank, or by another that slept, too.
            for place, piece in run.decoded(given):
                pending[place] += piece

    def _pass_over(self, run: Run, seen: RunSeen) -> None:
        """Go to the open round, past those that others finished, whether or not these are still there."""
        try:
            self._catch_up(run, seen)
        except FileNotFoundError:
            if self._follower is not None:
                self._load(run, self._follower)

    def _afterwards(self, run: Run, one: Round) -> None:
        """One rank of each round writes the state when it is due, and clears away what nobody needs."""
        if one.manifest is None or one.manifest[one.number % len(one.manifest)] != self.rank:
            return
        is_due = (one.number + 1) % self.state_every == 0 or bool(one.seen.joining)
        if self._follower is not None and is_due:
            history.write_state(run, one.number, self._follower.state())
        seen = run.look()
        takers = {}
        for number in history.unsettled(seen, self.keep):
            commit = run.document(run.in_round(number, "COMMIT"))
            if commit is not None:
                takers[number] = commit["ranks"]
        run.bucket.delete([run.key(name) for name in history.garbage(seen, self.keep, takers)])

    def close(self, *, leave: bool = True) -> None:
        """End; nothing can be averaged afterwards.

        Args:
            leave: say that this rank does not come back, so that nobody waits for it.
        """
        run, self._run = self._run, None
        if run is None:
            return
        if leave:
            run.bucket.replace(run.key("left", self.rank), b"{}")
            run.bucket.delete([run.key("members", self.rank)])
        run.close()
