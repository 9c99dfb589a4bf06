"""One round for one rank: does what `machine.decide` says, one step a call, so that tests can order the steps."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.base.errors import InputError
from remuda.gang import machine
from remuda.gang.errors import AnotherRun, Damaged
from remuda.gang.objects import codec as codecs
from remuda.gang.objects import document, frame
from remuda.gang.objects.keys import RoundSeen
from remuda.gang.objects.layout import refuse_non_finite, refuse_overflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.gang.machine import RoundView, Step, Terms
    from remuda.gang.objects.codec import Floats, Octets
    from remuda.gang.objects.keys import RunSeen
    from remuda.gang.run import Run

log = logging.getLogger(__name__)


class Round:
    """A round under way.

    Args:
        run: the run.
        terms: of this rank.
        number: of the round.
        pending: (elements,) float32, what this rank has to give. Becomes what is left of it once the manifest has it:
            the codec's error. Stays as it is when the rank is left out.
        weight: of the contribution.
        errors: by shard, what the codec lost of it the last time this rank reduced it as its owner; written to.
        clock: seconds, monotonic.
        stored: this rank's contribution that lies in the store already, from an earlier life.
    """

    def __init__(
        self,
        run: Run,
        terms: Terms,
        number: int,
        pending: Floats,
        *,
        weight: float,
        errors: dict[int, Floats],
        clock: Callable[[], float],
        stored: Octets | None = None,
    ) -> None:
        self.run, self.terms, self.number, self.pending = run, terms, number, pending
        self.weight, self.clock = weight, clock
        self.mean: Floats = np.empty(0, np.float32)
        self.manifest: tuple[int, ...] | None = None
        self.contributed = stored is not None  # Or may have been: the answer of the store is not there yet.
        self._answered = stored is not None
        self.seen = RoundSeen()
        self._encoded = stored
        self._errors = errors
        self._exact: dict[int, Floats] = {}
        self._seals: dict[int, bytes] = {}
        self._expected: frozenset[int] = frozenset(range(run.world_size))
        self._behind = self._looked = False
        self._changed_at = clock()
        self._quorum_at: float | None = None

    def look(self, seen: RunSeen | None = None) -> None:
        """List this round, or note what a listing of the whole run (`seen`) says about it."""
        now = self.clock()
        of = (seen or self.run.look(self.number)).of(self.number)
        if seen is not None:
            self._expected = seen.expected(self.run.world_size)
            # What stays of a round with a state is its COMMIT; its shards go.
            is_there = of.committed and len(of.shards) == self.run.world_size
            self._behind = seen.newest > self.number and not is_there
        before = (set(self.seen.contributions), set(self.seen.shards), self.seen.manifest, self.seen.committed)
        if before != (set(of.contributions), set(of.shards), of.manifest, of.committed):
            self._changed_at = now
        self.seen = of
        enough = self.terms.quorum is not None and len(self._here()) >= self.terms.quorum
        self._quorum_at = (self._quorum_at or now) if enough else None

    def look_all(self) -> RunSeen:
        """List the whole run."""
        seen = self.run.look()
        self.look(seen)
        return seen

    def view(self) -> RoundView:
        """What is known now."""
        now = self.clock()
        whole = {shard for shard, size in self.seen.shards.items() if size == self.run.shard_bytes(shard)}
        return machine.RoundView(
            here=self._here(),
            expected=self._expected,
            manifest=self.manifest,
            manifest_there=self.seen.manifest,
            shards=frozenset(whole),
            held=frozenset(self._seals),
            committed=self.seen.committed,
            behind=self._behind,
            looked=self._looked,
            quorum_s=now - (now if self._quorum_at is None else self._quorum_at),
            quiet_s=now - self._changed_at,
        )

    def _here(self) -> frozenset[int]:
        """Ranks whose contribution has the bytes that it should have.

        The own one that is gone has been cleared away with its round. It must not be given again.
        """
        size, own = self.run.contribution_bytes, self.terms.rank
        here = {rank for rank, there in self.seen.contributions.items() if there == size}
        return frozenset(here | {own} if self._answered and own not in self.seen.contributions else here)

    def advance(self) -> Step:
        """Do one step and say which. After `Wait` somebody must look before the next call makes sense."""
        step = machine.decide(self.terms, self.view())
        try:
            self._do(step)
        except FileNotFoundError as error:
            # Others finished the round and it was cleared away, or a listing was older than its objects.
            self.look_all()
            return machine.Wait((), f"what {str(error).partition(chr(10))[0]!r} names")
        return step

    def _do(self, step: Step) -> None:
        match step:
            case machine.Contribute():
                self._contribute()
            case machine.Propose():
                self._propose(step)
            case machine.ReadManifest():
                self._learn(self.run.document(self.run.in_round(self.number, "manifest")))
            case machine.Look():
                self._looked = True
                self.look_all()
            case machine.Reduce():
                self._reduce(step.shard)
            case machine.Take():
                self._take(step.shards)
            case machine.Commit():
                self._commit()
            case _:
                pass

    def _contribute(self) -> None:
        refuse_non_finite(self.pending, self.run.layout, "the update")
        key = self.run.in_round(self.number, "c", self.terms.rank)
        if self._encoded is None:
            self._encoded = self.run.encode(self.pending, self.number, self.terms.rank, self.weight)
        self.contributed = True
        if not self.run.bucket.create(key, self._encoded):
            lying = self.run.bucket.find(key, self.run.contribution_bytes)
            if lying is not None and self.run.is_whole(lying, key):
                raise AnotherRun(
                    f"another process has rank {self.terms.rank}: {key} is not what this one wrote",
                    hint="give each copy its own REPLICA_RANK, and end the older process",
                )
            self.run.bucket.replace(key, self._encoded)
        self._answered = True
        self.seen.contributions[self.terms.rank] = len(self._encoded)

    def _propose(self, step: machine.Propose) -> None:
        missing = sorted(self._expected - set(step.ranks))
        fields = {"round": self.number, "ranks": list(step.ranks), "why": step.why, "missing": missing}
        self.seen.manifest = True
        if self.run.bucket.create(self.run.in_round(self.number, "manifest"), document.write(fields)):
            self._learn(fields)

    def _learn(self, manifest: dict[str, Any] | None) -> None:
        """Take note of who takes part. What is in a manifest is owed no more."""
        if manifest is None:
            raise FileNotFoundError("manifest")
        self.manifest = tuple(manifest["ranks"])
        self._changed_at = self.clock()
        if self.terms.rank not in self.manifest:
            return
        if self._encoded is None or not self.contributed:
            raise AnotherRun(
                f"another process has rank {self.terms.rank}: it takes part in round {self.number}",
                hint="give each copy its own REPLICA_RANK, and end the older process",
            )
        for place, piece in self.run.decoded(self._encoded):
            self.pending[place] -= piece

    def _reduce(self, shard: int) -> None:
        assert self.manifest is not None
        mean, total = self._sum(shard, self.manifest)
        if not (total > 0 and np.isfinite(mean).all()):
            # All who reduce the shard pass over the same ranks, as that hangs on their bytes alone.
            mean, total = self._sum(shard, [rank for rank in self.manifest if self._is_sound(rank, shard)])
        # One that lies there cut off is written anew without the owner's error: all who do that write the same.
        is_cut = self.seen.shards.get(shard) is not None
        is_owner = machine.owner(shard, self.manifest) == self.terms.rank and self.run.codec != "fp32" and not is_cut
        if is_owner and shard in self._errors:
            mean += self._errors[shard]
        refuse_non_finite(mean, self.run.layout, "the mean", self.run.bounds[shard][0])
        self._write_shard(shard, mean, total, is_owner=is_owner, is_cut=is_cut)

    def _sum(self, shard: int, ranks: Sequence[int]) -> tuple[Floats, float]:
        """The mean of what some ranks gave, zero without any, and their weights together."""
        mean, total = np.zeros(self.run.counts[shard], np.float32), 0.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for weight, payload in self.run.map(lambda rank: self._part(rank, shard), ranks):
                for place, piece in codecs.decoded(self.run.codec, payload, len(mean)):
                    mean[place] += piece if weight == 1.0 else piece * np.float32(weight)
                total += weight
            return mean / np.float32(total) if ranks else mean, total

    def _is_sound(self, rank: int, shard: int) -> bool:
        """Whether what a rank gave can be in a sum that stays finite."""
        weight, payload = self._part(rank, shard)
        try:
            for _, piece in codecs.decoded(self.run.codec, payload, self.run.counts[shard]):
                refuse_non_finite(piece, self.run.layout, "what it gave")
                refuse_overflow(piece, weight, len(self.manifest or ()))
        except InputError as error:
            log.warning("round %d passes over rank %d: %s", self.number, rank, error.message)
            return False
        return True

    def _write_shard(self, shard: int, mean: Floats, total: float, *, is_owner: bool, is_cut: bool) -> None:
        section = frame.Section(shard, self.number, frame.NOBODY, len(mean), total)
        fields = {"kind": "shard", "run": self.run.run_id, "round": self.number, "shard": shard, "weight": total}
        raw, seal = frame.write_object(self.run.codec, section, mean, fields)
        if is_owner:
            self._exact[shard] = mean
        key = self.run.in_round(self.number, "m", shard)
        if is_cut:
            self.run.bucket.replace(key, raw)
        won = is_cut or self.run.bucket.create(key, raw)
        self.seen.shards[shard] = len(raw)
        self._changed_at = self.clock()
        if won:
            self._hold(shard, seal, raw[frame.HEAD + frame.SEAL :])

    def _part(self, rank: int, shard: int) -> tuple[float, Octets]:
        if rank == self.terms.rank and self._encoded is not None:
            start, stop = frame.place(self.run.codec, self.run.counts, shard)
            section = frame.read_section(self._encoded[start:stop], self.run.codec, self.run.counts[shard], "own part")
            return section.weight, self._encoded[start + frame.SEAL : stop]
        return self.run.read_part(self.number, rank, shard)

    def _take(self, shards: tuple[int, ...]) -> None:
        for shard, (seal, payload) in zip(
            shards, self.run.map(lambda one: self.run.read_shard(self.number, one), shards), strict=True
        ):
            self._hold(shard, seal, payload)

    def _hold(self, shard: int, seal: bytes, payload: Octets) -> None:
        """Take the shard that won, and keep what the codec lost of it if it is this rank's to keep."""
        if not len(self.mean):
            self._encoded = None  # Memory: who needs a part of it again reads it.
            self.mean = np.empty(self.run.elements, np.float32)
        self.run.place_shard(shard, payload, self.mean)
        self._seals[shard] = seal
        exact = self._exact.pop(shard, None)
        if exact is not None:
            first, last = self.run.bounds[shard]
            exact -= self.mean[first:last]
            self._errors[shard] = exact

    def _commit(self) -> None:
        assert self.manifest is not None
        digest = hashlib.sha256(b"".join(self._seals[shard] for shard in sorted(self._seals))).hexdigest()
        fields = {"round": self.number, "ranks": list(self.manifest), "mean": digest}
        key = self.run.in_round(self.number, "COMMIT")
        if not self.run.bucket.create(key, document.write(fields)):
            found = self.run.document(key)
            if found is not None and found.get("mean") != digest:
                raise Damaged(f"round {self.number} was committed with other bytes than rank {self.terms.rank} holds")
        self.seen.committed = True
