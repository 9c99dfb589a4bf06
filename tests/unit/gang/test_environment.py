"""Who a copy is, and how it is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.gang import ObjectStoreAllReduce, environment
from remuda.gang.entrypoint import main

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (*environment.RANK, *environment.WORLD_SIZE, *environment.RUN_ID, *environment.URL)


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_replicas_numbers_come_before_those_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "7", "WORLD_SIZE": "8", "RENDEZVOUS": "memory://env", "RUN_ID": "r"}.items():
        monkeypatch.setenv(name, value)
    assert (ObjectStoreAllReduce().rank, ObjectStoreAllReduce().world_size) == (7, 8)
    monkeypatch.setenv("REPLICA_GROUP_ID", "3")
    monkeypatch.setenv("NUM_REPLICA_GROUPS", "4")
    assert (ObjectStoreAllReduce().rank, ObjectStoreAllReduce().world_size) == (3, 4)
    monkeypatch.setenv("REPLICA_RANK", "1")
    monkeypatch.setenv("REPLICA_COUNT", "2")
    assert (ObjectStoreAllReduce().rank, ObjectStoreAllReduce().world_size) == (1, 2)
    assert ObjectStoreAllReduce(rank=0, world_size=9).world_size == 9


def test_what_is_missing_or_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="URL"):
        ObjectStoreAllReduce()
    for options in ({"rank": -1}, {"world_size": 0}, {"run_id": "a/b"}, {"quorum": 3}, {"keep": 0}, {"codec": "x"}):
        with pytest.raises(InputError):
            ObjectStoreAllReduce("memory://x", **{"run_id": "r", "rank": 0, "world_size": 2, **options})  # type: ignore[arg-type]
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(InputError, match="whole number"):
        ObjectStoreAllReduce("memory://x", run_id="r", world_size=2)


def test_a_function_is_started_as_a_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_copy.py").write_text("def main(lr):\n    return int(lr)\n\nNUMBER = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", str(tmp_path)])
    assert main(["a_copy:main"]) == 2
    assert "the rank is not known" in capsys.readouterr().err
    for name in ("REPLICA_RANK", "REPLICA_COUNT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RENDEZVOUS", "memory://x")
    monkeypatch.setenv("RUN_ID", "r")
    assert main(["a_copy:main", "lr=5"]) == 5
    for words in ([], ["a_copy"], ["a_copy:NUMBER"], ["nowhere_at_all:main"], ["a_copy:main", "5"]):
        assert main(words) == 2
