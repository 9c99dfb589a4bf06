"""A store that is busy, loses answers, gives less or flips bits; and one that keeps no first writer."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore
from tests.unit.gang.copies import new_url, store, together

from remuda.base.errors import Conflict, InputError, NotFound, Rejected, Unavailable
from remuda.gang.errors import AnotherRun, Damaged, RankMissing
from remuda.gang.machine import Terms
from remuda.gang.objects import document
from remuda.gang.objects.bucket import TRIES, Bucket, Listed, open_store
from remuda.gang.objects.keys import read_listing
from remuda.gang.objects.layout import of_vector
from remuda.gang.round import Round
from remuda.gang.rounds import summary

if TYPE_CHECKING:
    from pathlib import Path

VECTOR = np.arange(700, dtype=np.float32)


class Faulty:
    """A store in memory of which a verb fails some times: before it did its work, or after."""

    def __init__(self, verb: str, times: int, *, after: bool = False) -> None:
        self.raw, self.verb, self.left, self.after = MemoryStore(), verb, times, after

    def __getattr__(self, verb: str) -> Any:
        act = getattr(self.raw, verb)

        def tried(*args: Any, **options: Any) -> Any:
            if verb != self.verb or self.left == 0:
                return act(*args, **options)
            self.left -= 1
            if self.after:
                act(*args, **options)
            raise GenericError("503 SlowDown")

        return tried


def bucket(raw: Any) -> Bucket:
    return Bucket(raw, sleep=lambda _: None)


def test_a_put_whose_answer_was_lost_is_ones_own() -> None:
    assert bucket(Faulty("put", 1, after=True)).create("k", b"mine")
    raw = Faulty("put", 1, after=True)
    raw.raw.put("k", b"hers")
    assert not bucket(raw).create("k", b"mine")


def test_the_first_writer_wins_in_parts_too(tmp_path: Path) -> None:
    one = Bucket(open_store(f"file://{tmp_path}"), multipart_bytes=3)
    assert one.create("a/k", b"mine")
    assert one.create("a/k", b"mine")
    assert not one.create("a/k", b"hers")
    one.replace("a/k", b"anew")
    found = one.find("a/k")
    assert found is not None
    assert bytes(found) == b"anew"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["k"], "nothing is left aside"


def test_a_busy_store_is_asked_again_and_not_for_ever() -> None:
    assert bucket(Faulty("put", TRIES - 1)).create("k", b"mine")
    with pytest.raises(Unavailable, match="503"):
        bucket(Faulty("put", TRIES)).create("k", b"mine")


def test_a_store_that_lets_the_second_writer_win_is_refused() -> None:
    class Careless(Faulty):
        def put(self, path: str, file: Any, **_: Any) -> Any:
            return self.raw.put(path, file)

    with pytest.raises(Rejected, match="If-None-Match"):
        bucket(Careless("", 0)).probe("run")


def test_a_store_that_ignores_ranges_is_refused() -> None:
    class Whole(Faulty):
        def get_range(self, path: str, *, start: int, end: int) -> Any:
            return self.raw.get(path).bytes()

    with pytest.raises(Rejected, match="range"):
        bucket(Whole("", 0)).probe("run")


def test_no_url_of_a_store() -> None:
    with pytest.raises(InputError, match="not the URL of an object store"):
        open_store("http://example.org/x")


@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "flipped"])
@pytest.mark.parametrize("name", ["c/0", "m/1", "manifest", "COMMIT"])
def test_existence_is_not_completeness(name: str, cut: bool) -> None:
    """A damaged object is refused by whoever reads it; a contribution that is cut off is not counted as one."""
    url = new_url()
    first = store(url, 0, 2, quorum=1, grace=0.0, take_over=0.0)
    first.allreduce(VECTOR)
    raw = open_store(url)
    data = bytearray(raw.get(f"run/r0/{name}").bytes())
    if cut:
        del data[len(data) // 2 :]
    else:
        data[-70] ^= 1
    raw.put(f"run/r0/{name}", bytes(data))
    late = store(url, 1, 2)
    late.open(of_vector(len(VECTOR)))
    run = late._run
    assert run
    if name == "c/0":
        assert not run.is_whole(np.frombuffer(bytes(data), np.uint8), name)
        assert cut == (len(data) != run.contribution_bytes)
        return
    reads = {"m/1": lambda: run.read_shard(0, 1)}
    with pytest.raises((Damaged, Unavailable)):
        reads.get(name, lambda: run.document(f"run/r0/{name}"))()


def test_ranks_that_do_not_come_are_named() -> None:
    url = new_url()
    seen_once = store(url, 1, 3)
    seen_once.open(of_vector(len(VECTOR)))
    waiting = store(url, 0, 3, timeout=0.01)
    with pytest.raises(RankMissing, match=r"rank 1 \(last seen 20.*Z\), rank 2 \(never seen\)") as caught:
        waiting.allreduce(VECTOR)
    assert caught.value.last_seen[2] is None
    told = summary(url, "run")
    assert (told.committed, list(told.waits_for)) == (0, [1, 2])
    assert told.rounds[0].state == "open"
    # What was given stays given: a call after the error goes on with the same round.
    waiting.timeout = 60.0
    copies = [waiting, seen_once, store(url, 2, 3)]
    means = together(lambda rank: copies[rank].allreduce(VECTOR), 3)
    assert all(np.array_equal(mean, VECTOR) for mean in means)


def test_another_layout_codec_or_process_is_refused() -> None:
    url = new_url()
    store(url, 0, 1).allreduce(VECTOR)
    with pytest.raises(AnotherRun, match="has layout"):
        store(url, 0, 1).allreduce(VECTOR[:5])
    with pytest.raises(AnotherRun, match="codec"):
        store(url, 0, 1, codec="int8").allreduce(VECTOR)
    one, twin = store(url, 0, 2), store(url, 0, 2)
    one.open(of_vector(len(VECTOR)))
    twin.open(of_vector(len(VECTOR)))
    one.allreduce(VECTOR)
    late = Round(twin._run, Terms(0, 1), 1, VECTOR + 1, weight=1.0, errors={}, clock=lambda: 0.0)  # type: ignore[arg-type]
    with pytest.raises(AnotherRun, match="another process has rank 0"):
        late.advance()


def test_fewer_copies_than_the_run_has_are_refused_at_once() -> None:
    url = new_url()
    store(url, 0, 4).open(of_vector(len(VECTOR)))
    with pytest.raises(AnotherRun, match="run 'run' has 4 copies, and 2 were started") as caught:
        store(url, 1, 2).open(of_vector(len(VECTOR)))
    assert "start 4, set a quorum of 2 or fewer" in caught.value.hint
    store(url, 1, 2, quorum=2).open(of_vector(len(VECTOR)))
    store(url, 4, 1).open(of_vector(len(VECTOR)))  # it joins
    for rank in (2, 3, 4):
        leaving = store(url, rank, 4)
        leaving.open(of_vector(len(VECTOR)))
        leaving.close()
    store(url, 1, 2).open(of_vector(len(VECTOR)))  # two are left


def test_weights_and_a_summary() -> None:
    url = new_url()
    means = together(lambda rank: store(url, rank, 2, weight=1.0 + 2 * rank).allreduce(VECTOR * (rank + 1)), 2)
    np.testing.assert_allclose(means[0], VECTOR * 1.75, rtol=1e-6)
    assert np.array_equal(means[0], means[1])
    told = summary(url, "run").to_json()
    assert (told["committed"], told["rounds"][0]["ranks"], told["rounds"][0]["left_out"]) == (1, [0, 1], {})
    assert told["rounds"][0]["size_bytes"] > 3 * VECTOR.nbytes


def test_who_only_looks_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder file://"):
        summary(f"file://{tmp_path}/nowhere", "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weight", [float("nan"), 0.0, -1.0, float("inf"), 1e-300, 1e39])
def test_a_weight_that_is_none_is_refused_before_anything_is_sent(weight: float) -> None:
    url = new_url()
    one = store(url, 0, 1, weight=weight)
    with pytest.raises(InputError, match="the weight of a contribution is"):
        one.allreduce(VECTOR)
    assert summary(url, "run").rounds == []
    one.weight = 1.0
    assert np.array_equal(one.allreduce(VECTOR), VECTOR)


def test_values_whose_sum_overflows_are_refused_before_anything_is_sent() -> None:
    url = new_url()
    one = store(url, 0, 1, weight=1e6)
    with pytest.raises(InputError, match="overflows"):
        one.allreduce(VECTOR * np.float32(1e30))
    assert summary(url, "run").rounds == []


@pytest.mark.parametrize(
    ("values", "weight"),
    [(VECTOR, float("nan")), (VECTOR, 0.0), (VECTOR, -1.0), (VECTOR + np.float32(3e38), 1e6), (VECTOR * np.nan, 1.0)],
    ids=["NaN", "zero", "negative", "overflow", "values"],
)
def test_a_contribution_that_spoils_the_mean_is_passed_over_by_all_alike(
    values: Any, weight: float, caplog: pytest.LogCaptureFixture
) -> None:
    """An older worker wrote it, or somebody else with the bucket's keys; its own rank is started again, too."""
    url = new_url()
    spoiler = store(url, 1, 2)
    spoiler.open(of_vector(len(VECTOR)))
    assert spoiler._run is not None
    spoiler._run.bucket.create("run/r0/c/1", spoiler._run.encode(values, 0, 1, weight))
    copies = [store(url, rank, 2) for rank in range(2)]
    means = together(lambda rank: copies[rank].allreduce(VECTOR), 2)
    assert np.array_equal(means[0], VECTOR)
    assert means[0].tobytes() == means[1].tobytes()
    assert "round 0 passes over rank 1: " in caplog.text or weight == 0.0
    if np.isfinite(values).all():
        assert np.array_equal(together(lambda rank: copies[rank].allreduce(VECTOR), 2)[1], VECTOR)


