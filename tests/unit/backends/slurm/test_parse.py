from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.slurm.parsing.inventory import parse_nodes, parse_partitions, read_gpus, read_node_state
from remuda.backends.slurm.parsing.parse import (
    FIELD,
    RECORD,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    parse_job,
    parse_sacct,
    parse_squeue,
    parse_submitted,
    read_duration,
    read_exit,
    read_time,
)
from remuda.base.errors import BackendUnreachable

CASES = Path(__file__).parents[3] / "cases" / "slurm"


def squeue_text(name: str) -> str:
    """A case file as squeue prints it: `;` stands for the field mark, and each line begins with the record mark."""
    lines = (CASES / name).read_text().splitlines()
    return "".join(f"{RECORD}{line.replace(';', FIELD, 12)}\n" for line in lines)


def test_squeue() -> None:
    lines = parse_squeue(squeue_text("squeue-22.05.txt"))
    assert [(line.job_id, line.index, line.state, line.reason) for line in lines] == [
        ("21", None, "RUNNING", "None"),
        ("22_3", 3, "PENDING", "JobHeldUser"),
        ("22_7", 7, "COMPLETING", "None"),
        ("30+1", None, "PENDING", "Dependency"),
        ("31", None, "PENDING", "ReqNodeNotAvail, UnavailableNodes:a100-1"),
        ("1", None, "CANCELLED", "JobHeldUser"),
    ]
    first = lines[0]
    assert (first.name, first.user, first.partition, first.nodes) == ("w.script.0.1.abc", "root", "cpu", "cpu-1")
    assert first.started_at == 1795242000.0
    assert first.ends_at - first.started_at == 3600
    assert first.has_limit
    assert not lines[1].has_limit
    assert lines[1].started_at == 0
    assert lines[4].name == "a name; with everything | in it"


def test_a_job_of_a_partition_without_a_limit_has_none() -> None:
    text = squeue_text("squeue-22.05.txt")
    limited = text.split(FIELD)[10]
    assert parse_squeue(text)[0].has_limit
    assert not parse_squeue(text.replace(limited, "365-00:00:00", 1))[0].has_limit


@pytest.mark.parametrize(
    "text",
    ["nonsense", f"{RECORD}12{FIELD}x\n", f"slurm_load_jobs error{RECORD}", f"{RECORD}x{FIELD * 12}\n"],
)
def test_what_squeue_never_prints(text: str) -> None:
    with pytest.raises(BackendUnreachable, match="the answer of squeue could not be read"):
        parse_squeue(text)


def test_no_jobs_are_an_answer() -> None:
    assert parse_squeue("") == []
    assert parse_sacct("") == {}


def test_a_name_with_a_line_break_harms_no_other_job() -> None:
    fields = SQUEUE_FORMAT.removeprefix(RECORD).split(FIELD)
    record = RECORD + FIELD.join(["7", "7", "N/A", *["x"] * (len(fields) - 4), "two\nlines"]) + "\n"
    assert [line.name for line in parse_squeue(record + record)] == ["two\nlines"] * 2


@given(st.text())
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_squeue, parse_sacct, parse_job, parse_nodes, parse_partitions):
        try:
            parse(text)
        except BackendUnreachable:
            continue
    parse_submitted(text)
    read_duration(text)
    read_exit(text)
    read_time(text)
    read_gpus(text)
    read_node_state(text)


def test_sacct() -> None:
    text = (CASES / "sacct-22.05.txt").read_text().replace(";", FIELD)
    found = parse_sacct(text)
    assert list(found) == ["1_0", "1_1", "1_3", "9", "40"]
    assert (found["1_1"].state, found["1_1"].nodes) == ("CANCELLED by 0", "cpu-1")
    assert (found["1_3"].nodes, found["1_3"].started_at) == ("None assigned", 0)
    assert (found["9"].exit_code, found["9"].signal, found["9"].state) == (0, 125, "OUT_OF_MEMORY")
    assert found["40"].state == "COMPLETED"  # the last of two records of a job that was put back


def test_sacct_that_says_something_else() -> None:
    with pytest.raises(BackendUnreachable) as caught:
        parse_sacct("JobID|State\n")
    assert str(caught.value) == "the answer of sacct could not be read: 'JobID|State'"
    assert len(SACCT_FIELDS) == 10


