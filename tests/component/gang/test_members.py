"""Who takes part, over our S3 server: joiners, leavers, a lost quorum; and a store that does wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.component.gang.conftest import LIMIT_S
from tests.fakes.s3 import Fault, S3Server
from tests.unit.gang.copies import store, together

from remuda.base.errors import Rejected
from remuda.gang import ObjectStoreAllReduce
from remuda.gang.errors import RankMissing
from remuda.gang.objects.layout import of_vector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fakes.s3 import Request

URL, N = "s3://bucket/some/folder", 2000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with S3Server() as one:
        for name, value in one.env.items():
            monkeypatch.setenv(name, value)
        yield one


def vector(rank: int) -> Any:
    return np.full(N, rank + 1, np.float32)


def a_round(copies: list[ObjectStoreAllReduce]) -> list[float]:
    """What each copy has as the mean, whose values are all the same."""
    means = together(lambda index: copies[index].allreduce(vector(copies[index].rank)), len(copies))
    assert all(len(np.unique(mean)) == 1 for mean in means)
    return [float(mean[0]) for mean in means]


def end(copies: list[ObjectStoreAllReduce]) -> None:
    for copy in copies:
        copy.close()


def test_one_joins_in_round_seven_and_another_leaves(server: S3Server) -> None:
    server.page = 3  # Listings come in pages.
    copies = [store(URL, rank, 2) for rank in range(2)]
    assert [a_round(copies) for _ in range(7)] == [[1.5, 1.5]] * 7
    joins = store(URL, 2, 2)
    joins.open(of_vector(N))
    assert joins.round == 7
    assert a_round([*copies, joins]) == [2.0] * 3
    copies[0].close()
    assert a_round([copies[1], joins]) == [2.5] * 2
    end([copies[1], joins])


def test_every_object_goes_up_in_parts(server: S3Server) -> None:
    copies = [store(URL, rank, 3, multipart_bytes=1, keep=1) for rank in range(3)]
    assert [a_round(copies) for _ in range(3)] == [[2.0] * 3] * 3
    assert not [one for one in server.log if one.verb == "PUT" and one.key.endswith(("/c/0", "/m/1")) and one.bytes_up]
    assert not [key for key in server.objects if re.search(r"/\d+\.", key)], "nothing is left aside"
    dead = f"{URL.removeprefix('s3://')}/run/r2/c/0.{'a' * 16}"
    server.objects[dead] = server.objects[dead.rpartition(".")[0]]
    a_round(copies)
    a_round(copies)
    assert dead not in server.objects, "what a dead sender left aside goes with its round"
    end(copies)


def test_one_that_leaves_while_others_wait_for_it(server: S3Server) -> None:
    copies = [store(URL, rank, 3) for rank in range(3)]
    a_round(copies)

    def act(rank: int) -> float:
        if rank < 2:
            return float(copies[rank].allreduce(vector(rank))[0])
        while not any(f"/r1/c/{other}" in key for key in list(server.objects) for other in range(2)):
            pass
        copies[2].close()
        return 0.0

    assert together(act, 3) == [1.5, 1.5, 0.0]
    end(copies)


def test_a_lost_quorum_is_waited_for_by_name_until_the_limit(server: S3Server) -> None:
    options: dict[str, Any] = {"quorum": 2, "grace": 0.0}
    copies = [store(URL, rank, 3, **options) for rank in range(3)]
    for copy in copies:
        copy.open(of_vector(N))
    copies[0].timeout = 0.05
    with pytest.raises(RankMissing, match=r"round 0 .* rank 1 \(last seen .*\), rank 2 \(last seen"):
        copies[0].allreduce(vector(0))
    copies[0].timeout = 60.0
    assert a_round(copies[:2]) == [1.5, 1.5]
    end(copies)


def test_rounds_of_an_earlier_run_are_none_of_this_one(server: S3Server) -> None:
    for run_id in ("a", "a1", "a.r0"):
        one = ObjectStoreAllReduce(URL, run_id=run_id, rank=0, world_size=1)
        assert one.allreduce(vector(4))[0] == 5
        assert one.round == 1
        one.close()
    assert sum("/r0/COMMIT" in key for key in server.objects) == 3


def test_a_key_that_expires_is_one_sentence_and_its_renewal_goes_on(server: S3Server) -> None:
    copies = [store(URL, rank, 2) for rank in range(2)]
    a_round(copies)
    server.plan = lambda request: Fault.REFUSE if request.verb == "PUT" and "/r1/c/1" in request.key else None
    with pytest.raises(Rejected, match=r"^the store refused to put run/r1/c/1: .*$") as caught:
        copies[1].allreduce(vector(1))
    assert "\n" not in str(caught.value)
    server.plan = lambda _: None
    assert a_round(copies) == [1.5, 1.5]
    end(copies)


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.CONFLICT, Fault.SLOW_DOWN])
def test_an_answer_that_is_lost_or_says_later(server: S3Server, fault: Fault) -> None:
    """Every object meets it once."""
    met: Counter[str] = Counter()

    def plan(request: Request) -> Fault | None:
        met[request.key] += request.verb == "PUT"
        return fault if request.verb == "PUT" and met[request.key] == 1 else None

    copies = [store(URL, rank, 2) for rank in range(2)]
    for copy in copies:
        copy.open(of_vector(N))
    server.plan = plan
    assert a_round(copies) == [1.5, 1.5]
    assert sum(count > 0 for count in met.values()) == 6  # Two contributions, manifest, two shards, COMMIT.
    server.plan = lambda _: None
    end(copies)


def test_listings_that_lag(server: S3Server) -> None:
    server.lag_s = 0.3
    copies = [store(URL, rank, 2) for rank in range(2)]
    assert [a_round(copies) for _ in range(2)] == [[1.5, 1.5]] * 2
    end(copies)


@pytest.mark.parametrize("name", ["/r0/c/1", "/r0/m/1"])
def test_an_object_that_is_cut_off_is_written_anew(server: S3Server, name: str) -> None:
    cut = Counter[str]()

    def took(request: Request) -> None:
        if request.verb == "PUT" and request.key.endswith(name) and not cut[name]:
            cut[name] += 1
            del server.objects[f"{request.bucket}/{request.key}"].data[1500:]

    server.took = took
    copies = [store(URL, rank, 2, take_over=0.2) for rank in range(2)]
    for copy in copies:
        copy.open(of_vector(N))
    if name == "/r0/c/1":
        # It acknowledged what it then lost: the rank that wrote it has to be started again.
        copies[0].timeout = 0.5
        copies[1].timeout = 0.2
        with pytest.raises(RankMissing):
            copies[1].allreduce(vector(1))
        copies[1].close(leave=False)
        copies[0].timeout, copies[1] = 60.0, store(URL, 1, 2)
    assert a_round(copies) == [1.5, 1.5]
    assert cut[name] == 1
    end(copies)


FULL = """
import sys
import numpy as np
from remuda.gang import ObjectStoreAllReduce
from remuda.base.errors import RemudaError
one = ObjectStoreAllReduce(f"file://{sys.argv[1]}", run_id="full", rank=0, world_size=1, sleep=lambda _: None)
try:
    one.allreduce(np.ones(200_000, np.float32))
except RemudaError as error:
    print(error)
"""


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    words = 'mount -t tmpfs -o size=100k none "$1" && exec "$2" -c "$3" "$1"'
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    command = [*own, "sh", "-c", words, "sh", str(tmp_path), sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("the store did not put full/r0/c/0: ")
    assert "No space left" in done.stdout
