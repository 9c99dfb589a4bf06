"""What recorders find reaches the ledger once, whoever saw it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from remuda.backends.base import TaskKey
from remuda.plan.model import Command, Group, Role
from remuda.store.rows import Evidence
from remuda.supervise.failures.recordings import Findings, fresh
from remuda.supervise.model import Phase, Task
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK = Task(TaskKey("train", "script", 0), "slurm", phase=Phase.READY, token="t1", node="n1")
GROUP = Group(name="script", role=Role.SCRIPT, count=1, command=Command(argv=("x",)))
LOST = {"kind": "node", "name": "xid-79", "device": "0000:3b:00", "line": "GPU has fallen off the bus"}
KNOWN = Evidence("n1", 5.0, "xid-79", 1.0, "slurm", "0000:3b:00", "train", "t1", boot="b1", expires_at=1e9)


def report(*faults: dict[str, str]) -> Report:
    return Report("t1", 1, 1, 10.0, "ready", node="n1", faults=list(faults), boot="b1")


def test_what_a_recorder_saw_is_evidence_once_however_often_it_is_reported() -> None:
    findings = Findings(lambda _now: [])
    (first,) = findings.of(TASK, GROUP, report(LOST), 10.0)
    assert (first.node, first.device, first.kind, first.weight, first.boot) == ("n1", "0000:3b:00", "xid-79", 1.0, "b1")
    assert first.expires_at == 10.0 + GROUP.nodes.ttl_s
    assert findings.of(TASK, GROUP, report(LOST), 20.0) == []
    assert Findings(lambda _now: [first]).of(TASK, GROUP, report(LOST), 20.0) == [], "the next host knows it, too"


@pytest.mark.parametrize("fault", [
    pytest.param({**LOST, "kind": "application", "name": "xid-31"}, id="the application's own"),
    pytest.param({**LOST, "kind": "info", "name": "ecc-corrected"}, id="information"),
])  # fmt: skip
def test_what_speaks_against_no_node_is_no_evidence(fault: dict[str, str]) -> None:
    assert Findings(lambda _now: []).of(TASK, GROUP, report(fault), 10.0) == []


@pytest.mark.parametrize(("change", "is_new"), [
    pytest.param({}, False, id="the same"),
    pytest.param({"token": "t2", "workload": "other"}, False, id="seen beside another task in the same boot"),
    pytest.param({"boot": "b2"}, True, id="after a reboot"),
    pytest.param({"device": "0000:af:00"}, True, id="another GPU"),
    pytest.param({"kind": "xid-48"}, True, id="another code"),
    pytest.param({"node": "n2"}, True, id="another node"),
    pytest.param({"cluster": "local"}, True, id="another cluster"),
    pytest.param({"boot": ""}, False, id="by the output of the same allocation"),
    pytest.param({"boot": "", "token": "t2"}, True, id="by the output of another"),
])  # fmt: skip
def test_one_for_a_node_device_code_and_boot(change: dict[str, Any], is_new: bool) -> None:
    item = replace(KNOWN, **change)
    assert bool(fresh([item], [KNOWN])) is is_new
    assert bool(fresh([KNOWN], [item])) is is_new, "whoever was first"


def test_the_end_of_an_allocation_does_not_count_again_what_its_recorder_told() -> None:
    told: list[Evidence] = []
    findings = Findings(lambda _now: told)
    by_scan = replace(KNOWN, boot="")
    other = replace(by_scan, kind="cuda-214")
    assert findings.at_end([by_scan, other], 11.0, findings.of(TASK, GROUP, report(LOST), 10.0)) == [other]
    told.append(KNOWN)
    assert findings.at_end([by_scan, other], 11.0) == [other]
    assert findings.at_end([by_scan, by_scan], 11.0, [other]) == []


def test_a_database_that_cannot_be_read_delays_it() -> None:
    from remuda.base.errors import RemudaError

    answers: list[Sequence[Evidence] | None] = [None, []]

    def known(_now: float) -> Sequence[Evidence]:
        answer = answers.pop(0)
        if answer is None:
            raise RemudaError("busy")
        return answer

    findings = Findings(known)
    assert findings.of(TASK, GROUP, report(LOST), 10.0) == []
    assert len(findings.of(TASK, GROUP, report(LOST), 20.0)) == 1
