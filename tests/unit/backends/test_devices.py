"""Which GPUs there are, and who gets which."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.local.devices import assign, present_gpus
from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path


def test_every_task_gets_its_own() -> None:
    given_ = assign(
        {"replica": (2, 2), "router": (1, 0), "rank": (1, 1)}, ["0", "1", "2", "3", "4", "5"], {"1": "other"}
    )
    assert given_ == {"replica": [["0", "2"], ["3", "4"]], "rank": [["5"]]}


@pytest.mark.parametrize(
    ("needs", "present", "taken", "hint"),
    [
        ({"replica": (2, 1)}, ["0"], {}, "to run without GPUs: gpus_per_replica: 0"),
        ({"replica": (1, 1)}, [], {}, "to run without GPUs: gpus_per_replica: 0"),
        ({"replica": (1, 2)}, ["0", "1", "2"], {"0": "b", "1": "a"}, "in use by: a, b"),
        ({"replica": (1, 1), "rank": (1, 1)}, ["0", "1"], {"0": "a", "7": "elsewhere"}, "in use by: a"),
    ],
)
def test_too_few_are_a_conflict(
    needs: dict[str, tuple[int, int]], present: list[str], taken: dict[str, str], hint: str
) -> None:
    with pytest.raises(Conflict) as caught:
        assign(needs, present, taken)
    assert hint in caught.value.hint
    assert f"of this machine's {len(present)} are free" in caught.value.message


@given(
    needs=st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 4), st.integers(0, 4))),
    present=st.lists(st.integers(0, 30).map(str), unique=True),
    taken=st.dictionaries(st.integers(0, 30).map(str), st.just("other")),
)
def test_nothing_is_given_twice(needs: dict[str, tuple[int, int]], present: list[str], taken: dict[str, str]) -> None:
    free = [one for one in present if one not in taken]
    try:
        answer = assign(needs, present, taken)
    except Conflict:
        assert sum(count * gpus for count, gpus in needs.values()) > len(free)
        return
    flat = [one for tasks in answer.values() for ids in tasks for one in ids]
    assert len(flat) == len(set(flat))
    assert set(flat) <= set(free)
    for group, (count, gpus) in needs.items():
        assert [len(ids) for ids in answer.get(group, [])] == ([gpus] * count if gpus else [])


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that is the first on PATH."""
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('[ "$*" = "--query-gpu=index --format=csv,noheader" ] && printf "0\\n1\\n10\\n"', ("0", "1", "10")),
        ("printf 'No devices were found\\n'", ()),
        ("echo 0; exit 9", ()),
        ("printf ''", ()),
    ],
)
def test_what_nvidia_smi_says(nvidia_smi: Path, script: str, expected: tuple[str, ...]) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\n{script}\n")
    nvidia_smi.chmod(0o755)
    assert present_gpus() == expected


def test_a_program_that_cannot_be_started_means_none(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("not a program")
    nvidia_smi.chmod(0o755)
    assert present_gpus() == ()


def test_without_the_program_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert present_gpus() == ()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("2,3", ("2", "3")), ("", ()), ("-1", ()), ("NoDevFiles", ()), (" GPU-8f2 , GPU-9a1 ", ("GPU-8f2", "GPU-9a1"))],
)
def test_what_the_user_allows_is_all_there_is(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str, expected: tuple[str, ...]
) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 0\n")
    nvidia_smi.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert present_gpus() == expected
