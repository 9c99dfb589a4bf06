"""Both sides of a carried allocation without a network: the head has what its node writes, whatever is lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.left import Left
from remuda.backends.rundir import allocation_dir
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Rejected, Unavailable
from remuda.fleet.carried import carrier
from remuda.fleet.carried.carrier import SENT, Carried
from remuda.fleet.carried.folder import MOST_BYTES
from remuda.host.fleet.carrying import Carrying
from remuda.wire.carrying import HOME_MARK, KEEPS, MOST_FILE, PIECE_BYTES, Errand, Kept, Parcel, Push, Wanted
from remuda.wire.child import ChildSpec, RunWatch
from remuda.wire.exit import CANNOT_START
from remuda.wire.fleet import to_json
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOKEN = "train.script.0.1.abcdefgh"
JOB = Errand(TOKEN, "7")


class Head:
    """A head with one allocation, and what its Slurm says of jobs."""

    def __init__(self, root: Path) -> None:
        self.paths = StatePaths(root / "home")
        self.paths.prepare()
        self.folder = allocation_dir(self.paths.workloads, TOKEN)
        self.folder.mkdir(parents=True, mode=0o700)
        self.side = Carrying(self.paths, list[Report]().append)
        self.says = f"RUNNING box {TOKEN}\n"
        self.code = 0
        script = self.paths.workloads / "train" / "train.sh"
        script.write_text("#!/bin/sh\necho héllo\n")
        script.chmod(0o700)
        secret = root / "secret"
        secret.write_text("hidden\n")
        self.spec = ChildSpec(
            TOKEN, "train", "script/0", 1, [str(script), "--out", "/elsewhere/x"], str(self.folder),
            secret_env={"KEY": {"file": str(secret)}}, cwd=str(root / "project"), watch=RunWatch(),
            env={"DATA": f"{root}/project/data", "NEAR": f"{root}/projects"},
        )  # fmt: skip
        (root / "project").mkdir()
        (root / "project" / "model.py").write_text("print(1)\n")
        (self.folder / "child.json").write_text(self.spec.to_json())

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As the controller's."""
        return subprocess.CompletedProcess(words, self.code, self.says, "no answer" if self.code else "")

    def fetch(self, node: str = "box", errand: Errand = JOB) -> Parcel:
        """As a node does it."""
        return self.side.fetch(node, errand, self.ask)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_what_travels(head: Head) -> None:
    parcel = head.fetch()
    assert parcel.folder == "train/script-0/attempt-1-abcdefgh"
    assert sorted(parcel.files) == ["train/script-0/attempt-1-abcdefgh/child.json",
                                    "train/script-0/attempt-1-abcdefgh/of-secret.KEY", "train/train.sh"]  # fmt: skip
    assert parcel.files["train/train.sh"] == [0o700, "#!/bin/sh\necho héllo\n"]
    assert parcel.files[f"{parcel.folder}/of-secret.KEY"] == [0o600, "hidden"]
    mode, text = parcel.files[f"{parcel.folder}/child.json"]
    document = json.loads(text)
    assert mode == 0o600
    assert str(head.paths.root) not in text
    assert document["argv"] == [f"{HOME_MARK}/train/train.sh", "--out", "/elsewhere/x"]
    assert document["run_dir"] == f"{HOME_MARK}/{parcel.folder}"
    assert document["secret_env"] == {"KEY": {"file": f"{HOME_MARK}/{parcel.folder}/of-secret.KEY"}}
    assert (head.paths.node / parcel.program).exists()
    work = f"{HOME_MARK}/{parcel.folder}/work"
    assert document["cwd"] == work
    assert document["env"] == {"DATA": f"{work}/data", "NEAR": head.spec.env["NEAR"]}


def test_a_node_gets_what_its_parcel_names_and_nothing_else(head: Head) -> None:
    parcel = head.fetch()
    with tarfile.open(fileobj=io.BytesIO(whole(head, parcel.tar))) as tar:
        assert tar.getnames() == ["model.py"]
    assert whole(head, parcel.program) == (head.paths.node / parcel.program).read_bytes()
    for node, name in [("other", parcel.tar), ("box", ""), ("box", "../report.secret"), ("box", "x.tar")]:
        with pytest.raises(Rejected, match=r"^no file '.*' goes to "):
            head.side.piece(node, Wanted(TOKEN, name))
    with pytest.raises(Rejected, match=r"^no file "):
        head.side.piece("box", Wanted("../x", parcel.tar))


def whole(head: Head, name: str) -> bytes:
    """A file of a parcel, as a node gets it."""
    data = b""
    while piece := b64decode(head.side.piece("box", Wanted(TOKEN, name, len(data))).data):
        data += piece
    return data


