"""Causes of ends, and what they say against nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.supervise.build import group, key

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.plan.model import Replace, Resources, Role
from remuda.supervise.failures.causes import classify
from remuda.supervise.failures.ends import evidence_of
from remuda.supervise.model import Cause, Phase, Task
from remuda.wire import exit as node_exit
from remuda.wire.fault import KINDS, Fault


def ended(code: int | None = None, **more: object) -> Observed:
    return Observed(Life.ENDED, exit_code=code, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "cause", "counts", "evidence", "reason"),
    [
        (ended(ending=Ending.CANCELLED, by="ann (1000)"), Cause.USER, False, [], "cancelled by ann (1000)"),
        (ended(ending=Ending.CANCELLED), Cause.USER, False, [], "cancelled by another user"),
        (ended(15, ending=Ending.PREEMPTED), Cause.PREEMPTION, False, [], "preempted"),
        (ended(0, ending=Ending.TIME_LIMIT, native_state="TIMEOUT"), Cause.TIME_LIMIT, False, [],
         "reached its time limit (TIMEOUT)"),
        (ended(ending=Ending.NODE_FAILED, native_state="NODE_FAIL"), Cause.NODE, True, [("node-failed", 1.0)],
         "its node failed (NODE_FAIL)"),
        (ended(ending=Ending.OUT_OF_MEMORY, reason="oom-kill"), Cause.APPLICATION, True, [],
         "used more memory than it had asked for: oom-kill"),
        (ended(ending=Ending.NOT_STARTED), Cause.NODE, True, [("not-started", 0.5)],
         "was given a node and never started there"),
        (ended(node_exit.NO_GPU), Cause.NODE, True, [("no-gpu", 1.0)], "fewer GPUs are visible than were asked for"),
        (ended(node_exit.GPU_BROKEN), Cause.NODE, True, [("gpu-broken", 1.0)], "a GPU is visible and does not work"),
        (ended(node_exit.NODE_FAULT), Cause.NODE, True, [("node-fault", 1.0)], "the output told of broken hardware"),
        (ended(node_exit.STALLED), Cause.APPLICATION, True, [], "no progress for as long as allowed"),
        (ended(node_exit.TIME_UP), Cause.TIME_LIMIT, False, [], "ended because its time limit was near"),
        (ended(92, native_state=CHILD_ENDED), Cause.APPLICATION, True, [], "ended with exit code 92"),
        (ended(node_exit.FENCED), Cause.UNKNOWN, True, [], node_exit.meaning(81)),
    ],
)  # fmt: skip
def test_causes(seen: Observed, cause: Cause, counts: bool, evidence: list[tuple[str, float]], reason: str) -> None:
    verdict = classify(seen)
    assert (verdict.cause, verdict.counts, verdict.success, verdict.permanent) == (cause, counts, False, False)
    assert [(item.kind, item.weight) for item in verdict.evidence] == evidence
    assert verdict.reason == reason


@pytest.mark.parametrize(
    ("policy", "cause", "counts", "reason"),
    [
        ("always", Cause.PREEMPTION, False, "preempted: exit code 0"),
        ("on-failure", Cause.NONE, True, "exit code 0"),
        ("never", Cause.NONE, True, "exit code 0"),
    ],
)
def test_a_server_that_ends_well_when_it_is_preempted_has_not_failed(
    policy: Any, cause: Cause, counts: bool, reason: str
) -> None:
    seen = ended(0, native_state=CHILD_ENDED, befell=Ending.PREEMPTED, reason="exit code 0")
    verdict = classify(seen, group(replace=Replace(policy=policy)))
    assert (verdict.cause, verdict.counts, verdict.reason) == (cause, counts, reason)
    assert verdict.success == (policy != "always")


@pytest.mark.parametrize(
    ("nodes", "metrics", "is_done"),
    [
        pytest.param(1, {}, True, id="one node: its part is all of it"),
        pytest.param(2, {}, False, id="two nodes"),
        pytest.param(2, {"progress_step": 56.0, "progress_total": 100.0}, False, id="not all steps"),
        pytest.param(2, {"progress_step": 100.0}, False, id="nobody knows how many"),
        pytest.param(2, {"progress_step": 100.0, "progress_total": 100.0}, True, id="all steps"),
    ],
)
def test_a_run_is_not_done_when_one_of_its_nodes_failed(nodes: int, metrics: dict[str, float], is_done: bool) -> None:
    """The first rank ends with 0; what ran on the other node never did."""
    befell = Ending.NODE_FAILED
    seen = ended(0, native_state=CHILD_ENDED, befell=befell, reason="exit code 0", metrics=metrics)
    run = group(replace=Replace(policy="on-failure"), role=Role.SCRIPT)
    verdict = classify(seen, run.model_copy(update={"resources": Resources(nodes=nodes)}))
    assert verdict.success is is_done
    assert verdict.cause is (Cause.NONE if is_done else Cause.NODE)
    assert verdict.reason == ("exit code 0" if is_done else "its node failed: exit code 0")


FAULTS = {
    "info": (Cause.APPLICATION, []),
    "application": (Cause.APPLICATION, []),
    "resource": (Cause.APPLICATION, []),
    "transient": (Cause.UNKNOWN, []),
    "ambiguous": (Cause.APPLICATION, [0.5]),
    "node-busy": (Cause.NODE, []),
    "node": (Cause.NODE, [1.0]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_fault_that_was_seen_decides_about_a_failed_program(kind: str) -> None:
    verdict = classify(ended(1, native_state=CHILD_ENDED, faults=(Fault(kind, "f", "line", "GPU-1"),)))
    assert (verdict.cause, [item.weight for item in verdict.evidence]) == FAULTS[kind]
    assert all((item.kind, item.device, item.detail) == ("f", "GPU-1", "line") for item in verdict.evidence)
    assert verdict.reason == "ended with exit code 1" + ("" if kind == "info" else "; seen: line")


def test_the_strongest_fault_wins_and_names_the_device_of_a_broken_node() -> None:
    seen = (Fault("application", "key-error", "KeyError"), Fault("node", "xid-79", "fell off the bus", "0000:07:00"))
    verdict = classify(ended(node_exit.NODE_FAULT, faults=seen))
    assert verdict.cause is Cause.NODE
    assert [(item.kind, item.device, item.weight) for item in verdict.evidence] == [("xid-79", "0000:07:00", 1.0)]


@pytest.mark.parametrize("ending", [Ending.CANCELLED, Ending.PREEMPTED, Ending.TIME_LIMIT])
def test_who_was_ended_from_outside_says_nothing_against_its_node(ending: Ending) -> None:
    assert classify(ended(1, ending=ending, faults=(Fault("node", "xid-79"),))).evidence == ()


def test_success_is_no_evidence() -> None:
    verdict = classify(ended(0, faults=(Fault("node", "xid-79"),)))
    assert (verdict.success, verdict.evidence) == (True, ())


@pytest.mark.parametrize(("rule", "final"), [("stop", True), ("replace", False)])
def test_what_a_persons_cancel_means_is_the_groups_choice(rule: str, final: bool) -> None:
    asked = group(replace=Replace(user_cancel=rule))
    assert classify(ended(ending=Ending.CANCELLED), asked).final is final
    assert not classify(ended(ending=Ending.PREEMPTED), asked).final


XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"


@pytest.mark.parametrize(
    ("code", "line", "blamed"),
    [
        pytest.param(1, f"[gpu-2] {XID}", ["gpu-2"], id="named by its label"),
        pytest.param(1, f"gpu-2:4711:4711 [0] {XID}", ["gpu-2"], id="named as NCCL does"),
        pytest.param(1, f"gpu-2.site.org kernel: {XID}", ["gpu-2"], id="named in full"),
        pytest.param(1, f"{XID} on gpu-2.", ["gpu-2"], id="at the end of a sentence"),
        pytest.param(1, XID, [], id="named nobody"),
        pytest.param(1, f"[gpu-22] {XID}", [], id="another name that begins alike"),
        pytest.param(1, f"[gpu-1] peer gpu-2: {XID}", [], id="named two"),
        pytest.param(node_exit.NO_GPU, "", ["gpu-1"], id="tested by the program on the first"),
    ],
)
def test_of_several_nodes_the_one_that_is_named_is_blamed(code: int, line: str, blamed: list[str]) -> None:
    faults = (Fault("node", "xid-79", line),) if line else ()
    seen = ended(code, node="gpu-1", nodes=("gpu-1", "gpu-2"), faults=faults)
    task = Task(key(0), "slurm", Phase.READY, attempt=1, token="t", node="gpu-1")
    assert [item.node for item in evidence_of(task, group(), seen, 0.0)] == blamed
