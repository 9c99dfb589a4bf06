"""Ports that a child asks for by name, with the real program."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from tests.component.node.conftest import PATIENCE_S, until
from tests.ports import free_port

from remuda.wire import exit as codes
from remuda.wire.child import FILES_MARK, named_mark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tests.component.node.conftest import Allocation

SCRIPT = 'echo "$0 $KV $REMUDA_PORTS $(cat "$1")"; exec sleep 1000'
ARGV = ["/bin/sh", "-c", SCRIPT, named_mark("bootstrap"), f"{FILES_MARK}/conf"]
ASKS: dict[str, Any] = {
    "env": {"KV": named_mark("kv_events")},
    "files": {"conf": f"listen {named_mark('bootstrap')};"},
}


def is_in(file: Path, text: str) -> bool:
    return file.read_text() == text


def test_each_child_has_numbers_of_its_own_in_argv_environment_and_files(
    make_allocation: Callable[[str], Allocation],
) -> None:
    seen: list[int] = []
    for name in ("one", "two"):
        allocation = make_allocation(name)
        allocation.start(ARGV, **ASKS)
        ports = allocation.state("ready").ports
        assert sorted(ports) == ["bootstrap", "kv_events"]
        seen += ports.values()
        boot = ports["bootstrap"]
        told = f"{boot} {ports['kv_events']} {json.dumps(ports)} listen {boot};\n"
        log = allocation.run_dir / "child.log"
        until(partial(is_in, log, told), told)
        assert (allocation.run_dir / "files" / "conf").stat().st_mode & 0o777 == 0o600
    assert len(set(seen)) == 4


def test_a_fixed_port_is_taken_or_it_is_said_who_has_it(make_allocation: Callable[[str], Allocation]) -> None:
    number = free_port()
    first = make_allocation("first")
    first.start(ARGV, **ASKS, ports={"bootstrap": number}, token="w-prefill-0-a1")
    assert first.state("ready").ports["bootstrap"] == number
    with socket.create_server(("127.0.0.1", 0)) as listens:
        busy = listens.getsockname()[1]
        for name, port, holder in (
            ("second", number, "held by another allocation (w-prefill-0-a1)"),
            ("third", busy, f"in use by process {os.getpid()}"),
        ):
            refused = make_allocation(name)
            assert refused.start(ARGV, **ASKS, ports={"bootstrap": port}).wait(PATIENCE_S) == codes.PORT_TAKEN
            assert refused.record().reason.startswith(f"port {port} (bootstrap) ")
            assert holder in refused.record().reason