def test_scontrol_show_job() -> None:
    job, task, odd = parse_job((CASES / "job-22.05.txt").read_text())
    assert (job.job_id, job.name, job.state, job.exit_code, job.restarts) == ("12", "w.script.0.1.abc", "FAILED", 3, 2)
    assert (task.job_id, task.state, task.signal) == ("1_3", "CANCELLED", 9)
    assert (odd.name, odd.state) == ("x JobState=RUNNING Restarts=9", "PENDING")
    with pytest.raises(BackendUnreachable):
        parse_job("No jobs in the system\n")


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_nodes(version: str) -> None:
    nodes = {node.name: node for node in parse_nodes((CASES / f"nodes-{version}.txt").read_text())}
    gpu, bad = nodes["a100-1"], nodes["a100-2"]
    assert (gpu.gpus, gpu.gpus_free, gpu.gpu_type, gpu.cpus, gpu.cpus_free) == (4, 1, "a100", 16, 12)
    assert (gpu.usable, gpu.pools, gpu.features) == (True, ("gpu-a100", "spot"), ("a100", "nvlink"))
    assert gpu.mem_bytes == 64000 << 20
    assert (bad.usable, bad.gpus_free, bad.reason) == (False, 0, "bad cable State=IDLE in slot 3")


@pytest.mark.parametrize(
    ("raw", "state", "usable"),
    [
        ("IDLE", "idle", True),
        ("MIXED+CLOUD", "mixed+cloud", True),
        ("IDLE+CLOUD+POWERED_DOWN", "idle+cloud+powered_down", True),
        ("ALLOCATED", "allocated", True),
        ("IDLE+DRAIN", "idle+drain", False),
        ("DOWN*", "down+not_responding", False),
        ("idle*", "idle+not_responding", False),
        ("MIXED+PLANNED", "mixed+planned", True),
        ("IDLE+MAINTENANCE", "idle+maintenance", False),
        ("idle~", "idle+powered_down", True),
        ("DOWN+NOT_RESPONDING", "down+not_responding", False),
        ("IDLE+INVALID_REG", "idle+invalid_reg", False),
        ("HIBERNATING", "hibernating", False),
        ("", "", False),
    ],
)
def test_node_states(raw: str, state: str, usable: bool) -> None:
    assert read_node_state(raw) == (state, usable)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", (0, "")),
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:2(IDX:0,1)", (2, "")),
        ("gpu:a100:2(IDX:0,2),gpu:h100:1(IDX:3),shard:8", (3, "")),
        ("gpu", (1, "")),
        ("nic:2", (0, "")),
        ("gpu:a100:0(IDX:N/A)", (0, "a100")),
    ],
)
def test_gpus(gres: str, gpus: tuple[int, str]) -> None:
    assert read_gpus(gres) == gpus


def test_partitions() -> None:
    pools = {pool.name: pool for pool in parse_partitions((CASES / "partitions-22.05.txt").read_text())}
    assert pools["gpu-a100"].is_default
    assert (pools["gpu-a100"].max_time_s, pools["gpu-a100"].priority, pools["gpu-a100"].preempt) == (0, 10, "")
    assert (pools["spot"].preempt, pools["spot"].max_time_s) == ("REQUEUE", 86400 + 7200)
    assert not pools["drained"].is_up


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", 0), ("INVALID", 0), ("NOT_SET", 0), ("Partition_Limit", 0), ("30", 1800), ("01:30", 90),
        ("02:03:04", 7384), ("1-00:00:00", 86400), ("1-02", 93600), ("1-02:03", 93780),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["N/A", "NONE", "Unknown", "None", "", "2026-13-01T00:00:00"])
def test_no_time(text: str) -> None:
    assert read_time(text) == 0


@pytest.mark.parametrize(
    ("out", "job_id"),
    [("123\n", "123"), ("123;cluster\n", "123"), ("a greeting\n42\n", "42"), ("Submitted batch job 7\n", ""), ("", "")],
)  # fmt: skip
def test_the_id_of_a_submitted_job(out: str, job_id: str) -> None:
    assert parse_submitted(out) == job_id
