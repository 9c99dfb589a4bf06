"""What is killed for its memory before it got anywhere ends at once: the next attempt would end like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.supervise.build import RULE, group, key, report, script

from remuda.backends.base import Ending, Life, Observed
from remuda.plan.model import Group, Resources, Role
from remuda.supervise.facts import observed, reported
from remuda.supervise.model import Cause, Phase, Task
from remuda.wire.fault import Fault

KILLED = Observed(Life.ENDED, "1", "OUT_OF_MEMORY", "n1", "oom-kill", ending=Ending.OUT_OF_MEMORY)
RUNNING = Task(key(0), "slurm", Phase.STARTING, attempt=1, token="t", started_at=1000.0)
SAID = "used more memory than it had asked for (OUT_OF_MEMORY): oom-kill"
SERVER = group().model_copy(update={"resources": Resources(mem_field="backend.mem")})
SCRIPT = script(resources=Resources(mem_field="mem"))
FAR = {"progress_step": 1.0}


@pytest.mark.parametrize(
    ("what", "task", "seen", "raised"),
    [
        pytest.param(SERVER, {}, {}, "`backend.mem`", id="a server that never answered"),
        pytest.param(SERVER, {}, {"ran_s": 7200.0}, "`backend.mem`", id="however long it was loading"),
        pytest.param(SERVER, {"phase": Phase.PENDING}, {}, "`backend.mem`", id="seen only after its end"),
        pytest.param(SERVER, {"progress": 1.0}, {}, "", id="a server that has answered"),
        pytest.param(SCRIPT, {"phase": Phase.READY}, {}, "`mem`", id="a script that told of nothing"),
        pytest.param(SCRIPT, {"phase": Phase.READY}, {"ran_s": 59.0}, "`mem`", id="and ran for a while"),
        pytest.param(SCRIPT, {"phase": Phase.READY}, {"ran_s": 60.0}, "", id="or for longer than the longest wait"),
        pytest.param(SCRIPT, {"phase": Phase.READY, "progress": 7.0}, {}, "", id="a script that got on"),
        pytest.param(SCRIPT, {"phase": Phase.READY}, {"metrics": FAR}, "", id="and told of it with its last word"),
        pytest.param(script(role=Role.DRIVER), {}, {}, "the memory of its job", id="a job whose field is not known"),
        pytest.param(SCRIPT, {}, {"ending": Ending.NONE, "signal": 9}, "", id="a signal alone"),
        pytest.param(SCRIPT, {}, {"faults": (Fault("node", "xid-79"),)}, "", id="on a broken node"),
        pytest.param(SERVER, {"phase": Phase.STOPPING, "ending": Cause.NODE}, {}, "", id="was ended to be restarted"),
    ],
)
def test_killed_for_its_memory(what: Group, task: dict[str, Any], seen: dict[str, Any], raised: str) -> None:
    after = observed(replace(RUNNING, **task), what, replace(KILLED, **seen), 1010.0)
    assert after.phase is (Phase.FAILED if raised else Phase.WAITING)
    if raised:
        assert (after.cause, after.reason, after.failures) == (Cause.APPLICATION, f"{SAID}; raise {raised}", 1)
    else:
        assert "; raise " not in after.reason


def test_who_keeps_failing_after_progress_is_given_up_as_ever() -> None:
    task = replace(RUNNING, progress=1.0, failures=RULE.max_failures - 1)
    after = observed(task, SCRIPT, KILLED, 1010.0)
    assert (after.phase, after.reason) == (Phase.FAILED, f"given up after 3 failures, the last: {SAID}")


def test_a_server_has_got_on_once_it_was_ready() -> None:
    """Also when it then began again in place, and whatever became of that."""
    task = RUNNING
    for seq, (state, progress) in enumerate([("starting", 0.0), ("ready", 1.0), ("starting", 1.0)], 1):
        task = reported(task, report("t", state, seq), 1000.0 + seq)
        assert (task.progress, task.failures) == (progress, 0)
    assert observed(task, SERVER, KILLED, 1010.0).phase is Phase.WAITING
    script_ = replace(RUNNING, key=key(0, "script"))
    assert reported(script_, report("t", "ready", 1, url=""), 1001.0).progress == 0.0
