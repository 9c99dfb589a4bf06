"""Runs of one command share one `sbatch`, and each stays a workload of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.base import Handle, Rendered, Request, TaskKey, make_token
from remuda.backends.slurm import observing, strays
from remuda.backends.slurm.arrays import (
    array_index,
    array_name,
    batch_of,
    batch_uid,
    files_of,
    in_calls,
    merge,
    one_by_one,
)
from remuda.backends.slurm.files import RunDirectories, leave_batch
from remuda.backends.slurm.parsing.inventory import parse_array_size
from remuda.backends.slurm.parsing.parse import FIELD, RECORD, QueueLine
from remuda.backends.slurm.render import SlurmSite, render
from remuda.plan.model import Command, Group, Kind, Role, Workload


def rendered(root: Path, name: str, uid: str, *, attempt: int = 1, place: dict[str, object] | None = None) -> Rendered:
    group = Group(name="script", role=Role.SCRIPT, count=1, command=Command(argv=(f"/copies/{name}.sh",)))
    workload = Workload(
        name=name, kind=Kind.RUN, uid=uid, backend="slurm", groups=(group,), run_dir=str(root / name),
        place={"partition": "cpu", "workdir": "/work"} | (place or {}),
    )  # fmt: skip
    key = TaskKey(name, "script", 0)
    site = SlurmSite(root, root.parent / "node.pyz", root.parent / "host.json")
    return render(Request(key, attempt, make_token(key, attempt, uid), workload, group), site)


@pytest.mark.parametrize(
    ("uid", "batch"),
    [("abc-1", ("abc", 1)), ("a2c-1000", ("a2c", 1000)), ("abc", None), ("abc-0", None), ("abc-01", None),
     ("a-b-1", None), ("-1", None), ("abc-", None)],
)  # fmt: skip
def test_whose_uid_says_that_it_came_with_others(uid: str, batch: tuple[str, int] | None) -> None:
    assert batch_of(uid) == batch
    if batch is not None:
        assert batch_uid(*batch) == uid


def test_name_and_index_follow_from_the_token() -> None:
    assert array_name("my.run.script.0.2.abc-17") == "runs.script.b.2.abc"
    assert array_index("my.run.script.0.2.abc-17") == 17
    assert observing.is_of("my.run.script.0.2.abc-17", "runs.script.b.2.abc", "99_17")
    assert not observing.is_of("my.run.script.0.2.abc-17", "runs.script.b.2.abc", "99_7")
    assert observing.is_of("my.run.script.0.2.abc-17", "my.run.script.0.2.abc-17", "99"), "a job of its own, too"


def test_one_call_one_script_and_a_link_to_what_is_each_ones_own(tmp_path: Path) -> None:
    root = tmp_path / "workloads"
    items = [rendered(root, f"run-{at}", f"abc-{at}") for at in (1, 2, 4)]
    (call,) = merge(items)
    assert (call.tokens, call.indices, call.is_batch) == (tuple(item.token for item in items), (1, 2, 4), True)
    assert "--array=1-2,4" in call.argv
    assert "--job-name=runs.script.b.1.abc" in call.argv
    assert f"--output={root}/.batch/abc-1/%a/node.log" in call.argv
    files = RunDirectories(root)
    files.prepare(items, call)
    script = Path(call.argv[-1])
    shown = subprocess.run(
        ["/bin/sh", "-c", script.read_text().replace("exec python3 -I -S", "echo")],
        env={"SLURM_ARRAY_TASK_ID": "4", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    child = json.loads(Path(shown[-1]).read_text())
    assert (child["token"], child["argv"]) == (items[2].token, ["/copies/run-4.sh"])
    assert child["run_dir"] == str(root / "run-4" / "script-0" / "attempt-1-abc-4")
    files.prepare(items, call)  # once more, after a crash
    assert [path.name for path in sorted((root / ".batch" / "abc-1").iterdir()) if path.is_symlink()] == ["1", "2", "4"]


def test_one_that_is_alone_is_a_job_of_its_own(tmp_path: Path) -> None:
    item = rendered(tmp_path, "run", "abc-7", attempt=2)
    (call,) = merge([item])
    assert (call.argv, call.indices, call.is_batch) == (item.argv, (), False)
    assert f"--job-name={item.token}" in call.argv
    assert files_of(item, call) == item.files
    assert not any(".batch" in word for word in (*item.argv, *item.files))


ALONE: dict[str, dict[str, object]] = {
    "output": {"output": "/logs/%x.out"},
    "error": {"error": "/logs/%j.err"},
    "mail": {"mail_user": "me@example.org"},
    "mail type": {"args": ["--mail-type=END"]},
    "singleton": {"directives": ["--dependency=singleton"]},
    "singleton in the preamble": {"preamble": ["#SBATCH -d singleton"]},
}


@pytest.mark.parametrize("place", ALONE.values(), ids=ALONE)
def test_what_means_something_else_in_an_array_goes_alone(tmp_path: Path, place: dict[str, object]) -> None:
    items = [rendered(tmp_path, f"run-{at}", f"abc-{at}", place=place) for at in (1, 2)]
    assert [call.tokens for call in merge(items)] == [(item.token,) for item in items]


def test_what_differs_in_more_than_the_run_is_not_one_call(tmp_path: Path) -> None:
    gpu: dict[str, object] = {"partition": "gpu"}
    cuda: dict[str, object] = {"modules": ["cuda"]}
    items = [
        rendered(tmp_path, "a", "abc-1"), rendered(tmp_path, "b", "abc-2"),
        rendered(tmp_path, "c", "abc-3", place=gpu), rendered(tmp_path, "d", "abc-4", place=gpu),
        rendered(tmp_path, "e", "abc-5", place=cuda), rendered(tmp_path, "f", "abc-6", place=cuda),
        rendered(tmp_path, "g", "xyz-7"), rendered(tmp_path, "h", "abc-8", attempt=2),
    ]  # fmt: skip
    assert [call.indices for call in merge(items)] == [(1, 2), (3, 4), (5, 6), (), ()]
    assert len({call.argv[-1] for call in merge(items)[:3]}) == 2, "scripts of another text have another name"


members = st.lists(
    st.tuples(st.sampled_from(["abc", "xyz", ""]), st.integers(1, 60), st.integers(1, 2), st.sampled_from(["", "x"])),
    unique_by=lambda one: one[:3], max_size=30,
)  # fmt: skip


@given(members=members)
def test_every_allocation_is_in_one_call_and_found_by_its_name(
    members: list[tuple[str, int, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp()
    items = [
        rendered(
            root,
            f"run-{at}",
            f"{batch}-{at}" if batch else f"u{at}",
            attempt=attempt,
            place={"qos": "x" if qos else ""},
        )
        for batch, at, attempt, qos in members
    ]
    for calls in (merge(items), one_by_one(items)):
        assert sorted(token for call in calls for token in call.tokens) == sorted(item.token for item in items)
        for number, call in enumerate(calls):
            name = next(word for word in call.argv if word.startswith("--job-name=")).partition("=")[2]
            assert len(set(call.indices)) == len(call.indices)
            for at, token in enumerate(call.tokens):
                assert observing.is_of(token, name, call.native(str(number), at))
                others = [other for other in call.tokens if other != token]
                assert not any(observing.is_of(other, name, call.native(str(number), at)) for other in others)
    assert all(len(call.tokens) == 1 and not call.is_batch for call in one_by_one(items))
    assert [item.argv for item in in_calls(items)] == [call.argv for call in merge(items)]


def test_the_last_run_that_is_forgotten_takes_with_it_what_they_shared(tmp_path: Path) -> None:
    items = [rendered(tmp_path, f"run-{at}", f"abc-{at}") for at in (1, 2)]
    (call,) = merge(items)
    RunDirectories(tmp_path).prepare(items, call)
    (tmp_path / ".batch" / "other-1").mkdir()
    leave_batch(tmp_path, "plain")
    leave_batch(tmp_path, "abc-1")
    assert not (tmp_path / ".batch" / "abc-1" / "1").is_symlink()
    assert (tmp_path / ".batch" / "abc-1" / "2").is_symlink()
    leave_batch(tmp_path, "abc-2")
    assert [path.name for path in (tmp_path / ".batch").iterdir()] == ["other-1"]


def test_whether_the_rest_of_an_array_is_known() -> None:
    line = QueueLine(
        "9_2", "9", 2, "runs.script.b.1.abc", "me", "PENDING", "None", "cpu", "", 0, 0, 5.0, has_limit=False
    )
    queue = observing.Queue([line])
    assert queue.has_array(Handle("run.script.0.1.abc-1", "9_1"))
    assert not queue.has_array(Handle("run.script.0.1.abc-1", "8_1"))
    assert not queue.has_array(Handle("run.script.0.1.xyz-1", "9_1"))
    assert not queue.has_array(Handle("run.script.0.1.abc-1", "9"))


def test_jobs_of_an_array_are_named_by_their_links(tmp_path: Path) -> None:
    root = tmp_path / "workloads"
    items = [rendered(root, f"run-{at}", f"abcdefgh-{at}") for at in (1, 2)]
    (call,) = merge(items)
    RunDirectories(root).prepare(items, call)
    fields = ("99_2", "2", "PENDING", "", "2026-11-22T01:00:00", "runs.script.b.1.abcdefgh", call.argv[-1])
    (stray,) = strays.parse(RECORD + FIELD.join(fields) + "\n")
    assert (stray.token, stray.native, stray.home) == (items[1].token, "99_2", str(tmp_path))
    leave_batch(root, "abcdefgh-2")
    (nameless,) = strays.parse(RECORD + FIELD.join(fields) + "\n")
    assert (nameless.token, nameless.home) == ("runs.script.0.1.abcdefgh-2", "")
    assert observing.is_of(nameless.token, "runs.script.b.1.abcdefgh", "99_2"), "it can still be ended"


def test_how_long_arrays_may_be() -> None:
    assert parse_array_size("MailProg = /bin/mail\nMaxArraySize            = 1001\nMaxJobCount = 5\n") == 1001
    assert parse_array_size("MailProg = /bin/mail\n") == 0
