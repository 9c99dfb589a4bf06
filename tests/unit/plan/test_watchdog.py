"""Every field of a document's watchdog reaches the program beside the replica, or the supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.backends.base import Request, TaskKey, make_token
from remuda.backends.rundir import child_spec
from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.model import Group, Kind, Workload
from remuda.plan.swarm import replica_group
from remuda.specs.service import Watchdog
from remuda.specs.swarm import SwarmSpec

if TYPE_CHECKING:
    from remuda.wire.child import ChildSpec

SLURM = {"type": "slurm", "partition": "p", "account": "a", "qos": "q"}


def planned(**watchdog: Any) -> tuple[Group, ChildSpec]:
    """The replicas' group, and what the first one's node program is asked."""
    spec = SwarmSpec.model_validate({"model": "m", "gpus_per_replica": 1, "backend": SLURM, "watchdog": watchdog})
    group = replica_group(derive(spec, Context(cwd="/here")).spec, "python")
    workload = Workload(name="w", kind=Kind.SWARM, uid="u1", backend="slurm", groups=(group,), run_dir="/w")
    key = TaskKey("w", group.name, 0)
    request = Request(key, 1, make_token(key, 1, "u1"), workload, group)
    child = child_spec(request, Path("/w/replica-0/attempt-1-u1"), env={}, bind_host="0.0.0.0", host_file="")
    return group, child


def at(where: str, group: Group, child: ChildSpec) -> object:
    """The value at a path such as `child.probe.path`."""
    value: Any = {"group": group, "child": child}[where.partition(".")[0]]
    for name in where.split(".")[1:]:
        value = getattr(value, name)
    return value


FIELDS = [
    ("enabled", False, "child.probe", None),
    ("probe_interval", 7, "child.probe.interval_s", 7.0),
    ("http_path", "ready", "child.probe.path", "/ready"),
    ("http_timeout", 3, "child.probe.timeout_s", 3.0),
    ("readiness_timeout", 33, "child.probe.startup_timeout_s", 33.0),
    ("restart_policy", "always", "child.restart.policy", "always"),
    ("unhealthy_restart_after", 44, "child.probe.unhealthy_restart_after_s", 44.0),
    ("max_restarts", 9, "child.restart.max_restarts", 9),
    ("restart_backoff_initial", 2, "child.restart.backoff_initial_s", 2.0),
    ("restart_backoff_max", 99, "child.restart.backoff_max_s", 99.0),
    ("kill_grace_seconds", 21, "child.kill_grace_s", 21.0),
    ("log_level", "debug", "child.log_level", "debug"),
    ("stall_after", 55, "child.probe.stall_s", 55.0),
    ("heal_after", 66, "child.restart.heal_after_s", 66.0),
    ("heal_after", 66, "group.replace.heal_after_s", 66.0),
    ("silence_after", 77, "group.silence_s", 77.0),
    ("replace", "never", "group.replace.policy", "never"),
    ("max_replacements", 8, "group.replace.max_failures", 8),
]


@pytest.mark.parametrize(("field", "value", "where", "expected"), FIELDS)
def test_a_field_is_used(field: str, value: object, where: str, expected: object) -> None:
    assert at(where, *planned()) != expected, "another value than the default"
    assert at(where, *planned(**{field: value})) == expected


def test_no_field_is_forgotten() -> None:
    assert {field for field, *_ in FIELDS} == set(Watchdog.model_fields) - {"ray"}


def test_on_a_cluster_replicas_are_listened_for_and_their_output_is_looked_at() -> None:
    group, child = planned()
    assert (group.silence_s, child.beat_s, child.scan_log) == (60.0, 2.0, True)
    assert planned(silence_after=0)[1].beat_s == 0.0
