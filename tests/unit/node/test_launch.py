"""What the child is started with."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.node.child.launch import SecretMissing, own_address, prepare, probe_host, url
from remuda.wire.child import HOST_MARK, PORT_MARK, ChildSpec, HealthProbe

if TYPE_CHECKING:
    from pathlib import Path

SPEC = ChildSpec(
    token="w-replica-0-a3",
    workload="w",
    task="replica/0",
    attempt=3,
    argv=["serve", f"--listen={HOST_MARK}:{PORT_MARK}", PORT_MARK, "$(touch x) `y` 'z'"],
    run_dir="/run/a3",
    env={"URL": f"http://{HOST_MARK}:{PORT_MARK}/", "HOSTILE": "$(touch x)", "REMUDA_PORT": "7"},
)


def test_marks_are_replaced_and_everything_else_arrives_as_it_is() -> None:
    launch = prepare(SPEC, 8001, {"PATH": "/bin", "URL": "old"})
    assert launch.argv == ["serve", "--listen=127.0.0.1:8001", "8001", "$(touch x) `y` 'z'"]
    assert launch.env == {
        "PATH": "/bin",
        "URL": "http://127.0.0.1:8001/",
        "HOSTILE": "$(touch x)",
        "REMUDA_PORT": "8001",
        "REMUDA_HOST": "127.0.0.1",
        "REMUDA_TOKEN": "w-replica-0-a3",
        "REMUDA_TASK": "replica/0",
        "REMUDA_ATTEMPT": "3",
        "REMUDA_WORKLOAD": "w",
        "REMUDA_RUN_DIR": "/run/a3",
        "PYTHONUNBUFFERED": "1",
    }


def test_secrets_come_from_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from file\n")
    sources = {"A": {"file": str(tmp_path / "key")}, "B": {"env": "OUTSIDE"}}
    spec = replace(SPEC, secret_env=sources, env={"A": "weaker"}, probe=HealthProbe(bearer="B"))
    launch = prepare(spec, 0, {"OUTSIDE": "from variable"})
    assert (launch.env["A"], launch.env["B"]) == ("from file", "from variable")
    assert launch.secrets == ("from file", "from variable")
    assert launch.bearer == "from variable"


@pytest.mark.parametrize("source", [{"file": "/does/not/exist"}, {"env": "NOT_SET"}, {}])
def test_a_missing_secret_is_named(source: dict[str, str]) -> None:
    with pytest.raises(SecretMissing, match="secret API_KEY"):
        prepare(replace(SPEC, secret_env={"API_KEY": source}), 0, {})


def test_a_secret_that_is_no_text_is_named_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfehidden")
    with pytest.raises(SecretMissing) as caught:
        prepare(replace(SPEC, secret_env={"K": {"file": str(tmp_path / "key")}}), 0, {})
    assert "not UTF-8" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("bind", "reached"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.2", "127.0.0.2"), ("::1", "::1"), ("localhost", "127.0.0.1")],
)
def test_where_the_child_is_asked(bind: str, reached: str) -> None:
    assert probe_host(bind) == reached


@pytest.mark.parametrize(
    ("bind", "advertise", "expected"),
    [
        ("127.0.0.1", "", "http://127.0.0.1:8001"),
        ("0.0.0.0", "node7.cluster", "http://node7.cluster:8001"),
        ("::1", "", "http://[::1]:8001"),
    ],
)
def test_where_others_reach_it(bind: str, advertise: str, expected: str) -> None:
    assert url(replace(SPEC, bind_host=bind, advertise_host=advertise), 8001) == expected
    assert url(SPEC, 0) == ""


@pytest.mark.parametrize("text", [None, "{", "{}", '{"report_host": "127.0.0.1"}', '{"report_host": "head.cluster"}',
                                  '{"report_host": null}'])  # fmt: skip
def test_a_machine_is_called_by_its_name_where_the_host_tells_no_way(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "host.json"
    if text is not None:
        file.write_text(text)
    assert own_address(str(file)) == os.uname().nodename


def test_a_machine_that_is_told_its_address_is_reached_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_ADDRESS", "10.0.0.7")
    spec = replace(SPEC, bind_host="0.0.0.0", host_file=str(tmp_path / "host.json"))
    assert url(spec, 8001) == "http://10.0.0.7:8001"
    assert url(replace(spec, bind_host="127.0.0.1"), 8001) == "http://127.0.0.1:8001"


def test_a_machine_is_reached_by_its_address_towards_the_host(tmp_path: Path) -> None:
    """Every machine reaches an address of its own from that very address."""
    own = ""
    with suppress(OSError):
        own = socket.gethostbyname(socket.gethostname())
    (tmp_path / "host.json").write_text(json.dumps({"report_host": own}))
    expected = os.uname().nodename if not own or own.startswith("127.") else own
    spec = replace(SPEC, bind_host="0.0.0.0", host_file=str(tmp_path / "host.json"))
    assert url(spec, 8001) == f"http://{expected}:8001"
