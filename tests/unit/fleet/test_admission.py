"""Who may be a node: one sentence for each reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.base.errors import Conflict, HostUnreachable, Rejected, RemudaError, TimedOut, Unavailable
from remuda.fleet.admission import RELEASES, refusal, release_refusal, taken, version_of
from remuda.fleet.client import PATIENCE_S, passes
from remuda.fleet.link import Stranger
from remuda.fleet.machine import kind_of, said
from remuda.fleet.scontrol import seen
from remuda.wire.fleet import Joining

NOW = 1_000_000.0
GOOD = Joining(
    name="n1", key="k" * 64, uid=1000, at=NOW, slurm="22.05.8", remuda="1", address="10.0.0.2", cpus=4, memory=100,
    gpus="h100:2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"gpus": ""}, ""),
        ({"gpus": "4"}, ""),
        ({"at": NOW + 59}, ""),
        (
            {"uid": 0},
            "node n1 runs as user number 0 and this fleet as 1000: Slurm needs the same number on all machines",
        ),
        ({"at": NOW - 90}, "the clock of node n1 is 1m 30s behind the head's: set it, by NTP for example"),
        ({"at": NOW + 3600}, "the clock of node n1 is 1h ahead of the head's: set it, by NTP for example"),
        ({"slurm": "23.02.1"}, "node n1 has Slurm 23.02 and the head 22.05: a node's may be older, never newer"),
        ({"slurm": "21.08.5"}, "node n1 has Slurm 21.08: nodes that join by themselves need 22.05 or newer"),
        ({"slurm": ""}, "node n1 does not say which Slurm it has"),
        ({"address": "head.example\nNodeName=x"}, "'head.example\\nNodeName=x' is not the IPv4 address of node 'n1'"),
        ({"key": "short"}, "node n1 does not say its key, CPUs or memory"),
        ({"cpus": 0}, "node n1 does not say its key, CPUs or memory"),
    ],
)
def test_why_a_machine_cannot_join(change: dict[str, object], why: str) -> None:
    joining = replace(GOOD, **change)  # type: ignore[arg-type]
    assert refusal(joining, uid=1000, now=NOW, slurm=(22, 5, 8)) == why


@pytest.mark.parametrize("name", ["", "a b", "../x", "n1\nNodeName=n2", "-n", "n" * 64, "ALL", "n1,n2", "n[1-2]"])
def test_names_that_would_say_more_to_slurm_are_refused(name: str) -> None:
    assert "cannot be the name of a node" in refusal(replace(GOOD, name=name), uid=1000, now=NOW, slurm=(22, 5))


@pytest.mark.parametrize("gpus", ["h100:0", "h100:2 Feature=x", "h100", "-1", "a:b:1"])
def test_gpus_that_cannot_be_are_refused(gpus: str) -> None:
    assert "says no GPUs" in refusal(replace(GOOD, gpus=gpus), uid=1000, now=NOW, slurm=(22, 5))


def test_a_node_may_be_two_releases_older() -> None:
    for place, head in enumerate(RELEASES):
        fine = [node for node in RELEASES if not release_refusal("n", node, head)]
        assert fine == [*RELEASES[max(0, place - 2) : place + 1]]
    assert not release_refusal("n", RELEASES[-1], (26, 5))
    assert release_refusal("n", RELEASES[-3], (26, 5)) != ""


def test_versions() -> None:
    assert version_of("22.05.8") == (22, 5, 8)
    assert version_of("slurm") == ()


def test_a_name_is_its_machines_for_a_minute() -> None:
    assert taken("n1", "10.0.0.2", 61) == ""
    assert taken("n1", "10.0.0.2", 3) == (
        "a node n1 is in this fleet already, at 10.0.0.2, heard 3.0s ago: choose another name (--node-id), or let "
        "that one leave (remuda client disconnect there)"
    )


@pytest.mark.parametrize(
    ("names", "gpus"),
    [
        ([], ""),
        (["NVIDIA H100 80GB HBM3"] * 2, "h100:2"),
        (["NVIDIA GeForce RTX 4090"], "rtx4090:1"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA L4"], "2"),
        (["Some (new) GPU"], "some-new-gpu:1"),
    ],
)
def test_gpus_as_slurm_has_them(names: list[str], gpus: str) -> None:
    assert said(names) == gpus


def test_a_kind_of_gpu() -> None:
    assert kind_of("NVIDIA A100-SXM4-80GB") == "a100"


@pytest.mark.parametrize(
    ("state", "is_empty", "is_closed"),
    [
        ("IDLE+DYNAMIC_NORM", True, False),
        ("IDLE+DRAIN+DYNAMIC_NORM", True, True),
        ("MIXED+DRAIN", False, True),
        ("ALLOCATED", False, False),
        ("DOWN+COMPLETING", False, True),
        ("DOWN*+DYNAMIC_NORM", True, True),
    ],
)
def test_a_node_as_slurm_has_it(state: str, *, is_empty: bool, is_closed: bool) -> None:
    node = seen(f"NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1")
    assert (node.is_empty, node.is_closed) == (is_empty, is_closed)
    assert seen("").is_closed


@pytest.mark.parametrize(
    ("error", "first", "later", "resilient"),
    [
        (HostUnreachable("x"), True, True, True),
        (Unavailable("x"), True, True, True),
        (TimedOut("x"), True, True, True),
        (Stranger("x"), False, True, True),
        (Rejected("x"), False, False, True),
        (RemudaError("x"), False, False, True),
        (Conflict("x"), False, False, False),
    ],
)
def test_after_which_errors_a_client_tries_again(
    error: RemudaError, *, first: bool, later: bool, resilient: bool
) -> None:
    """Before it has joined, once it has, and once it has joined as a resilient one."""
    assert passes(error, is_in=False, resilient=False, gone_s=1) == first
    assert passes(error, is_in=True, resilient=False, gone_s=1) == later
    assert not passes(error, is_in=True, resilient=False, gone_s=PATIENCE_S + 1)
    assert passes(error, is_in=True, resilient=True, gone_s=9999) == resilient
