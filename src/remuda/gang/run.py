"""A run in its bucket: where each object lies, how shards, documents and states are written and read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from remuda.gang.errors import Damaged
from remuda.gang.objects import codec as codecs
from remuda.gang.objects import document, frame
from remuda.gang.objects.keys import RunSeen, read_listing
from remuda.gang.objects.layout import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from remuda.gang.objects.bucket import Bucket
    from remuda.gang.objects.codec import Floats, Octets
    from remuda.gang.objects.frame import Section
    from remuda.gang.objects.layout import Layout

READERS: Final = 4
"""Sections that are under way at once; each is one shard of memory."""


@dataclass
class Run:
    """One run of a gang.

    Args:
        bucket: where it lies.
        run_id: its folder there.
        layout: of the vector.
        codec: of contributions and reduced shards.
        world_size: ranks that a round waits for when nobody joined or left; also the number of shards.
    """

    bucket: Bucket
    run_id: str
    layout: Layout
    codec: str
    world_size: int
    bounds: list[tuple[int, int]] = field(init=False)
    counts: list[int] = field(init=False)
    pool: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        self.elements = self.layout.elements
        self.bounds = bounds(self.elements, self.world_size)
        self.counts = [stop - start for start, stop in self.bounds]
        self.contribution_bytes = frame.object_bytes(self.codec, self.counts)

    def key(self, *parts: object) -> str:
        """The key of an object of the run."""
        return "/".join([self.run_id, *map(str, parts)])

    def in_round(self, number: int, *parts: object) -> str:
        """The key of an object of a round."""
        return self.key(f"r{number}", *parts)

    def shard_bytes(self, shard: int) -> int:
        """Bytes of a reduced shard's object."""
        return frame.object_bytes(self.codec, [self.counts[shard]])

    def look(self, number: int | None = None) -> RunSeen:
        """What is there, of the whole run or of one round: one listing."""
        prefix = self.key("") if number is None else self.in_round(number, "")
        return read_listing(self.run_id, self.bucket.list(prefix))

    def map(self, act: Callable[[int], Any], numbers: Iterable[int]) -> Iterator[Any]:
        """Results of `act` in order, a few of them under way at once."""
        ahead = list(numbers)
        if self.pool is None or len(ahead) < 2:
            yield from map(act, ahead)
            return
        waiting = [self.pool.submit(act, number) for number in ahead[:READERS]]
        for index in range(len(ahead)):
            result = waiting.pop(0).result()
            if index + READERS < len(ahead):
                waiting.append(self.pool.submit(act, ahead[index + READERS]))
            yield result

    def use_threads(self) -> None:
        """Read several sections at once."""
        self.pool = ThreadPoolExecutor(READERS, thread_name_prefix="gang")

    def close(self) -> None:
        """End the threads."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None

    def document(self, key: str) -> dict[str, Any] | None:
        """A small JSON object, None when it is not there.

        Raises:
            Damaged: it is not whole, and did not become so.
        """
        raw = self.bucket.find(key)
        if raw is None:
            return None
        try:
            return document.read(raw, key)
        except Damaged:
            # Read again by range, which is tried several times.
            return self.bucket.read(key, 0, len(raw), lambda again: document.read(again, key))

    def encode(self, vector: Floats, number: int, rank: int, weight: float) -> Octets:
        """A contribution: head, then one section a shard."""
        raw: Octets = np.empty(self.contribution_bytes, np.uint8)
        for shard, (first, last) in enumerate(self.bounds):
            start, stop = frame.place(self.codec, self.counts, shard)
            codecs.encode(self.codec, vector[first:last], raw[start + frame.SEAL : stop])
            section = frame.Section(shard, number, rank, last - first, weight)
            frame.write_seal(section, raw[start:stop])
        fields = {
            "kind": "contribution", "run": self.run_id, "round": number, "rank": rank, "weight": weight,
            "elements": self.elements, "shards": self.world_size, "dtype": self.codec, "layout": self.layout.digest,
        }  # fmt: skip
        checksum = frame.seals_checksum(raw, self.codec, self.counts)
        frame.write_head({**fields, "checksum": checksum}, raw)
        return raw

    def decoded(self, raw: Octets) -> Iterator[tuple[slice, Floats]]:
        """The values of a contribution that is known to be whole: places in the vector, and pieces."""
        for shard, (first, last) in enumerate(self.bounds):
            start, stop = frame.place(self.codec, self.counts, shard)
            for place, piece in codecs.decoded(self.codec, raw[start + frame.SEAL : stop], last - first):
                yield slice(first + place.start, first + place.stop), piece

    def is_whole(self, raw: Octets, key: str) -> bool:
        """Whether a contribution is as it was written, and of this run."""
        if not frame.is_whole(raw, self.codec, self.counts, key):
            return False
        fields = frame.read_head(raw, key)
        return (fields.get("run"), fields.get("layout")) == (self.run_id, self.layout.digest)

    def read_part(self, number: int, rank: int, shard: int) -> tuple[float, Octets]:
        """A rank's weight, and its payload for a shard.

        Raises:
            FileNotFoundError: it is not there.
            Damaged: it is not whole, or of another place.
        """
        start, stop = frame.place(self.codec, self.counts, shard)
        key = self.in_round(number, "c", rank)
        section, raw = self.read_section(key, start, stop, self.codec, (shard, number, rank))
        return section.weight, raw[frame.SEAL :]

    def read_shard(self, number: int, shard: int) -> tuple[bytes, Octets]:
        """The seal and payload of a reduced shard.

        Raises:
            FileNotFoundError: it is not there.
            Damaged: it is not whole, or of another place.
        """
        key, size = self.in_round(number, "m", shard), self.shard_bytes(shard)
        _, raw = self.read_section(key, frame.HEAD, size, self.codec, (shard, number, frame.NOBODY))
        return raw[: frame.SEAL].tobytes(), raw[frame.SEAL :]

    def read_section(
        self, key: str, start: int, stop: int, codec: str, expected: tuple[int, int, int]
    ) -> tuple[Section, Octets]:
        """What stands between two bytes of an object, once it has proved to be (shard, round, rank)."""

        def check(raw: Octets) -> tuple[Section, Octets]:
            section = frame.read_section(raw, codec, self.counts[expected[0]], key)
            if (section.shard, section.round, section.rank) != expected:
                raise Damaged(f"{key} holds shard {section.shard} of rank {section.rank} and round {section.round}")
            return section, raw

        return self.bucket.read(key, start, stop, check)

    def read_mean(self, number: int, out: Floats) -> None:
        """All reduced shards of a round into `out`.

        Raises:
            FileNotFoundError: the round was cleared away.
        """
        shards = range(self.world_size)
        for shard, (_, payload) in zip(shards, self.map(lambda one: self.read_shard(number, one), shards), strict=True):
            self.place_shard(shard, payload, out)

    def place_shard(self, shard: int, payload: Octets, out: Floats) -> None:
        """Decode a reduced shard to its place in the vector."""
        first, _ = self.bounds[shard]
        for place, piece in codecs.decoded(self.codec, payload, self.counts[shard]):
            out[first + place.start : first + place.stop] = piece