def test_a_refusal_of_what_is_not_there_is_asked_again() -> None:
    """Of two that write at once S3 may take neither: both hear 409."""

    class Conflicting(Faulty):
        def put(self, path: str, file: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left >= 0:
                raise AlreadyExistsError("409 ConditionalRequestConflict")
            return self.raw.put(path, file, **options)

    assert bucket(Conflicting("", TRIES - 1)).create("k", b"mine")
    with pytest.raises(Unavailable, match="refuses to put k"):
        bucket(Conflicting("", TRIES)).create("k", b"mine")


def test_what_is_larger_than_a_worker_writes_is_not_read() -> None:
    class Large(Faulty):
        def get(self, path: str) -> Any:
            return SimpleNamespace(meta={"size": 8 << 30}, bytes=lambda: pytest.fail("it was read"))

    with pytest.raises(Conflict, match=r"RUN\.json has 8,589,934,592 bytes, and no worker writes more than 4,194,304"):
        bucket(Large("", 0)).find("run/RUN.json")
    raw = Large("", 0)
    raw.raw.put("k", b"hers")
    assert not bucket(raw).create("k", b"mine")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("RUN.json", {"world_size": 0, "elements": 5, "codec": "fp32"}),
        ("RUN.json", {"world_size": "abc", "elements": 5, "codec": "fp32"}),
        ("RUN.json", {"world_size": True, "elements": 5, "codec": "fp32"}),
        ("RUN.json", {"world_size": 1 << 40, "elements": 5, "codec": "fp32"}),
        ("RUN.json", {"world_size": 2}),
        ("r0/manifest", {"ranks": []}),
        ("r0/COMMIT", {}),
        ("r0/COMMIT", {"ranks": ["0"]}),
        ("r0/state", {"arrays": 3, "nonce": "x"}),
    ],
    ids=str,
)
def test_a_document_that_no_worker_wrote_is_a_sentence(name: str, fields: dict[str, Any]) -> None:
    raw = MemoryStore()
    raw.put(f"run/{name}", document.write(fields))
    with pytest.raises(Damaged, match=f"{name} has what no worker writes there"):
        document.read(bytes(raw.get(f"run/{name}").bytes()), f"run/{name}")


def test_nor_is_a_traceback_what_is_no_json_or_has_endless_numbers() -> None:
    line = b"[" * 100_000
    with pytest.raises(Damaged, match="not JSON"):
        document.read(line + b"\n" + hashlib.sha256(line).hexdigest().encode(), "run/RUN.json")
    seen = read_listing("run", [Listed(f"run/r{'9' * 5000}/COMMIT", 1, 0.0), Listed("run/r7/COMMIT", 1, 0.0)])
    assert seen.newest == 7