def test_why_nothing_can_go_is_the_last_word(head: Head, tmp_path: Path) -> None:
    with (tmp_path / "project" / "data.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(Rejected):
        head.fetch()
    record = Left(head.paths.workloads).exit_record(TOKEN)
    assert record is not None
    assert record.code == CANNOT_START
    assert record.reason == (
        f"{tmp_path}/project has more than 200.0 MB or 50,000 files, and goes to a node as a whole; "
        "name a smaller folder (--workdir DIR), or let git ignore what the node does not need"
    )
    assert Left(head.paths.workloads).carried(TOKEN) == {}


def test_one_job_has_an_allocation_and_may_ask_again(head: Head) -> None:
    head.fetch()
    assert head.fetch() == head.fetch()
    claim = Left(head.paths.workloads).claim(TOKEN)
    assert claim is not None
    assert (claim.pid, claim.node) == (1, "box")
    with pytest.raises(Rejected, match=rf"^{TOKEN} is claimed already, or was cancelled before it ran$"):
        head.fetch(errand=Errand(TOKEN, "8"))
    head.says = f"RUNNING other {TOKEN}\n"
    with pytest.raises(Rejected, match="is claimed already"):
        head.fetch("other")


def test_what_was_cancelled_before_it_ran_is_given_to_nobody(head: Head) -> None:
    Left(head.paths.workloads).bury(TOKEN)
    with pytest.raises(Rejected, match="was cancelled before it ran"):
        head.fetch()
    assert not (head.folder / KEEPS).exists()
    assert Left(head.paths.workloads).is_buried(TOKEN)


def test_a_host_killed_between_claim_and_answer_gives_the_files_to_the_same_job(head: Head) -> None:
    head.fetch()
    (head.folder / KEEPS).unlink()
    assert head.fetch().folder


@pytest.mark.parametrize(
    ("says", "node", "errand"),
    [
        (f"RUNNING other {TOKEN}\n", "box", JOB),
        ("RUNNING box other.script.0.1.abcdefgh\n", "box", JOB),
        (f"PENDING  {TOKEN}\n", "box", JOB),
        ("", "box", JOB),
        (f"RUNNING box {TOKEN}\n", "box", Errand("../../etc", "7")),
        (f"RUNNING box {TOKEN}\n", "box", Errand(TOKEN, "7 --all")),
    ],
)
def test_a_node_gets_what_runs_on_it_and_nothing_else(head: Head, says: str, node: str, errand: Errand) -> None:
    head.says = says
    with pytest.raises(Rejected):
        head.fetch(node, errand)
    assert sorted(path.name for path in head.folder.iterdir()) == ["child.json"]


def test_a_slurm_that_does_not_answer_refuses_nothing(head: Head) -> None:
    head.code = 1
    with pytest.raises(Unavailable):
        head.fetch()


@pytest.mark.parametrize(
    "name",
    ["../exit.json", "/etc/passwd", "a/../../b.log", "child.json", "job.sh", "carried.json", "report.key", "slurm.json",
     "of-secret.KEY", "work/x", ".hidden", "a/b/c/d/e", "", "x" * 300],
)  # fmt: skip
def test_a_node_writes_files_of_its_allocation_and_no_others(head: Head, name: str) -> None:
    head.fetch()
    before = sorted(head.paths.root.rglob("*"))
    how = "put" if name.endswith(".json") else "add"
    with pytest.raises(Rejected, match=r"^an allocation has no file "):
        head.side.mirror("box", to_json(Push(TOKEN, [f"{how} 0 1 {name}"])).encode() + b"\nx")
    assert sorted(head.paths.root.rglob("*")) == before


def test_a_node_writes_nothing_for_a_token_that_is_anothers(head: Head) -> None:
    body = to_json(Push(TOKEN, ["add 0 1 child.log"])).encode() + b"\nx"
    assert head.side.mirror("box", body)[0].foreign  # it never asked for it
    head.fetch()
    assert head.side.mirror("other", body)[0].foreign
    assert head.side.mirror("box", body.replace(TOKEN.encode(), b"../x"))[0].foreign
    assert not (head.folder / "child.log").exists()


def test_no_link_is_followed(head: Head, tmp_path: Path) -> None:
    head.fetch()
    (head.folder / "child.log").symlink_to(tmp_path / "target")
    with pytest.raises(Unavailable):
        head.side.mirror("box", to_json(Push(TOKEN, ["add 0 1 child.log"])).encode() + b"\nx")
    assert not (tmp_path / "target").exists()


def test_reports_are_told_and_only_those_of_the_allocation(head: Head) -> None:
    head.fetch()
    for token, count in ((TOKEN, 1), ("other.script.0.1.abcdefgh", 0)):
        line = Report(token=token, attempt=1, seq=1, at=1.0, state="ready").to_json().encode()
        push = Push(TOKEN, [f"put 0 {len(line)} report.json"])
        assert len(head.side.mirror("box", to_json(push).encode() + b"\n" + line)[1]) == count


class Box:
    """The node's side of it."""

    def __init__(self, root: Path, head: Head) -> None:
        self.folder = root / "box"
        self.folder.mkdir(parents=True)
        self.head = head
        self.one = Carried(self.folder, TOKEN, {})
        self.one.keep()

    def die(self) -> None:
        """The client is killed, and another one continues."""
        said = json.loads((self.folder / SENT).read_text())
        self.one = Carried(self.folder, TOKEN, said["sent"])

    def send(self, *, most: int = 1000, lose: bool = False) -> None:
        """Push until nothing is left; with `lose` the answer to the last one does not come."""
        for _ in range(most):
            found = self.one.next()
            if found is None:
                return
            kept, _ = self.head.side.mirror("box", found[0])
            if not lose:
                self.one.accept(found[1], kept)

    def write(self, name: str, data: bytes) -> None:
        """Append, or replace whole."""
        if name.endswith(".json"):
            (self.folder / ".draft").write_bytes(data)
            (self.folder / ".draft").replace(self.folder / name)
            return
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def turn(self) -> None:
        """As a log that is full."""
        if (self.folder / "child.log").exists():
            (self.folder / "child.log").replace(self.folder / "child.log.1")


NAMES = st.sampled_from(["child.log", "events.jsonl", "report.json"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=40)),
        st.tuples(st.sampled_from(["send", "lose", "die", "turn"])),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_head_has_what_the_node_wrote_whatever_was_lost(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[object, ...]]
) -> None:
    root = tmp_path_factory.mktemp("carried")
    head = Head(root)
    head.fetch()
    box = Box(root, head)
    is_turned = False
    for what, *rest in steps:
        if what == "write":
            name, data = rest
            assert isinstance(name, str)
            assert isinstance(data, bytes)
            box.write(name, data)
        elif what == "turn" and not is_turned:  # of what is turned twice in between some is lost on the node, too
            box.turn()
            is_turned = True
        elif what == "die":
            box.die()
        else:
            box.send(most=1, lose=what == "lose")
        if what == "turn" or box.one.next() is None:
            is_turned = what == "turn"
    box.send()
    for path in box.folder.iterdir():
        if not path.name.startswith(".") and path.stat().st_size:
            assert (head.folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_last_word_comes_when_all_else_is_there(tmp_path: Path, head: Head) -> None:
    head.fetch()
    box = Box(tmp_path, head)
    box.write("exit.json", b"{}")
    box.write("child.log", os.urandom(3 << 20))
    while not (head.folder / "exit.json").exists():
        before = (head.folder / "child.log").stat().st_size if (head.folder / "child.log").exists() else 0
        box.send(most=1)
    assert before == 3 << 20


def test_a_lock_says_whether_its_node_program_lives(tmp_path: Path, head: Head) -> None:
    box = Box(tmp_path, head)
    found = [box.one.lives]
    words = ["flock", str(box.folder / ".lock"), "sh", "-c", "echo; read line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found.append(box.one.lives)
        other.communicate(b"\n")
    assert [*found, box.one.lives] == [False, True, False]


def test_links_pipes_and_what_is_too_large_stay_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "model.bin").write_text("weights")
    (tmp_path / "linked").symlink_to("/etc", target_is_directory=True)
    (tmp_path / "shadow.log").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge.log").open("wb") as file:
        file.truncate(MOST_FILE + 1)
    (tmp_path / "large.json").write_bytes(b" " * (PIECE_BYTES + 1))
    (tmp_path / "child.log").write_text("said\n")
    found = Carried(tmp_path, TOKEN, {}).next()
    assert found is not None
    line, _, data = found[0].partition(b"\n")
    assert (json.loads(line)["parts"], data) == (["add 0 5 child.log"], b"said\n")


def test_no_file_grows_on_the_head_without_bound(head: Head) -> None:
    head.fetch()
    push = to_json(Push(TOKEN, [f"add {MOST_FILE} 1 child.log"])).encode() + b"\nx"
    with pytest.raises(ValueError, match=r"^a part has no such size$"):
        head.side.mirror("box", push)


def test_what_a_task_wrote_comes_before_its_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "exit.json").write_text("{}")
    one = Carried(tmp_path, TOKEN, {})
    assert one.next(lives=True) is None
    one.collect()  # nothing was written
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "result").write_text("42")
    with monkeypatch.context() as patched:
        patched.setattr(carrier, "MOST_FILE", 100)
        one.collect()  # too large
    assert not (tmp_path / "results.tar").exists()
    one.collect()
    found = one.next()
    assert found is not None
    assert [part.split(" ")[3] for part in json.loads(found[0].partition(b"\n")[0])["parts"]] == ["results.tar"]
    one.accept(found[1], Kept())
    found = one.next()
    assert found is not None
    assert [*found[1]] == ["exit.json"]
    one.drop()
    assert not tmp_path.exists()
