"""Which jobs of a queue are allocations of ours, and of which home, from their names and scripts alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.base import Life, Stray, TaskKey, is_token, make_token
from remuda.backends.rundir import allocation_dir, home_of
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import CommandOutput
from remuda.backends.slurm.parsing.parse import FIELD, RECORD
from remuda.backends.slurm.strays import parse
from remuda.base.errors import BackendUnreachable, Rejected

SCRIPT = "/home/me/.remuda/workloads/herd/replica-0/attempt-2-k3f9a1xq/job.sh"
SHARED = "/home/me/.remuda/workloads/herd/replica-a/attempt-2-k3f9a1xq/job.sh"


def line(job_id: str, name: str, command: str, *, index: str = "N/A", state: str = "RUNNING") -> str:
    return RECORD + FIELD.join((job_id, index, state, "n1", "2026-11-22T01:00:00", name, command)) + "\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(line("12", "herd.replica.0.2.k3f9a1xq", SCRIPT), "herd.replica.0.2.k3f9a1xq", id="a job"),
        pytest.param(
            line("12_3", "herd.replica.a.2.k3f9a1xq", SHARED, index="3"),
            "herd.replica.3.2.k3f9a1xq",
            id="a task of an array",
        ),
    ],
)
def test_a_job_of_ours(text: str, expected: str) -> None:
    (stray,) = parse(text)
    assert (stray.token, stray.home, stray.node, stray.life) == (expected, "/home/me/.remuda", "n1", Life.RUNNING)
    assert stray.since == 1795309200.0


@pytest.mark.parametrize(
    "name",
    ["train", "train.py", "a.b.c.d.e", "herd.replica.0.2.short", "herd.replica.x.2.k3f9a1xq", "x" * 80, "",
     "herd.replica.0.2.K3F9A1XQ", "herd replica.0.2.k3f9a1xq", "herd.replica.a.2.k3f9a1xq"],
)  # fmt: skip
def test_jobs_of_others_are_left_out(name: str) -> None:
    assert parse(line("7", name, SCRIPT)) == []


@pytest.mark.parametrize(
    "command",
    ["(null)", "", "job.sh", "/job.sh", "/home/me/train.sh", SCRIPT.replace("attempt-2", "attempt-3"),
     SCRIPT.replace("herd/", "flock/"), SCRIPT.removesuffix("job.sh") + "x.sh"],
)  # fmt: skip
def test_a_script_elsewhere_tells_no_home(command: str) -> None:
    (stray,) = parse(line("12", "herd.replica.0.2.k3f9a1xq", command))
    assert stray.home == ""


def test_what_has_ended_and_what_waits() -> None:
    ended = line("1", "herd.replica.0.2.k3f9a1xq", SCRIPT, state="CANCELLED")
    waits = line("2", "herd.replica.1.2.k3f9a1xq", SCRIPT, state="PENDING")
    cleans = line("3", "herd.replica.2.2.k3f9a1xq", SCRIPT, state="COMPLETING")
    assert [(stray.native, stray.life) for stray in parse(ended + waits + cleans)] == [
        ("2", Life.PENDING), ("3", Life.RUNNING),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("slurm_load_jobs error", BackendUnreachable, id="another text"),
        pytest.param(RECORD + "12", BackendUnreachable, id="cut off"),
        pytest.param(line("1", "herd.replica.0.2.k3f9a1xq", SCRIPT, state="DANCING"), Rejected, id="unknown state"),
    ],
)
def test_what_cannot_be_read_says_nothing(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse(text)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.sampled_from(["replica", "router", "driver"]), st.integers(0, 999), st.integers(1, 99))
def test_every_token_is_one_and_leads_home(name: str, group: str, index: int, attempt: int) -> None:
    token = make_token(TaskKey(name, group, index), attempt, "k3f9a1xq")
    assert is_token(token)
    folder = allocation_dir(Path("/h/.remuda/workloads"), token)
    assert home_of(folder, token) == "/h/.remuda"
    assert home_of(folder.parent, token) == ""
    (stray,) = parse(line("5", token, f"{folder}/job.sh"))
    assert stray == Stray(token, "5", Life.RUNNING, "RUNNING", "n1", stray.since, "/h/.remuda")


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (CommandOutput(0, "", ""), True),
        (CommandOutput(229, "", ""), True),
        (CommandOutput(225, "", ""), True),
        (CommandOutput(1, "", "scancel: error: Kill job error on job id 4: Invalid job id specified"), True),
        (CommandOutput(229, "", "scancel: error: Socket timed out on send/recv operation"), False),
        (CommandOutput(1, "", ""), False),
    ],
)
async def test_what_has_gone_may_be_cancelled(answer: CommandOutput, passes: bool) -> None:
    class Said:
        async def run(self, _: object) -> CommandOutput:
            return answer

    client = SlurmClient(Said())  # type: ignore[arg-type]
    if passes:
        await client.cancel("x", "4")
        return
    with pytest.raises(BackendUnreachable):
        await client.cancel("x", "4")
