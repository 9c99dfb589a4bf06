"""Which nodes of a fleet a recording is of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import RemudaError
from remuda.client.recordings import profiler
from remuda.client.recordings.profiler import nodes_of_fleet
from remuda.wire.recording import Status
from remuda.wire.spool import STATUS

if TYPE_CHECKING:
    from pathlib import Path


def node(name: str, gpus: str, *, leaving: bool = False) -> dict[str, object]:
    return {
        "name": name, "digest": "d", "address": "10.0.0.2", "slurm": "22.05.8", "remuda": "1", "cpus": 1, "memory": 1,
        "gpus": gpus, "joined_at": 0.0, "token": "t", "leaving": leaving,
    }  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The head's folder of a fleet that is not there yet."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    return tmp_path / "fleet"


def join(fleet: Path, *nodes: dict[str, object]) -> None:
    fleet.mkdir()
    (fleet / "environment.json").write_text("{}")
    (fleet / "roll.json").write_text(json.dumps({"tickets": [], "members": nodes}))


def test_all_with_gpus_unless_some_are_named(fleet: Path) -> None:
    assert nodes_of_fleet(()) == ()
    join(fleet, node("b2", "h100:2"), node("a1", "1"), node("plain", ""), node("gone", "h100:2", leaving=True))
    assert nodes_of_fleet(()) == ("b2", "a1")
    assert nodes_of_fleet(("gone",)) == ("gone",)


@pytest.mark.parametrize(
    ("nodes", "named", "said", "hint"),
    [
        (None, ("b2",), "this host has no fleet", "start one: remuda host start --port 8090"),
        ([node("box", "1")], ("bax",), "the fleet has no node 'bax'", "did you mean 'box'?"),
        ([node("b2", "")], ("b2",), "--node: b2 has joined the fleet without a GPU", ""),
        ([node("b2", "")], (), "no node of this host's fleet has a GPU", "to record this machine: --here"),
    ],
)
def test_what_cannot_be_recorded(
    fleet: Path, nodes: list[dict[str, object]] | None, named: tuple[str, ...], said: str, hint: str
) -> None:
    if nodes is not None:
        join(fleet, *nodes)
    with pytest.raises(RemudaError) as told:
        nodes_of_fleet(named)
    assert (str(told.value), told.value.hint) == (said, hint)


def test_nodes_that_share_no_directory_are_not_recorded(fleet: Path) -> None:
    join(fleet, node("b2", "h100:2"))
    (fleet / "carried").touch()
    with pytest.raises(RemudaError) as refused:
        nodes_of_fleet(())
    assert str(refused.value) == "nodes of this fleet have files of their own, from which no recording comes back"


def test_where_nothing_is_heard_it_is_said_what_nodes_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "_BEGIN_S", 0.0)
    folder = tmp_path / "exp1"
    with pytest.raises(RemudaError) as told:
        profiler._begun("exp1", folder, ["box"], [])
    assert str(told.value) == "exp1 does not record yet"
    see = "see: remuda logs exp1, remuda status exp1"
    assert told.value.hint == f"nodes must see {folder} at the same path; {see}"
    with pytest.raises(RemudaError) as told:
        profiler._begun("exp1", folder, [""], [])
    assert told.value.hint == see


def test_one_node_that_is_late_is_no_end_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "_BEGIN_S", 0.0)
    (tmp_path / "b2").mkdir()
    (tmp_path / "b2" / STATUS).write_text(Status("recording", 0.0).to_json())
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / STATUS).write_text(Status("nothing", 0.0, "there is no NVIDIA driver").to_json())
    live = profiler._begun("exp1", tmp_path, ["a1", "b2", "none"], [])
    assert [(one.node, one.status.state, one.status.reason) for one in live] == [
        ("a1", "late", "it does not record yet, see: remuda status exp1"), ("b2", "recording", ""),
        ("none", "nothing", "there is no NVIDIA driver"),
    ]  # fmt: skip
