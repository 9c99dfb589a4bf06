"""The client's side of many carried allocations: what is spoilt, refused or killed in one ends, and hides no other."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.backends.rundir import allocation_dir
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import HostUnreachable, Unavailable
from remuda.fleet.carried import carrier
from remuda.fleet.carried.carrier import LOCK, SENT, Carried, Carrier
from remuda.fleet.carried.folder import collect
from remuda.host.fleet import carrying
from remuda.host.fleet.carrying import Carrying
from remuda.wire.carrying import KEEPS, RESULTS, WORK, Kept, Parcel, Push
from remuda.wire.fleet import to_json
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST, SECOND = "train.script.0.1.abcdefgh", "my-train.big-rank.3.12.hgfedcba"


class Fleet:
    """A head and its node without a network, with allocations that have ended."""

    def __init__(self, root: Path) -> None:
        self.paths = StatePaths(root / "home")
        self.paths.prepare()
        self.side = Carrying(self.paths, list[Report]().append)
        self.node = root / "node"
        self.told: list[str] = []
        self.wrong: dict[str, Exception] = {}
        """What an allocation's pushes lead to."""
        self.failed = 0

    def add(self, token: str) -> Path:
        """An allocation that has ended while nobody mirrored it; its folder on the node."""
        head, there = allocation_dir(self.paths.workloads, token), allocation_dir(self.node / "carried", token)
        for folder in (head, there):
            folder.mkdir(parents=True, mode=0o700)
        (head / KEEPS).write_text(json.dumps({"node": "box", "job": "7", "tar": "", "program": "x"}))
        (there / "child.log").write_text(f"said by {token}\n")
        (there / "exit.json").write_text("{}")
        Carried(there, token, {}).keep()
        (there / LOCK).touch()
        return there

    def head(self, token: str) -> Path:
        """Its folder there."""
        return allocation_dir(self.paths.workloads, token)

    async def ask(self, verb: str, message: Any, answer: Callable[[], Any]) -> Any:
        """As `Link.ask`."""
        assert verb == "mirror"
        await asyncio.sleep(0)
        token = json.loads(message.partition(b"\n")[0])["token"]
        if token in self.wrong:
            self.failed += 1
            raise self.wrong[token]
        return self.side.mirror("box", message)[0]

    def made(self) -> Carrier:
        return Carrier(self.node, self.ask, self.told.append, lambda: "")

    async def carry(self, until: Callable[[], bool], one: Carrier | None = None) -> None:
        """Have a new client run until then."""
        task = asyncio.create_task((one or self.made()).run())
        for _ in range(2000):
            if until():
                break
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert until(), self.told

    def is_told(self, token: str) -> bool:
        """Whether the head has all of an allocation, and its node none."""
        head, there = self.head(token), allocation_dir(self.node / "carried", token)
        done = bool(json.loads((head / KEEPS).read_text()).get("done"))
        return done and (head / "exit.json").exists() and not there.exists()

    @property
    def is_empty(self) -> bool:
        """Whether the node has nothing of any."""
        return not [*(self.node / "carried").iterdir()]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    root = Path(tempfile.mkdtemp(prefix="rc", dir="/tmp"))  # short: there is a socket in it
    monkeypatch.setattr(carrier, "AGAIN_S", 0.02)
    monkeypatch.setattr(carrier, "LOOK_S", 0.01)
    yield Fleet(root)
    shutil.rmtree(root)


SPOILT = ["", "{", "[]", "7", "{}", '{"sent": [], "tar": ""}', '{"sent": {"child.log": 7}, "tar": ""}',
          '{"sent": {"child.log": [7]}, "tar": ""}', '{"sent": {"child.log": ["x", "y"]}, "tar": ""}',
          '{"sent": {"child.log": [7, -7]}, "tar": ""}', '{"sent": {"child.log": [7, 999999]}, "tar": 7}',
          f'{{"token": "{SECOND}", "sent": {{}}, "tar": "/no.tar"}}']  # fmt: skip


@pytest.mark.parametrize("text", SPOILT)
async def test_a_spoilt_note_hides_no_other_and_what_it_was_of_ends(fleet: Fleet, text: str) -> None:
    spoilt = fleet.add(FIRST)
    fleet.add(SECOND)
    (fleet.head(FIRST) / "child.log").write_text("said by tr")  # the head has a part
    (spoilt / SENT).write_text(text)
    await fleet.carry(lambda: fleet.is_told(FIRST) and fleet.is_told(SECOND) and fleet.is_empty)
    for token in (FIRST, SECOND):
        logs = [(fleet.head(token) / name) for name in ("child.log.1", "child.log")]
        assert "".join(path.read_text() for path in logs if path.exists()).endswith(f"said by {token}\n")
    assert fleet.told == []


