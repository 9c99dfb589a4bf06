"""Which ports a child gets."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.ports import free_port

from remuda.node.child.ports import ChildPorts, PortTaken, owner_file
from remuda.wire.child import PORT_MARK, ChildSpec, named_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., ChildPorts]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Ports of a child that asks for two by name, and serves on one."""
    made: list[ChildPorts] = []

    def child(**fields: Any) -> ChildPorts:
        token, argv = f"w-prefill-{len(made)}-a1", ["serve", PORT_MARK, named_mark("bootstrap"), named_mark("kv")]
        base = ChildSpec(token=token, workload="w", task="prefill/0", attempt=1, argv=argv, run_dir="/x")
        spec = replace(base, port_locks=str(tmp_path / "locks"), **fields)
        assert not spec.problem()
        made.append(ChildPorts(spec))
        return made[-1]

    yield child
    for ports in made:
        ports.release()


def numbers(ports: ChildPorts, *, move: bool = False) -> list[int]:
    ports.choose(move=move)
    return [ports.port, ports.named["bootstrap"], ports.named["kv"]]


def test_all_are_others_and_stay_until_they_are_to_move(make: Make) -> None:
    one, other = make(), make()
    assert len({*numbers(one), *numbers(other)}) == 6
    before = numbers(one)
    assert numbers(one) == before
    assert not set(before) & set(numbers(one, move=True))


def test_what_has_a_number_comes_first_and_stays_where_it_is(make: Make) -> None:
    number = free_port()
    ports = make(port=number, ports={"bootstrap": number})  # the port that it serves on is only preferred
    served, bootstrap, kv = numbers(ports)
    assert bootstrap == number
    assert served > number
    moved = numbers(ports, move=True)
    assert moved[1] == number
    assert (moved[0] != served, moved[2] != kv) == (True, True)


def test_one_that_somebody_listens_on_anywhere_is_not_taken(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(PortTaken, match=r"\(kv\).*in use by process"):
        make(ports={"kv": server.getsockname()[1]}).choose(move=False)


def test_the_address_of_a_workload_is_refused(make: Make, tmp_path: Path) -> None:
    number = free_port()
    (tmp_path / "locks").mkdir(mode=0o700)
    owner_file(tmp_path / "locks", number).write_text(str(tmp_path))
    with pytest.raises(PortTaken, match=f"port {number} .kv. is kept for a workload of {tmp_path}"):
        make(ports={"kv": number}).choose(move=False)
