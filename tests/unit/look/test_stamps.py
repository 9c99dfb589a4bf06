"""What tells a model, an image or an engine of today from what lies there tomorrow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.paths import StatePaths
from remuda.look.facts import Looked

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.backends.slurm.backend import SlurmBackend


@pytest.fixture
def facts(tmp_path: Path) -> Looked:
    def never() -> SlurmBackend:
        raise AssertionError

    return Looked(StatePaths(tmp_path / "home"), never, (None, {}))


def the_next(command: Looked) -> Looked:
    """Each command looks once."""
    return Looked(command.paths, command.slurm, command.said)


def write(path: Path, text: str, at: int = 7) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(at, at))
    return str(path)


def test_files_are_known_by_size_and_time_and_folders_by_what_is_in_them(facts: Looked, tmp_path: Path) -> None:
    image = write(tmp_path / "a.sqsh", "12345")
    assert facts.stamp(image) == [("a.sqsh", 5, 7)]
    write(tmp_path / "m/w.safetensors", "123", 8)
    write(tmp_path / "m/config.json", "{}")
    write(tmp_path / "m/.lock", "")
    (tmp_path / "m/broken").symlink_to(tmp_path / "gone")
    assert facts.stamp(str(tmp_path / "m")) == [("config.json", 2, 7), ("w.safetensors", 3, 8)]
    (tmp_path / "link").symlink_to(tmp_path / "m")
    assert facts.stamp(str(tmp_path / "link")) == facts.stamp(str(tmp_path / "m"))
    assert facts.stamp("hf:owner/name") == facts.stamp(str(tmp_path / "gone")) == []


def test_a_module_is_what_is_installed_and_not_that_it_was_imported(facts: Looked, tmp_path: Path) -> None:
    site = tmp_path / "env/lib/python3.11/site-packages"
    python = write(tmp_path / "env/bin/python", "")
    write(site / "vllm/__init__.py", "1")
    write(site / "vllm-1.dist-info/RECORD", "")
    first = facts.stamp(python, "vllm")
    assert [name for name, *_ in first] == ["__init__.py", "vllm-1.dist-info"]
    write(site / "vllm/__pycache__/__init__.pyc", "1")
    write(site / "other/__init__.py", "1")
    assert the_next(facts).stamp(python, "vllm") == first
    write(site / "vllm/__init__.py", "2", 9)
    assert facts.stamp(python, "vllm") == first
    assert the_next(facts).stamp(python, "vllm") != first
    assert facts.stamp(python, "sglang") == []
