"""Documents between host and node: what is written is read again, everything else is refused in words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from remuda.wire import exit as codes
from remuda.wire.child import PORT_MARK, ChildSpec, HealthProbe, RestartRule, named_mark
from remuda.wire.process import ProcessId, identify, is_alive
from remuda.wire.spread import Spread

SPEC = ChildSpec(token="t", workload="w", task="replica/0", attempt=1, argv=["server"], run_dir="/run/t")


def test_child_document_survives_the_wire() -> None:
    spec = ChildSpec(
        token="t",
        workload="w",
        task="replica/0",
        attempt=3,
        argv=["server", "--port", PORT_MARK, "$(touch /tmp/x)"],
        run_dir="/run/t",
        env={"A": "b"},
        secret_env={"KEY": {"file": "/secret"}},
        probe=HealthProbe(path="/v1/models", stall_s=0),
        restart=RestartRule(policy="always"),
    )
    assert ChildSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 1"),
        ({"argv": []}, "argv"),
        ({"argv": [1]}, "argv"),
        ({"restart": {"policy": "sometimes"}}, "sometimes"),
        ({"restart": {"max_restart": 1}}, "max_restart"),
        ({"port": 70000}, "70000"),
        ({"port_fixed": True}, "port_fixed"),
        ({"run_dir": ""}, "run_dir"),
        ({"surprise": 1}, "surprise"),
        ({"ports": {"Boot": 1}}, "small letters"),
        ({"ports": {"boot__": 1}}, "small letters"),
        ({"ports": {"boot": -1}}, "boot is -1"),
        ({"ports": {"boot": 7, "kv": 7}}, "twice"),
        ({"port": 7, "port_fixed": True, "ports": {"kv": 7}}, "twice"),
        ({"files": {"../x": ""}}, "plain name"),
    ],
)
def test_wrong_child_documents_are_refused(change: dict[str, Any], message: str) -> None:
    data = {**json.loads(SPEC.to_json()), **change}
    with pytest.raises(ValueError, match=message):
        ChildSpec.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"version":1}', "{"])
def test_what_is_no_child_document(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any sentence will do
        ChildSpec.from_json(text)


def test_a_child_listens_if_it_is_given_a_port_or_asks_for_one() -> None:
    def spec(**fields: Any) -> ChildSpec:
        return ChildSpec(**{**SPEC.__dict__, **fields})

    assert not SPEC.listens()
    assert spec(port=8000).listens()
    assert spec(probe=HealthProbe()).listens()
    assert spec(env={"P": f"x{PORT_MARK}"}).listens()


def test_ports_are_asked_for_by_name_wherever_marks_are_replaced() -> None:
    texts = {"argv": ["s", f"{named_mark('a')}{named_mark('kv_events')}{PORT_MARK}"], "env": {"E": named_mark("b")}}
    spread = Spread(nodes=2, member=[named_mark("d")])
    spec = ChildSpec(**{**SPEC.__dict__, **texts, "files": {"f": named_mark("c")}, "spread": spread, "ports": {"b": 7}})
    assert spec.named_ports() == {"a": 0, "kv_events": 0, "b": 7, "c": 0, "d": 0}
    assert SPEC.named_ports() == {}


def test_exit_record_survives_and_newer_fields_are_passed_over() -> None:
    record = codes.ExitRecord(token="t", attempt=1, code=80, at=1.5, child_signal=9, reason="why", log_tail="last")
    assert codes.ExitRecord.from_json(record.to_json()) == record
    newer = json.dumps({**json.loads(record.to_json()), "colour": "red"})
    assert codes.ExitRecord.from_json(newer) == record
    for text in ("[]", "{}", "x"):
        with pytest.raises(ValueError):  # noqa: PT011 - any sentence will do
            codes.ExitRecord.from_json(text)


@pytest.mark.parametrize(("code", "word"), [(0, "success"), (81, "copy"), (7, "code 7"), (137, "signal 9")])
def test_every_code_has_a_meaning(code: int, word: str) -> None:
    assert word in codes.meaning(code)


def test_a_process_is_itself_and_nobody_else() -> None:
    me = identify(os.getpid())
    assert is_alive(me)
    assert ProcessId.from_json(me.to_json()) == me
    assert not is_alive(ProcessId(pid=me.pid, start=me.start + "1", boot=me.boot, node=me.node))
    assert not is_alive(ProcessId(pid=me.pid, start=me.start, boot="another boot", node=me.node))
    with pytest.raises(ValueError):  # noqa: PT011 - any sentence will do
        ProcessId.from_json("[1]")


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    process = identify(child.pid)
    assert is_alive(process)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process)
    child.communicate()
    assert not is_alive(process)