@pytest.mark.parametrize(
    "error", [Unavailable("its disk is full"), ValueError("spoilt"), KeyError("x"), RuntimeError("a bug")]
)
async def test_what_goes_wrong_in_one_is_told_once_and_others_go_on(fleet: Fleet, error: Exception) -> None:
    for token in (FIRST, SECOND):
        fleet.add(token)
    fleet.wrong[FIRST] = error
    one = fleet.made()
    await fleet.carry(lambda: fleet.is_told(SECOND) and fleet.failed > 3, one)
    assert one.owes
    assert fleet.told == [f"what {FIRST} writes does not reach the head: {error}"]
    fleet.wrong.clear()
    await fleet.carry(lambda: fleet.is_told(FIRST), one)
    assert not one.owes


async def test_a_head_that_is_silent_is_asked_for_one_of_them(fleet: Fleet) -> None:
    for token in (FIRST, SECOND):
        fleet.add(token)
        fleet.wrong[token] = HostUnreachable("no answer")
    await fleet.carry(lambda: bool(fleet.told))
    assert len(fleet.told) == 1


async def test_no_error_ends_carrying(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.add(FIRST)
    one, real, left = fleet.made(), Carrier._prepare, [RuntimeError("a bug"), RuntimeError("a bug")]

    def prepare(self: Carrier) -> None:
        if left:
            raise left.pop()
        real(self)

    monkeypatch.setattr(Carrier, "_prepare", prepare)
    await fleet.carry(lambda: fleet.is_told(FIRST), one)
    assert fleet.told == ["nothing is carried: a bug"]


async def test_a_job_whose_files_are_spoilt_asks_again(fleet: Fleet) -> None:
    one = fleet.made()

    async def hear() -> None:
        while not (fleet.node / "slurm" / "carry.sock").exists():
            await asyncio.sleep(0.01)
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(fleet.node / "slurm" / "carry.sock")
            writer.write(b"[]\n")
            assert await reader.read() == b""
            writer.close()

    hearing = asyncio.create_task(hear())
    await fleet.carry(hearing.done, one)
    await hearing
    assert len(fleet.told) == 1
    assert fleet.told[0].startswith("a job got no files: TypeError(")


@pytest.mark.parametrize("number", range(1, 10))
async def test_a_client_killed_while_it_forgets_an_allocation(
    fleet: Fleet, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the n-th file is removed: what the head has stays as it is, and nothing stays on the node, no secret."""
    real, left = os.unlink, [*range(number)]

    def unlink(*words: Any, **more: Any) -> None:
        left.pop()
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*words, **more)

    there = fleet.add(FIRST)
    (there / "of-secret.KEY").write_text("hidden")
    for name in ("a", "b", "c"):
        (there / WORK / name).mkdir(parents=True)
        (there / WORK / name / "result").write_text(name)
    collect(there / WORK, there / RESULTS, 1 << 20)
    one = Carried(there, FIRST, {})
    while (found := one.next()) is not None:
        one.accept(found[1], fleet.side.mirror("box", found[0])[0])
    fleet.side.mirror("box", to_json(Push(FIRST, done=True)).encode())
    before = {path.name: path.read_bytes() for path in fleet.head(FIRST).iterdir()}
    assert {"results.tar", "exit.json"} <= before.keys()
    pid = os.fork()
    if not pid:
        monkeypatch.setattr(os, "unlink", unlink)
        one.drop()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert (there / LOCK).exists(), "that it was here is forgotten last"
    await fleet.carry(lambda: fleet.is_empty)
    assert {path.name: path.read_bytes() for path in fleet.head(FIRST).iterdir()} == before


def test_what_is_too_large_stays_and_the_rest_goes(fleet: Fleet) -> None:
    there = fleet.add(FIRST)
    (there / WORK).mkdir()
    (there / WORK / "model").write_text("weights")
    Carried(there, FIRST, {}).drop()
    assert [path.name for path in there.rglob("*")] == [WORK, "model"]


async def test_a_job_that_has_not_begun_asks_again_and_finds_its_folder_as_it_was(fleet: Fleet) -> None:
    """Its client was killed before the job had its lock."""
    there = fleet.add(FIRST)
    (there / LOCK).unlink()
    (there / WORK).mkdir()
    fleet.add(SECOND)
    await fleet.carry(lambda: fleet.is_told(SECOND))
    assert sorted(path.name for path in there.iterdir()) == [SENT, "child.log", "exit.json", WORK]


async def test_what_cannot_be_packed_stays_and_its_end_is_told(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    there = fleet.add(FIRST)
    (there / WORK).mkdir()
    (there / WORK / "model").write_text("weights")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(carrier, "collect", full)
    await fleet.carry(lambda: not fleet.made().owes)
    assert (fleet.head(FIRST) / "exit.json").exists()
    assert (there / WORK / "model").read_text() == "weights"
    assert fleet.told == [f"what {FIRST} made stays in {there}/work: [Errno 28] No space left on device"]


def test_of_many_files_those_beside_the_claim_come_and_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "MOST_FILES", 4)
    (tmp_path / "gpu").mkdir()
    names = ["claim.json", "child.log", "report.json", "results.tar", "exit.json"]
    for name in [*names, *(f"gpu/{number:03}" for number in range(9))]:
        (tmp_path / name).write_text("{}")
    assert Carried(tmp_path, FIRST, {})._names() == names


def test_of_too_many_files_beside_the_claim_reports_and_results_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "MOST_FILES", 4)
    always = ["heartbeat", "report.json", "results.tar", "exit.json"]
    for name in [*always, *(f"a{number}" for number in range(9))]:
        (tmp_path / name).write_text("{}")
    assert Carried(tmp_path, FIRST, {})._names() == ["a0", "a1", "a2", "a3", *always]


def test_of_files_that_cannot_be_unpacked_nothing_is_left_and_they_are_fetched_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    tar, name = tmp_path / "x.tar", "train/script-0/attempt-1-abcdefgh"
    tar.write_text("no archive")
    parcel = Parcel(name, {f"{name}/of-secret.KEY": [0o600, "word"]}, "node.pyz", "x.tar")
    with pytest.raises(Unavailable, match=r"x\.tar is spoilt, and fetched again"):
        fleet.made()._made(FIRST, parcel, tar)
    assert not tar.exists()
    assert not [path for path in fleet.node.rglob("*") if path.is_file()]


async def test_a_job_that_is_cancelled_while_it_gets_its_files_is_forgotten(fleet: Fleet) -> None:
    one, there = fleet.made(), fleet.add(FIRST)
    (there / LOCK).unlink()
    ready = asyncio.Event()

    async def fetch(*_: object) -> tuple[dict[str, str], Carried]:
        await ready.wait()
        return {"document": "x" * 1_000_000}, Carried(there, FIRST, {})

    one._fetch = fetch  # type: ignore[method-assign,assignment]

    async def ask() -> None:
        while not (fleet.node / "slurm" / "carry.sock").exists():
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_unix_connection(fleet.node / "slurm" / "carry.sock")
        writer.write(b'{"token": "x", "job": "7"}\n')
        await writer.drain()
        writer.transport.abort()
        ready.set()

    asking = asyncio.create_task(ask())
    await fleet.carry(lambda: fleet.is_told(FIRST), one)
    await asking


@pytest.mark.parametrize(("limit", "most"), [("MOST_FILES", 12), ("MOST_IN_ALL", 600)])
def test_an_allocation_writes_so_much_and_then_its_last_word_alone(
    fleet: Fleet, limit: str, most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(carrying, limit, most)
    there = fleet.add(FIRST)
    for number in range(40):
        (there / f"n{number:02}.log").write_text("x" * 50)
    one, rounds = Carried(there, FIRST, {}), 0
    monkeypatch.setattr(carrier, "_MOST_PARTS", 4)
    while (found := one.next()) is not None:
        one.accept(found[1], fleet.side.mirror("box", found[0])[0])
        rounds += 1
    assert rounds < 20, "the node does not send for ever what is not kept"
    assert fleet.side.mirror("box", to_json(Push(FIRST, done=True)).encode())[0] == Kept()
    files = [path for path in fleet.head(FIRST).rglob("*") if path.is_file()]
    assert len(files) <= 17
    assert (fleet.head(FIRST) / "exit.json").exists()
    assert json.loads((fleet.head(FIRST) / KEEPS).read_text())["full"] == carrying.FULL
    assert [record.getMessage() for record in caplog.records] == [f"{FIRST}: {carrying.FULL}"]


def test_a_file_that_is_a_folder_now_holds_up_nothing(fleet: Fleet) -> None:
    for names in (["add 0 1 out"], ["add 0 1 out/x.log", "add 0 1 child.log"], ["add 0 1 dir/x"], ["add 0 1 dir"]):
        body = to_json(Push(FIRST, names)).encode() + b"\n" + b"x" * len(names)
        if not fleet.head(FIRST).exists():
            fleet.add(FIRST)
        assert fleet.side.mirror("box", body)[0] == Kept()
    head = fleet.head(FIRST)
    assert [(head / name).read_text() for name in ("out", "child.log", "dir/x")] == ["x", "x", "x"]


def test_a_head_that_cannot_read_its_notes_says_nothing_is_anothers(fleet: Fleet) -> None:
    fleet.add(FIRST)
    path = fleet.head(FIRST) / KEEPS
    body = to_json(Push(FIRST, ["add 0 1 child.log"])).encode() + b"\nx"
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="cannot be read"):
        fleet.side.mirror("box", body)
    path.rmdir()
    for text in ("[]", "{}", '{"node": 7}', "{"):
        path.write_text(text)
        assert fleet.side.mirror("box", body)[0].foreign


def test_an_end_is_not_taken_back(fleet: Fleet) -> None:
    fleet.add(FIRST)
    done = to_json(Push(FIRST, done=True)).encode()
    assert [fleet.side.mirror("box", done)[0].foreign for _ in range(2)] == [False, True]
    assert fleet.side.mirror("box", to_json(Push(FIRST, ["turn 0 0 child.log"])).encode())[0].foreign
